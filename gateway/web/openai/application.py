"""The paths of `/v1`, behind the door."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import structlog
from starlette._utils import get_route_path
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.errors import BudgetExhausted, EthosError, InvalidId, ModelRefused, ModelUnavailable, PersonalityError
from gateway.services.caller import OF_A_PERSON, Caller, NotAllowed, NotNamed, Permission
from gateway.services.chat import account_of
from gateway.services.operator_services import OperatorServices
from gateway.services.talks import Talk
from gateway.web.api.events import EventStreamResponse
from gateway.web.api.idempotency import MAX_BODY_BYTES
from gateway.web.api.problems import KINDS, RETRY_AFTER_S
from gateway.web.auth import CALLER
from gateway.web.openai.answers import Ended, Following, Piece, Said, no_model, out_of_budget
from gateway.web.openai.asked import DEFAULT_MODEL, HELPER_MODEL, Asked, read_completions, read_responses
from gateway.web.openai.completions import Completion
from gateway.web.openai.errors import OpenAIError
from gateway.web.openai.responses import ModelResponse

MODELS = "/models"
COMPLETIONS = "/chat/completions"
RESPONSES = "/responses"
RETRY_HEADER = "x-stainless-retry-count"
"""By it the clients that OpenAI publishes say that they ask again."""
_STATUSES: Mapping[int, int] = {409: 400, 422: 400, 428: 400, 501: 400}
"""What OpenAI's clients would try again, or do not know."""
LARGE_BYTES = 100_000
"""A body that takes so long to read that others would wait for it."""
MOST_ASIDES = 8
"""Side calls of one account at once; no queue bounds them."""
T = TypeVar("T")

_log = structlog.get_logger(__name__)


