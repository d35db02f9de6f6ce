"""Translates the errors of the SDK and of aiohttp into ours: how certain is it that nothing was done?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import aiohttp
from slack_sdk.errors import SlackApiError, SlackClientNotConnectedError, SlackTokenRotationError

from gateway.errors import (
    AdapterAuthFailed,
    AdapterError,
    AdapterNotReady,
    PermanentSendError,
    SendError,
    TransientSendError,
    UncertainSendError,
)

# https://docs.slack.dev/reference/methods/chat.postMessage#errors
_REFUSED_TOKEN = {
    "account_inactive", "invalid_auth", "not_authed", "token_expired", "token_revoked", "not_allowed_token_type",
    "missing_scope", "no_permission", "access_denied", "org_login_required", "two_factor_setup_required",
    "forbidden_team",
}  # fmt: skip
_TOO_MANY = {"ratelimited", "rate_limited", "message_limit_exceeded"}
# The last: the message is still an open stream, which Slack ends after five minutes.
_BUSY = {
    "accesslimited", "access_limited", "team_added_to_org", "team_access_not_granted", "streaming_state_conflict",
}  # fmt: skip
# "It's possible some aspect of the operation succeeded before the error was raised."
_MAYBE_DONE = {"fatal_error", "internal_error", "request_timeout", "service_unavailable", "external_channel_migrating"}
MARKUP_REFUSED = {
    "invalid_blocks", "invalid_blocks_format", "markdown_text_conflict", "msg_blocks_too_long", "msg_too_long",
    "no_text",
}  # fmt: skip
GONE = {"message_not_found", "cant_update_message", "edit_window_closed", "cant_delete_message"}
_ADVICE = {
    "not_in_channel": "invite the app to the channel",
    "channel_not_found": "the channel is gone, or the app was removed from it",
    "is_archived": "the channel is archived",
    "missing_scope": "reinstall the app with the scopes of the manifest",
}
_APP_PAGE = "the app's page at https://api.slack.com/apps"
# Of the token, by the key and by Slack's code: https://docs.slack.dev/reference/methods/apps.connections.open
_TOKEN_ADVICE = {
    ("app_token", "not_allowed_token_type"): "Take the one under Basic Information, App-Level Tokens, of {page}.",
    ("app_token", "missing_scope"): (
        "It lacks `connections:write`: make another one with that scope under Basic Information of {page}."
    ),
    ("app_token", "access_denied"): "Switch on Socket Mode on {page}.",
}
_NOT_SENT = (
    aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, SlackClientNotConnectedError, SlackTokenRotationError,
)  # fmt: skip


class Refused(PermanentSendError):
    """Slack understood the request and will not do it."""

    def __init__(self, method: str, code: str) -> None:
        advice = f" ({_ADVICE[code]})" if code in _ADVICE else ""
        super().__init__(f"Slack refused {method}: {code}{advice}")
        self.code = code


@contextmanager
def calling(method: str, *, is_repeatable: bool = False) -> Iterator[None]:
    """Turn every error of the block into a `SendError`; where twice does no harm, none is uncertain."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 (whatever it is, it becomes one of ours)
        problem = send_error(error, method)
        if is_repeatable and isinstance(problem, UncertainSendError):
            problem = TransientSendError(str(problem))
        raise problem from (None if problem is error else error)


def send_error(error: Exception, method: str) -> SendError:
    """What a failed call means for the message; the text holds no token and no content."""
    if isinstance(error, SendError):
        return error
    if isinstance(error, SlackApiError):
        return _api_error(error, method)
    if isinstance(error, _NOT_SENT):
        return TransientSendError(f"Slack cannot be reached: {type(error).__name__}")
    if isinstance(error, KeyError):  # Slack said ok, and not what we asked for
        return UncertainSendError(f"Slack answered {method} without {error}")
    if isinstance(error, aiohttp.ClientError | OSError) and not isinstance(error, aiohttp.InvalidURL):
        return UncertainSendError(f"the line broke during {method} ({type(error).__name__})")  # also a TimeoutError
    return PermanentSendError(f"{method} failed before it was sent: {type(error).__name__}")


def _api_error(error: SlackApiError, method: str) -> SendError:
    status, code, retry_after_s = _response_facts(error)
    if status == 429 or code in _TOO_MANY:
        return TransientSendError(f"Slack has had too many calls of {method}", retry_after_s=retry_after_s)
    if status >= 500 or code in _MAYBE_DONE or not code:
        return UncertainSendError(f"{method} failed in Slack (HTTP {status} {code}); it may have been done")
    if code in _BUSY:
        return TransientSendError(f"Slack cannot do {method} now: {code}")
    return Refused(method, code)


def connect_error(error: Exception, key: str) -> AdapterError:
    """What a failed start means; `key` is the setting whose token was used."""
    if isinstance(error, AdapterError):
        return error
    if isinstance(error, SlackApiError):
        status, code, retry_after_s = _response_facts(error)
        if code in _REFUSED_TOKEN:
            advice = _TOKEN_ADVICE.get((key, code), "Copy the token again from {page}.").format(page=_APP_PAGE)
            return AdapterAuthFailed(f"Slack refused `{key}`: {code}. {advice}")
        return AdapterNotReady(f"Slack is not ready (HTTP {status} {code})", retry_after_s=retry_after_s)
    return AdapterNotReady(f"Slack cannot be reached: {type(error).__name__}")


def _response_facts(error: SlackApiError) -> tuple[int, str, float | None]:
    """Status, error code and `Retry-After`; the answer may come from something else than Slack."""
    response = error.response
    status = int(getattr(response, "status_code", None) or getattr(response, "status", None) or 0)
    data = getattr(response, "data", response)
    code = str(data.get("error") or "") if isinstance(data, Mapping) else ""
    wait = (getattr(response, "headers", None) or {}).get("Retry-After", "")
    return status, code, float(wait) if str(wait).isdecimal() else None
