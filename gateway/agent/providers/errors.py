"""What a failed call means: a status, an error inside a stream, or a broken connection in our words, once.

No message repeats a key: the text of a 401 or 403, in which providers quote part of it, is left out, and the key itself
and the passwords of addresses are struck out of all others. `test_models_errors.py` walks all classes of errors of the
HTTP client.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum, auto
from typing import Any, Literal

import aiohttp

from gateway.agent.providers.format import Said, StreamFailed
from gateway.agent.providers.models import CallFailed, Endpoint
from gateway.errors import ModelRefused, ModelUnavailable

_SAID_CHARS = 300
_LONGEST_RETRY_AFTER_S = 86_400.0


class _Kind(Enum):
    """What went wrong, as far as it makes a difference to us."""

    TOO_LONG = auto()
    KEY = auto()
    NOT_FOUND = auto()
    QUOTA = auto()
    TIMEOUT = auto()
    CONNECTION = auto()
    DOWN = auto()
    REDIRECT = auto()
    REFUSED = auto()
    UNREADABLE = auto()


_ABOUT: dict[_Kind, Literal["model", "base_url", "api_key"]] = {
    _Kind.KEY: "api_key",
    _Kind.NOT_FOUND: "model",
    _Kind.CONNECTION: "base_url",
    _Kind.TIMEOUT: "base_url",
    _Kind.REDIRECT: "base_url",
    _Kind.UNREADABLE: "base_url",
}


# The providers' own words go first, since they know more: a 400 may be an empty account, a 429, too.
# https://platform.openai.com/docs/guides/error-codes, https://platform.claude.com/docs/en/api/errors,
# https://openrouter.ai/docs/api-reference/errors, https://docs.z.ai/api-reference/api-code (read 2026-11)
_CODES: dict[str, _Kind] = {
    "insufficient_quota": _Kind.QUOTA,
    "billing_hard_limit_reached": _Kind.QUOTA,
    "credit_balance_exhausted": _Kind.QUOTA,
    "organization_spend_limit_exceeded": _Kind.QUOTA,
    "organization_usage_limit_exceeded": _Kind.QUOTA,
    "project_spend_limit_exceeded": _Kind.QUOTA,
    "exceeded_current_quota_error": _Kind.QUOTA,  # Moonshot
    "billing_error": _Kind.QUOTA,
    "context_length_exceeded": _Kind.TOO_LONG,
    "request_too_large": _Kind.TOO_LONG,
    "invalid_api_key": _Kind.KEY,
    "authentication_error": _Kind.KEY,
    "permission_error": _Kind.KEY,
    "model_not_found": _Kind.NOT_FOUND,
    "not_found_error": _Kind.NOT_FOUND,
}
# Codes and types that say only what a status says, for errors that come without one.
_STATUS_OF_CODES: dict[str, int] = {
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "too_many_requests": 429,
    "service_unavailable": 503,
    "service_unavailable_error": 503,
    "server_is_overloaded": 503,
    "overloaded": 503,
    "overloaded_error": 529,
    "server_error": 500,
    "api_error": 500,
    "timeout_error": 504,
    "invalid_request_error": 400,
}
_ZAI_QUOTA = frozenset({"1113", *map(str, range(1308, 1322))}) - {"1312"}
# How servers word what they have no code for.
_WORDS: tuple[tuple[_Kind, tuple[str, ...]], ...] = (
    (_Kind.TOO_LONG, ("maximum context length", "reduce the length of the messages", "prompt is too long")),
    (_Kind.QUOTA, ("credit balance is too low",)),
)
_STATUSES: tuple[tuple[_Kind, Container[int]], ...] = (
    (_Kind.TOO_LONG, {413}),
    (_Kind.KEY, {401, 403}),
    (_Kind.NOT_FOUND, {404}),
    (_Kind.QUOTA, {402}),
    (_Kind.DOWN, {408, 409, 425, 429, *range(500, 600)}),
    (_Kind.REDIRECT, range(300, 400)),
    (_Kind.REFUSED, range(400, 500)),
)
# In order: an error is of the first kind that names its class.
_CLASSES: tuple[tuple[_Kind, tuple[type[Exception], ...]], ...] = (
    (_Kind.TIMEOUT, (TimeoutError,)),
    (_Kind.CONNECTION, (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, OSError)),
    (_Kind.CONNECTION, (aiohttp.ClientHttpProxyError, aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError)),
)


def why_refused(status: int, headers: Mapping[str, str], body: object, endpoint: Endpoint) -> CallFailed:
    """What a status and the body that came with it mean, and whether the call may be tried again."""
    error = body.get("error", body) if isinstance(body, dict) else body
    is_zai = "z.ai" in endpoint.url or "bigmodel.cn" in endpoint.url
    kind = _Kind.QUOTA if is_zai and _words(error)[0] in _ZAI_QUOTA else _kind(error, status)
    return _failed(kind, endpoint, status=status, said=_words(error)[2], retry_after_s=retry_after_s(headers))


def why_broken(failure: StreamFailed, endpoint: Endpoint) -> CallFailed:
    """The same of an error that a stream reports after its status was 200."""
    code, kind, _ = _words(failure.error)
    status = _STATUS_OF_CODES.get(code) or _STATUS_OF_CODES.get(kind)
    if status is None and len(code) == 3 and code.isdecimal() and 400 <= int(code) < 600:
        status = int(code)  # OpenRouter sends the status itself
    said = _words(failure.error)[2] or str(failure)
    return _failed(_kind(failure.error, status), endpoint, status=status, said=said)


def why_endless(most_bytes: int, endpoint: Endpoint) -> CallFailed:
    """An answer that is longer than any real one: the model repeats itself."""
    most = f"{most_bytes // 1024 // 1024} MiB"
    return _refused(f"{endpoint.name} ({endpoint.model}) wrote more than {most}; set its `max_output_tokens`")


def why_failed(error: Exception, endpoint: Endpoint) -> CallFailed:
    """The same of a connection that broke, and of an answer that is none."""
    if isinstance(error, aiohttp.ClientHttpProxyError) and error.status == 407:
        return _failed(_Kind.CONNECTION, endpoint, said="the proxy asks for a password")
    kind = next((kind for kind, classes in _CLASSES if isinstance(error, classes)), _Kind.UNREADABLE)
    match error:
        case aiohttp.ClientConnectorError():
            said = str(error.os_error)
        case aiohttp.ClientHttpProxyError():
            said = f"the proxy answers HTTP {error.status}"
        case aiohttp.ClientResponseError():
            said = error.message
        case _:
            said = str(error)
    return _failed(kind, endpoint, said=said or type(error).__name__)


def unusable(said: Said, endpoint: Endpoint, *, is_empty: bool) -> CallFailed | None:
    """What is wrong with an answer that arrived without an error; None if nothing is."""
    who = f"{endpoint.name} ({endpoint.model})"
    if said.finish == "withheld":
        return _refused(f"{who} declined to answer" + (f": {said.refusal[:_SAID_CHARS]}" if said.refusal else ""))
    if not said.is_whole or said.finish == "broken":
        return _unavailable(f"{who}: the answer broke off", may_retry=True)
    if is_empty and said.finish == "length":
        return _refused(f"{who} used up its output tokens before it said anything; raise the limit")
    if is_empty:
        return CallFailed(ModelRefused(f"{who} gave an empty answer twice"), retry="once")
    return None


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """What the provider asks to wait; None where it says nothing that makes sense."""
    milliseconds, raw = headers.get("retry-after-ms"), headers.get("retry-after", "")
    try:
        seconds = float(milliseconds) / 1e3 if milliseconds else float(raw)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(raw) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError):  # nothing, no date, or one without a time zone
            return None
    return min(seconds, _LONGEST_RETRY_AFTER_S) if seconds >= 0 else None  # no NaN, either


def _kind(error: object, status: int | None) -> _Kind:
    code, kind, message = _words(error)
    for word in (code, kind):
        if word in _CODES:
            return _CODES[word]
    for meaning, phrases in _WORDS:
        if any(phrase in message.lower() for phrase in phrases):
            return meaning
    if status == 403 and _is_moderated(error):
        return _Kind.REFUSED
    if status is not None:
        return next((meaning for meaning, statuses in _STATUSES if status in statuses), _Kind.UNREADABLE)
    return _Kind.UNREADABLE


def _words(error: object) -> tuple[str, str, str]:
    """An error's code, type and message, as far as it has them; some codes are numbers."""
    if not isinstance(error, dict):
        return "", "", error if isinstance(error, str) else ""
    code, kind, message = (error.get(name) for name in ("code", "type", "message"))
    return str(code or ""), str(kind or ""), message if isinstance(message, str) else ""


