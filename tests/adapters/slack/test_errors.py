"""Every error of the SDK, and of the HTTP library below it, says how certain it is."""

from __future__ import annotations

import inspect
from types import MappingProxyType, ModuleType

import aiohttp
import pytest
import slack_bolt.error
import slack_sdk.errors
from slack_sdk.errors import SlackApiError, SlackTokenRotationError

from adapters.slack.errors import connect_error, send_error
from gateway.errors import (
    AdapterAuthFailed,
    AdapterError,
    AdapterNotReady,
    PermanentSendError,
    SendError,
    TransientSendError,
    UncertainSendError,
)

SECRET = "xoxb-a-secret"


def classes(module: ModuleType) -> list[type[Exception]]:
    return [each for _, each in inspect.getmembers(module, inspect.isclass) if issubclass(each, Exception)]


def raised(kind: type[Exception]) -> Exception:
    """An error of the class, whatever its constructor wants; its text holds a secret."""
    if kind is SlackApiError:
        return SlackApiError(SECRET, {"ok": False, "error": "invalid_arguments"})
    if kind is SlackTokenRotationError:
        return SlackTokenRotationError(SlackApiError(SECRET, {"ok": False, "error": "invalid_auth"}))
    error = kind.__new__(kind)
    error.args = (SECRET,)
    return error


@pytest.mark.parametrize(
    "kind", [*classes(slack_sdk.errors), *classes(slack_bolt.error), *classes(aiohttp), TimeoutError, OSError, KeyError]
)
def test_every_error_is_translated_and_tells_no_secret(kind: type[Exception]) -> None:
    error = raised(kind)
    problem = send_error(error, "chat.postMessage")
    assert isinstance(problem, TransientSendError | UncertainSendError | PermanentSendError)
    assert isinstance(connect_error(error, "bot_token"), AdapterError)
    if kind is not KeyError:  # whose text is a key of ours
        assert SECRET not in f"{problem}{connect_error(error, 'bot_token')}"


@pytest.mark.parametrize("kind", [aiohttp.ServerDisconnectedError, aiohttp.ClientPayloadError, TimeoutError])
def test_a_line_that_broke_while_slack_was_answering_is_uncertain(kind: type[Exception]) -> None:
    assert isinstance(send_error(raised(kind), "chat.postMessage"), UncertainSendError)


@pytest.mark.parametrize("kind", [aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError])
def test_a_line_that_was_never_there_is_not(kind: type[Exception]) -> None:
    assert isinstance(send_error(raised(kind), "chat.postMessage"), TransientSendError)


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("ratelimited", 429, TransientSendError),
        ("rate_limited", 200, TransientSendError),
        ("internal_error", 200, UncertainSendError),
        ("fatal_error", 200, UncertainSendError),
        ("", 200, UncertainSendError),
        ("", 504, UncertainSendError),
        ("channel_not_found", 200, PermanentSendError),
        ("a_word_that_is_new", 200, PermanentSendError),
    ],
)
def test_slack_s_words_are_understood(code: str, status: int, kind: type[SendError]) -> None:
    class Answer:
        status_code = status
        data = {"ok": False, "error": code} if code else "<html>"
        headers = MappingProxyType({"Retry-After": "soon"})

    problem = send_error(SlackApiError("failed", Answer()), "chat.postMessage")
    assert type(problem) is kind or isinstance(problem, kind)
    assert getattr(problem, "retry_after_s", None) is None


@pytest.mark.parametrize("code", ["invalid_auth", "account_inactive", "token_revoked", "not_allowed_token_type"])
def test_a_refused_token_is_for_the_operator(code: str) -> None:
    error = connect_error(SlackApiError("failed", {"ok": False, "error": code}), "app_token")
    assert isinstance(error, AdapterAuthFailed)
    assert "app_token" in str(error)


def test_our_own_errors_pass_unchanged() -> None:
    mine, ours = TransientSendError("x"), AdapterNotReady("y")
    assert send_error(mine, "m") is mine
    assert connect_error(ours, "k") is ours
