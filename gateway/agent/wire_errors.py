"""What a failed call means: every error of the model library, its SDKs and its HTTP client in our words, once.

What reaches us is nearly always one of pydantic-ai's categories. The SDKs' own errors, and those of HTTP, come out
where the library does not look, mostly in the middle of a stream. `test_models_errors.py` walks all classes of them.

No message repeats a key: the text of a 401 or 403, in which providers quote part of it, is left out, and the key itself
is struck out of all others.
"""

from __future__ import annotations

from collections.abc import Container
from enum import Enum, auto

from pydantic_ai import exceptions as library
from pydantic_ai.messages import ModelResponse

from gateway.agent.models import CallFailed, Endpoint
from gateway.errors import ModelRefused, ModelUnavailable

NO_KEY = "no-key"  # the SDKs want something to send
_SAID_CHARS = 300


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


# In order: an error is of the first kind that names its class, or else of the first that holds its status. Classes go
# first since they know more: a 400 may be an empty account, a 403 a moderator's word.
_CLASSES: tuple[tuple[_Kind, tuple[type[Exception], ...]], ...] = (
    (_Kind.TOO_LONG, (library.ModelContextWindowExceededError,)),
    (_Kind.KEY, (library.ModelAuthenticationError,)),
    (_Kind.NOT_FOUND, (library.ModelNotFoundError,)),
    (_Kind.QUOTA, (library.ModelQuotaExceededError,)),
    (_Kind.TIMEOUT, (library.ModelTimeoutError, library.ModelRequestTimeout, TimeoutError)),
    (_Kind.CONNECTION, (library.ModelConnectionError, OSError)),
    (_Kind.DOWN, (library.ModelRateLimitError, library.ModelUnavailableError, library.ModelServerError)),
    (_Kind.REFUSED, (library.ModelRequestRejectedError, library.ContentFilterError, library.UserError)),
)
# Those of the SDKs and of their HTTP client, by name: for their classes, SDKs that nobody uses would be loaded.
_NAMES = {
    "APITimeoutError": _Kind.TIMEOUT,
    "TimeoutException": _Kind.TIMEOUT,
    "APIConnectionError": _Kind.CONNECTION,
    "TransportError": _Kind.CONNECTION,
    "CredentialsError": _Kind.KEY,
}
_STATUSES: tuple[tuple[_Kind, Container[int]], ...] = (
    (_Kind.TOO_LONG, {413}),
    (_Kind.KEY, {401, 403}),
    (_Kind.NOT_FOUND, {404}),
    (_Kind.QUOTA, {402}),
    (_Kind.DOWN, {408, 409, 425, 429, *range(500, 600)}),
    (_Kind.REDIRECT, range(300, 400)),
    (_Kind.REFUSED, range(400, 500)),
)


def why_failed(error: Exception, endpoint: Endpoint) -> CallFailed:
    """What to tell of an error, and whether the call may be tried again."""
    status = _status(error)
    kind = _kind(error, status)
    where, who = endpoint.name, f"{endpoint.name} ({endpoint.model})"
    number, said = f" (HTTP {status})" if status else "", _said(error, endpoint)
    key_is = "may not be used for this model" if status == 403 else "was refused" if endpoint.api_key else "is missing"
    text = {
        _Kind.TOO_LONG: f"{who}: the conversation is longer than this model can read{number}{said}",
        _Kind.KEY: f"{who}: the API key {key_is}{number}; check `api_key` of this model in the configuration",
        _Kind.NOT_FOUND: f"{where}: there is no model {endpoint.model!r} at {endpoint.url}{number}; check `model` and "
        "`base_url` in the configuration",
        _Kind.QUOTA: f"{who}: the account's quota or credit is used up{number}{said}",
        _Kind.TIMEOUT: f"{who} did not answer in time",
        _Kind.CONNECTION: f"{who}: the connection to {endpoint.url} failed{said}",
        _Kind.DOWN: f"{who} is overloaded or down{number}{said}",
        _Kind.REDIRECT: f"{where}: {endpoint.url} redirects{number}; set `base_url` to where it leads",
        _Kind.REFUSED: f"{who} refused the request{number}{said}",
        _Kind.UNREADABLE: f"{who} gave an answer that cannot be read{said}",
    }[kind]
    if kind in {_Kind.TOO_LONG, _Kind.REFUSED}:
        return _refused(text)
    is_transient = kind in {_Kind.TIMEOUT, _Kind.CONNECTION, _Kind.DOWN, _Kind.UNREADABLE}
    return _unavailable(text, _retry_after_s(error), may_retry=is_transient)


def _kind(error: Exception, status: int | None) -> _Kind:
    for kind, classes in _CLASSES:
        if isinstance(error, classes):
            return kind
    for ancestor in type(error).__mro__:
        if ancestor.__name__ in _NAMES:
            return _NAMES[ancestor.__name__]
    if status is not None:
        for kind, statuses in _STATUSES:
            if status in statuses:
                return kind
    return _Kind.UNREADABLE


def unusable(response: ModelResponse, endpoint: Endpoint, *, is_empty: bool) -> CallFailed | None:
    """What is wrong with an answer that arrived without an error; None if nothing is.

    A stream that ends without saying why was cut: a proxy that closes the connection cleanly looks just like that.
    """
    details = response.provider_details or {}
    who = f"{endpoint.name} ({endpoint.model})"
    if response.finish_reason == "content_filter":
        refusal = details.get("refusal")
        return _refused(f"{who} declined to answer" + (f": {str(refusal)[:_SAID_CHARS]}" if refusal else ""))
    # OpenAI's token counts come in the very last chunk, Anthropic's in the first; some local servers send no reason.
    is_whole = "finish_reason" in details or (endpoint.provider == "openai" and not response.usage.unmeasured_requests)
    if not is_whole or details.get("finish_reason") == "error":
        return _unavailable(f"{who}: the answer broke off", may_retry=True)
    if is_empty and response.finish_reason == "length":
        return _refused(f"{who} used up its output tokens before it said anything; raise the limit")
    if is_empty:
        return CallFailed(ModelRefused(f"{who} gave an empty answer twice"), retry="once")
    return None


def _unavailable(message: str, retry_after_s: float | None = None, *, may_retry: bool = False) -> CallFailed:
    return CallFailed(ModelUnavailable(message, retry_after_s), retry="yes" if may_retry else "never")


def _refused(message: str) -> CallFailed:
    return CallFailed(ModelRefused(message), retry="never")


def _status(error: Exception) -> int | None:
    """The HTTP status, from the error or from the SDK's error behind it; None where there was none."""
    for candidate in (error, error.__cause__, getattr(error, "response", None)):
        status = getattr(candidate, "status_code", None)
        if isinstance(status, int) and status >= 300:
            return status
    return None


def _retry_after_s(error: Exception) -> float | None:
    return error.retry_after if isinstance(error, library.ModelAPIError) else None


def _said(error: Exception, endpoint: Endpoint) -> str:
    """The provider's own words, shortened, on one line and without the key; empty where it had none."""
    text: object = None
    body = getattr(error, "body", None)
    if isinstance(body, dict):
        inner = body.get("error", body)
        text = inner.get("message") if isinstance(inner, dict) else inner
    elif isinstance(body, str):
        text = body
    if not isinstance(text, str) or not text.strip():
        root: BaseException = error
        while root.__cause__ is not None:
            root = root.__cause__  # an SDK says "Connection error."; what it wraps says which
        text = str(root) or type(root).__name__
    line = " ".join(text.split())
    if endpoint.api_key:
        line = line.replace(endpoint.api_key, "***")
    return f": {line[:_SAID_CHARS]}"