class OpenAIApplication:
    """Answers callers.

    Args:
        is_ending: whether the gateway ends.
    """

    def __init__(self, services: OperatorServices, is_ending: Callable[[], bool]) -> None:
        self._services = services
        self._is_ending = is_ending
        self._going_on: set[asyncio.Task[None]] = set()
        self._asides: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        try:
            response = await self._response(scope, receive)
        except OpenAIError as error:
            response = error.response()
        except EthosError as error:
            response = self._told(error).response()
        except HTTPException as error:  # too much is sent at once
            response = OpenAIError(error.status_code, error.detail, headers=error.headers).response()
        except Exception as error:  # noqa: BLE001 (a fault of ours: the log has it all, the caller nothing of it)
            _log.error("openai_request_failed", path=scope["path"], exc_info=error)
            response = OpenAIError(500, "The gateway could not answer; its log says why.").response()
        await response(scope, receive, send)

    async def close(self) -> None:
        """End what goes on behind requests. Idempotent."""
        for task in self._going_on:
            task.cancel()
        if self._going_on:
            await asyncio.wait(self._going_on)

    async def _response(self, scope: Scope, receive: Receive) -> Response:
        caller: Caller = scope[CALLER]
        method, path = scope["method"], get_route_path(scope)
        if path == MODELS or path.startswith(f"{MODELS}/"):
            _allow(method, "GET")
            _require(caller, "chat:read")
            return await self._models(caller, path.removeprefix(MODELS).strip("/"))
        if path in (COMPLETIONS, RESPONSES):
            _allow(method, "POST")
            _require(caller, "chat:read", "chat:write")
            return await self._answered(scope, receive, caller)
        raise OpenAIError(404, f"There is no /v1{path} here; there are {MODELS}, {COMPLETIONS} and {RESPONSES}.")

    # ---- models -----------------------------------------------------------------------------------------------------

    async def _models(self, caller: Caller, wanted: str) -> Response:
        """All that the caller may choose, or one of them."""
        names = [DEFAULT_MODEL]
        if await self._services.talks.may_choose(caller):
            names += [one.id for one in await self._services.personalities.all(caller)]
        names.append(HELPER_MODEL)
        models = [{"id": name, "object": "model", "created": 0, "owned_by": "ethos"} for name in names]
        if not wanted:
            return _json({"object": "list", "data": models})
        found = next((model for model in models if model["id"] == wanted), None)
        if found is None:
            raise _no_model_of(wanted)
        return _json(found)

    # ---- answers ----------------------------------------------------------------------------------------------------

    async def _answered(self, scope: Scope, receive: Receive, caller: Caller) -> Response:
        body = await _body(receive)
        is_response = get_route_path(scope) == RESPONSES
        read = read_responses if is_response else read_completions
        asked = read(body) if len(body) < LARGE_BYTES else await asyncio.to_thread(read, body)
        speaker = await self._speaker(caller, asked.user)
        if asked.is_aside:
            message, pieces = secrets.token_hex(16), self._aside(speaker, asked)
        else:
            message, pieces = await self._followed(Headers(scope=scope), caller, speaker, asked)
        created_s, model = int(datetime.now(UTC).timestamp()), asked.talk.model
        form: Completion | ModelResponse = (
            ModelResponse(message, model, created_s, behind=asked.talk.behind)
            if is_response
            else Completion(message, model, created_s, wants_usage=asked.wants_usage)
        )
        if not asked.is_streamed:
            return _json(form.whole(await _while_there(receive, _last(pieces))))
        first = await _while_there(receive, anext(pieces))
        return EventStreamResponse(form.stream(self._in_form(first, pieces)))

    async def _in_form(self, first: Piece, rest: AsyncGenerator[Piece]) -> AsyncGenerator[Piece]:
        """What a stream that has begun goes on with; what goes wrong in it is an `OpenAIError`."""
        async with contextlib.aclosing(rest):
            try:
                yield first
                async for piece in rest:
                    yield piece
            except EthosError as error:
                raise self._told(error) from error

    async def _followed(
        self, headers: Headers, caller: Caller, speaker: Caller, asked: Asked
    ) -> tuple[str, AsyncGenerator[Piece]]:
        retries, key = headers.get(RETRY_HEADER, "0"), headers.get("idempotency-key")
        is_again = retries.isdecimal() and int(retries) > 0
        try:
            begun = await self._services.talks.say(speaker, asked.talk, key=key, is_again=is_again)
        except NotAllowed as error:
            raise await self._not_chosen(speaker, asked.talk) or error from error
        except InvalidId as error:
            raise _no_model_of(asked.talk.model) from error
        following = Following(
            self._services,
            begun,
            asker=caller,
            speaker=speaker,
            is_ending=self._is_ending,
            go_on=self._go_on,
        )
        return begun.sent.message, following.pieces()

    async def _not_chosen(self, speaker: Caller, talk: Talk) -> OpenAIError | None:
        """Why the caller may not ask this model; None where that is not the reason."""
        if talk.personality is None or await self._services.talks.may_choose(speaker):
            return None
        if talk.personality not in [one.id for one in await self._services.personalities.all(speaker)]:
            return _no_model_of(talk.personality)
        text = f"This key talks as a guest, who chooses no personality; ask for the model `{DEFAULT_MODEL}`."
        return OpenAIError(403, text, param="model")

    async def _aside(self, speaker: Caller, asked: Asked) -> AsyncGenerator[Piece]:
        """The answer to what a front end asks about a talk."""
        talk, who = asked.talk, account_of(speaker)
        if self._asides[who] >= MOST_ASIDES:
            raise OpenAIError(429, "Too many such requests at once; ask again later.", headers={"retry-after": "1"})
        self._asides[who] += 1
        try:
            reply = await self._services.talks.aside(
                speaker, wishes=talk.wishes, text=talk.text, most_tokens=asked.most_tokens
            )
        finally:
            self._asides -= Counter((who,))
        text, used = reply.message.text, reply.usage
        yield Said(text)
        yield Ended(
            text=text,
            input_tokens=used.input_tokens,
            output_tokens=used.output_tokens,
            cached_tokens=used.cached_tokens,
            is_cut=used.is_cut,
        )

    async def _speaker(self, caller: Caller, user: str | None) -> Caller:
        """As whom the caller talks. Who may change people names one by `user`; for others it is a mere label."""
        may_name = caller.user_id is None and caller.may("people:write")
        if not user or not may_name:
            return caller
        try:
            user_id = await self._services.naming.user(caller, user)
        except NotNamed as error:
            text = f"{error}. This key may name people, so `user` must be one of them; leave it out to talk yourself."
            raise OpenAIError(400, text[0].upper() + text[1:], param="user", code="unknown_user") from error
        permissions = OF_A_PERSON if caller.permissions is None else OF_A_PERSON & caller.permissions
        return Caller(name=caller.name, permissions=permissions, user_id=user_id)

    def _told(self, error: EthosError) -> OpenAIError:
        """What went wrong, as far as the caller is told."""
        match error:
            case BudgetExhausted():
                return out_of_budget(self._services.talks.budget_turns_in_s())
            case ModelUnavailable():
                return no_model()
            case ModelRefused():
                return OpenAIError(400, f"The model does not answer this: {error}.")
            case PersonalityError():
                return _no_model_of("", str(error))
        kind = next((kind for known, kind in KINDS.items() if isinstance(error, known)), None)
        if kind is None:
            _log.error("openai_request_failed", exc_info=error)
            return OpenAIError(500, "The gateway could not answer; its log says why.")
        text = str(error)
        headers = {"retry-after": str(RETRY_AFTER_S)} if kind.status == 503 else None
        return OpenAIError(_STATUSES.get(kind.status, kind.status), f"{text[:1].upper()}{text[1:]}.", headers=headers)

    def _go_on(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(_logged(work), name="talk that a program left")
        self._going_on.add(task)
        task.add_done_callback(self._going_on.discard)


async def _logged(work: Coroutine[object, object, None]) -> None:
    try:
        await work
    except EthosError as error:
        _log.warning("openai_not_stopped", error=str(error))


def _allow(method: str, allowed: str) -> None:
    if method != allowed:
        raise OpenAIError(405, f"This path takes {allowed} only.", headers={"allow": allowed})


def _require(caller: Caller, *permissions: Permission) -> None:
    for permission in permissions:
        if not caller.may(permission):
            text = f"This key has no scope `{permission}`; make one that has: `ethos keys create`."
            raise OpenAIError(403, text, code="insufficient_permissions")


def _no_model_of(name: str, text: str = "") -> OpenAIError:
    text = text or f"there is no model {name!r} for this key"
    return OpenAIError(
        404, f"{text[:1].upper()}{text[1:]}; `/v1/models` lists all.", param="model", code="model_not_found"
    )


async def _body(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise OpenAIError(400, "The request broke off.")
        body += message.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            raise OpenAIError(413, f"A request may have {MAX_BODY_BYTES // 1024 // 1024} MiB at most.")
        if not message.get("more_body", False):
            return bytes(body)


async def _while_there(receive: Receive, work: Awaitable[T]) -> T:
    """What comes of the work; it is cancelled where the program goes away before.

    Raises:
        OpenAIError: the program has gone, and reads this no more.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise OpenAIError(499, "The request broke off.")
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _last(pieces: AsyncGenerator[Piece]) -> Ended:
    async with contextlib.aclosing(pieces):
        async for piece in pieces:
            if isinstance(piece, Ended):
                return piece
    raise OpenAIError(500, "The gateway could not answer; its log says why.")  # pragma: no cover (a stream has an end)


def _json(content: dict[str, Any]) -> Response:
    return Response(json.dumps(content, ensure_ascii=False).encode("utf-8", "replace"), media_type="application/json")
