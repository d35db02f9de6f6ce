"""Every error of the libraries becomes one of ours, and says how certain it is."""

from __future__ import annotations

import ssl
from typing import Any

import aioimaplib.aioimaplib
import aiosmtplib
import pytest

from adapters.email.errors import after_text_error, before_text_error, imap_error, login_error
from gateway.errors import (
    AdapterAuthFailed,
    AdapterNotReady,
    PermanentSendError,
    TransientSendError,
    UncertainSendError,
)


def all_errors(module: Any) -> list[type[Exception]]:
    return [each for each in vars(module).values() if isinstance(each, type) and issubclass(each, Exception)]


def make(kind: type[Exception], code: int) -> Exception:
    """An instance, however the class wants to be made."""
    if kind is aiosmtplib.SMTPRecipientsRefused:
        return kind([aiosmtplib.SMTPRecipientRefused(code, "text", "ada@example.org")])
    for arguments in ((code, "text", "ada@example.org"), (code, "text"), ("text",), ()):
        try:
            return kind(*arguments)
        except TypeError:
            continue
    raise AssertionError(f"{kind} cannot be made")


SMTP_ERRORS = all_errors(aiosmtplib.errors)
IMAP_ERRORS = all_errors(aioimaplib.aioimaplib)


def test_there_are_errors_to_walk() -> None:
    assert len(SMTP_ERRORS) >= 15
    assert {each.__name__ for each in IMAP_ERRORS} >= {"AioImapException", "Error", "Abort", "CommandTimeout"}


@pytest.mark.parametrize("kind", SMTP_ERRORS)
@pytest.mark.parametrize("code", [421, 450, 535, 550])
def test_every_error_of_smtp_is_translated_at_each_stage(kind: type[Exception], code: int) -> None:
    error = make(kind, code)
    has_code = isinstance(error, (aiosmtplib.SMTPResponseException, aiosmtplib.SMTPRecipientsRefused))
    login = login_error(error, "the server", "bot")
    is_refused = isinstance(error, aiosmtplib.SMTPAuthenticationError) and code >= 500
    assert type(login) is (AdapterAuthFailed if is_refused else AdapterNotReady)

    before = before_text_error(error)
    is_final = (has_code and code == 550) or isinstance(error, aiosmtplib.SMTPNotSupported)
    assert type(before) is (PermanentSendError if is_final else TransientSendError)

    after = after_text_error(error)
    if isinstance(error, aiosmtplib.SMTPResponseException):
        assert type(after) is (PermanentSendError if code == 550 else TransientSendError)
    else:
        assert type(after) is UncertainSendError


@pytest.mark.parametrize("error", [OSError(104, "reset"), ssl.SSLError("handshake"), ConnectionResetError()])
def test_errors_of_the_network_are_translated(error: Exception) -> None:
    assert type(login_error(error, "the server", "bot")) is AdapterNotReady
    assert type(before_text_error(error)) is TransientSendError
    assert type(after_text_error(error)) is UncertainSendError
    assert type(imap_error(error, "the server", "LOGIN")) is AdapterNotReady


@pytest.mark.parametrize("kind", [*IMAP_ERRORS, TimeoutError, OSError, ValueError, RecursionError, KeyError])
def test_every_error_of_imap_costs_the_connection_and_nothing_else(kind: type[Exception]) -> None:
    try:
        error = kind("reason")
    except TypeError:
        error = kind()
    translated = imap_error(error, "the server", "FETCH")
    assert type(translated) is AdapterNotReady
    assert "FETCH" in str(translated)
