"""The HTTP API under `/api/v1`. Most of it is loaded at its first request."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from importlib import import_module
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.services.caller import Caller
from gateway.services.chat import ChatService
from gateway.web.api.direct_chat import DirectChat
from gateway.web.api.idempotency import IdempotentWrites, RequestStore
from gateway.web.auth import CALLER
from gateway.web.lazy import Lazy
from gateway.web.pages import problem_response

if TYPE_CHECKING:
    from gateway.services.operator_services import OperatorServices

PATH = "/api/v1"
_ONLY_KEYS = "Send an API key as `Authorization: Bearer …`; the page Keys makes one for you."


class Api:
    """The API, and who holds a key of it."""

    def __init__(self, chat: ChatService, store: RequestStore, services: Callable[[], OperatorServices]) -> None:
        """The chat answers from the start; `services` gives all others, once, when one is needed."""
        self._make_services = services
        load = partial(import_module, "gateway.web.api.application")
        routes: Lazy[ASGIApp] = Lazy(load, lambda: load().make_fastapi(self.services))
        self._app = IdempotentWrites(DirectChat(routes, chat, self._is_in_force), store)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; of people who have signed in, only the owners': the pages of the others do not ask here."""
        caller = scope.get(CALLER)
        if isinstance(caller, Caller) and caller.signed_in is not None and not caller.is_operator:
            await problem_response(scope, 403, _ONLY_KEYS)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    @cached_property
    def services(self) -> OperatorServices:
        """What the API and the pages ask."""
        return self._make_services()

    async def caller(self, key: str) -> Caller | None:
        """Who holds the API key; None where it is wrong or revoked."""
        return await self.services.keys.caller(key)

    async def person(self, user_id: str) -> Caller | None:
        """Who has signed in to the pages; None where they have no access any more."""
        return await self.services.sign_ins.caller(user_id)

    async def may_stay(self, user_id: str) -> bool:
        """Whether who has signed in still has access."""
        return await self.person(user_id) is not None

    async def _is_in_force(self, caller: Caller) -> bool:
        return caller.key_id is None or await self.services.keys.is_in_force(caller)
