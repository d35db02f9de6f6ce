"""The files of a personality and a user, as they are now."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from gateway.errors import EthosError
from gateway.sdk.models.memory import Change, Document
from gateway.web.dashboard.page_context import PageContext
from gateway.web.dashboard.pages.memory.choice import Choice, choice_of
from gateway.web.markdown import is_too_long, to_html

LATEST_CHANGES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCard:
    """A file on the page.

    Attributes:
        document: None where it cannot be shown, and `problem` says why.
        html: None where the text is shown as it was written.
    """

    choice: Choice
    document: Document | None = None
    html: Markup | None = None
    changes: Sequence[Change] = ()
    problem: str | None = None


class MemoryDocuments:
    """The start of the page."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._service = context.services.memory

    async def show(self, request: Request) -> Response:
        """Both files; a user and a personality that are not chosen are the first user and the default one."""
        names = await self._context.sources.naming.labels()
        asked = choice_of(request.query_params)
        choice = Choice(
            personality=asked.personality or self._context.sources.config().personality,
            user=asked.user or next(iter(names), None),
        )
        is_raw = request.query_params.get("view") == "raw"
        stores = [Choice(personality=choice.personality, user=choice.user, store="memory")]
        if choice.user is not None:
            stores.insert(0, replace(stores[0], store="user"))
        waiting = await self._service.proposals(self._context.caller)
        return self._context.render(
            request,
            "memory/index.html",
            title="Memory",
            choice=choice,
            users=names if choice.user in names or choice.user is None else {choice.user: choice.user, **names},
            personalities=[one.id for one in self._context.sources.personalities.list()],
            cards=[await self._card(one, is_raw=is_raw) for one in stores],
            is_raw=is_raw,
            names=names,
            waiting=len(waiting),
        )

    async def _card(self, choice: Choice, *, is_raw: bool) -> FileCard:
        try:
            document = await self._service.get(self._context.caller, choice.wanted)
            changes = await self._service.history(self._context.caller, choice.wanted, limit=LATEST_CHANGES)
            self._context.live.watch("memory", Path(document.path))
        except EthosError as error:  # the other file can still be looked at
            return FileCard(choice=choice, problem=str(error))
        if is_raw or is_too_long(document.content):
            return FileCard(choice=choice, document=document, changes=changes)
        html = await asyncio.to_thread(to_html, document.content)
        return FileCard(choice=choice, document=document, html=html, changes=changes)