def _is_moderated(error: object) -> bool:
    """OpenRouter refuses what a moderator flagged with a 403, and says so in `metadata`."""
    metadata: Any = error.get("metadata") if isinstance(error, dict) else None
    return isinstance(metadata, dict) and ("flagged_input" in metadata or "reasons" in metadata)


def _failed(
    kind: _Kind, endpoint: Endpoint, *, status: int | None = None, said: str = "", retry_after_s: float | None = None
) -> CallFailed:
    where, who, url = endpoint.name, f"{endpoint.name} ({endpoint.model})", _without_password(endpoint.url)
    number, said = f" (HTTP {status})" if status else "", _shortened(said, endpoint)
    key_is = "may not be used for this model" if status == 403 else "was refused" if endpoint.api_key else "is missing"
    text = {
        _Kind.TOO_LONG: f"{who}: the conversation is longer than this model can read{number}{said}",
        _Kind.KEY: f"{who}: the API key {key_is}{number}; check `api_key` of this model in the configuration",
        _Kind.NOT_FOUND: f"{where}: there is no model {endpoint.model!r} at {url}{number}; check `model` and "
        "`base_url` in the configuration",
        _Kind.QUOTA: f"{who}: the account's quota or credit is used up{number}{said}",
        _Kind.TIMEOUT: f"{who} did not answer in time",
        _Kind.CONNECTION: f"{who}: the connection to {url} failed{said}",
        _Kind.DOWN: f"{who} is overloaded or down{number}{said}",
        _Kind.REDIRECT: f"{where}: {url} redirects{number}; set `base_url` to where it leads",
        _Kind.REFUSED: f"{who} refused the request{number}{said}",
        _Kind.UNREADABLE: f"{who} gave an answer that cannot be read{said}",
    }[kind]
    is_transient = kind in {_Kind.TIMEOUT, _Kind.CONNECTION, _Kind.DOWN, _Kind.UNREADABLE}
    is_final = kind in {_Kind.TOO_LONG, _Kind.REFUSED}
    failed = _refused(text) if is_final else _unavailable(text, retry_after_s, may_retry=is_transient)
    failed.error.about = _ABOUT.get(kind)
    return failed


def _unavailable(message: str, retry_after_s: float | None = None, *, may_retry: bool = False) -> CallFailed:
    return CallFailed(ModelUnavailable(message, retry_after_s), retry="yes" if may_retry else "never")


def _refused(message: str) -> CallFailed:
    return CallFailed(ModelRefused(message), retry="never")


def _without_password(text: str) -> str:
    """Addresses in it without their user and password, be it the server's or a proxy's."""
    return re.sub(r"(?<=://)[^\s/]*@", "", text)


def _shortened(said: str, endpoint: Endpoint) -> str:
    """The provider's own words on one line and without the key; empty where it had none."""
    line = _without_password(" ".join(said.split()))
    if endpoint.api_key:
        line = line.replace(endpoint.api_key, "***")
    return f": {line[:_SAID_CHARS]}" if line else ""
