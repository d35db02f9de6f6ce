"""Translates the errors of aioimaplib, aiosmtplib and TLS into ours: how certain is it that nothing was sent?"""

from __future__ import annotations

import ssl

import aiosmtplib
from aioimaplib import aioimaplib  # type: ignore[import-untyped]

from gateway.errors import (
    AdapterAuthFailed,
    AdapterError,
    AdapterNotReady,
    PermanentSendError,
    SendError,
    TransientSendError,
    UncertainSendError,
)

_NOT_TLS = {"WRONG_VERSION_NUMBER", "UNEXPECTED_MESSAGE", "RECORD_LAYER_FAILURE"}
"""What OpenSSL says when the first bytes of the other side are no TLS; which of them depends on its version."""


def imap_error(error: Exception, where: str, what: str) -> AdapterError:
    """What an error of aioimaplib means: whatever it is, the connection cannot be used any more."""
    explained = _tls_explanation(error, "`imap_port` and `imap_tls`")
    if explained is not None:
        return AdapterNotReady(f"{where} cannot be used: {explained}")
    detail = " ".join(str(error).split())[:300]
    known = (aioimaplib.AioImapException, OSError, TimeoutError, ValueError, RecursionError)
    text = detail if isinstance(error, known) and detail else type(error).__name__
    return AdapterNotReady(f"{where} cannot be used now ({what}): {text}")


def login_error(error: Exception, where: str, username: str) -> AdapterError:
    """What an error before the login was done means."""
    if isinstance(error, aiosmtplib.SMTPAuthenticationError) and error.code >= 500:
        return AdapterAuthFailed(
            f"{where} refuses the login of {username} (code {error.code}); check the password or the token"
        )
    if isinstance(error, aiosmtplib.SMTPResponseException):
        return AdapterNotReady(f"{where} answers {error.code}: {_line(error.message)}")
    explained = _tls_explanation(error, "`smtp_port` and `smtp_tls`")
    if explained is not None:
        return AdapterNotReady(f"{where} cannot be used: {explained}")
    return AdapterNotReady(f"{where} cannot be used now: {_describe(error)}")


def before_text_error(error: Exception) -> SendError:
    """What an error before the text went out means: nothing was delivered."""
    if isinstance(error, aiosmtplib.SMTPRecipientsRefused) and error.recipients:
        error = error.recipients[0]
    if isinstance(error, aiosmtplib.SMTPResponseException):
        text = f"the SMTP server answers {error.code}: {_line(error.message)}"
        # 530 and 535 refuse the login, which an operator can correct; the mail itself is good.
        is_final = error.code >= 500 and error.code not in {530, 535}
        return PermanentSendError(text) if is_final else TransientSendError(text)
    if isinstance(error, aiosmtplib.SMTPNotSupported):
        return PermanentSendError(f"the SMTP server cannot take it: {_line(error.message)}")
    return TransientSendError(f"the SMTP server did not take it: {_describe(error)}")


def after_text_error(error: Exception) -> SendError:
    """What an error means once the text was on its way: only an answer of the server is certain."""
    if isinstance(error, aiosmtplib.SMTPResponseException):
        return before_text_error(error)
    return UncertainSendError(f"the SMTP server did not confirm: {_describe(error)}")


def _describe(error: Exception) -> str:
    return _line(str(error)) or type(error).__name__


def _line(text: str) -> str:
    return " ".join(text.split())[:300]


def _tls_explanation(error: BaseException, port_keys: str) -> str | None:
    """Which key of the configuration is wrong; None where TLS did not fail.

    Args:
        error: as it was caught; its causes count too.
        port_keys: the keys for the port and the encryption of this server.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted ({seen.verify_message}); see `ca_file`"
        if isinstance(seen, ssl.SSLError) and getattr(seen, "reason", None) in _NOT_TLS:
            return f"it does not begin with TLS; see {port_keys}"
        seen = seen.__cause__ or seen.__context__
    return None
