"""Personalities: who can answer, and an editor for what they are made of."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.domain.personalities.editing import PersonalityChanged
from gateway.errors import EthosError
from gateway.memory.history import difference
from gateway.web.dashboard.flash import Undo
from gateway.web.dashboard.page import BASE, Page
from gateway.web.dashboard.page_context import PageContext
from gateway.web.forms import Form

PATH = f"{BASE}/personalities"


class PersonalitiesPage:
    """The list, the editor and the form for a new one."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._service = context.services.personalities

    async def show(self, request: Request) -> Response:
        """All of them."""
        return await self._list(request, Form())

    async def create(self, request: Request, form: Form) -> Response:
        """Make one, and go on to its editor."""
        personality_id = form.get("id").strip()
        try:
            made = await self._service.create(
                self._context.caller,
                personality_id,
                name=form.get("name").strip() or None,
                description=form.get("description").strip(),
                copy_of=form.get("copy_of") or None,
            )
        except EthosError as error:
            return await self._list(request, form, problem=str(error))
        undo = _undo(made.personality.id, made.version)
        return self._context.go(
            request, f"{PATH}/{made.personality.id}", f"{made.personality.id} is made. Say now who that is.", undo=undo
        )

    async def edit(self, request: Request) -> Response:
        """The editor."""
        personality_id = request.path_params["id"]
        files = await self._service.get(self._context.caller, personality_id)
        form = Form([("prompt", files.prompt), ("settings", files.settings), ("version", files.version)])
        return self._editor(request, personality_id, form)

    async def save(self, request: Request, form: Form) -> Response:
        """Put both texts in place, if they are valid and still the version that was read."""
        personality_id = request.path_params["id"]
        try:
            saved = await self._service.update(
                self._context.caller,
                personality_id,
                prompt=form.get("prompt"),
                settings=form.get("settings"),
                expected_version=form.get("version"),
            )
        except PersonalityChanged as changed:
            now = changed.current
            newer = Form([*form.without("version").fields, ("version", now.version)])
            theirs = difference(now.prompt + now.settings, form.get("prompt") + form.get("settings"))
            problem = (
                "The files have changed while you were writing. Below stands what saving now would change in them."
            )
            return self._editor(request, personality_id, newer, problem=problem, diff=theirs)
        except EthosError as error:
            return self._editor(request, personality_id, form, problem=str(error))
        undo = _undo(personality_id, saved.version)
        return self._context.go(
            request, PATH, f"{personality_id} is saved, and counts from the next turn on.", undo=undo
        )

    async def undo(self, request: Request, form: Form) -> Response:
        """Bring back what stood there before."""
        personality_id = form.get("id")
        try:
            await self._service.undo(self._context.caller, personality_id, form.get("version"))
        except EthosError as error:
            return self._context.go(request, PATH, str(error), is_problem=True)
        return self._context.go(request, PATH, f"{personality_id} is as it was before.")

    async def _list(self, request: Request, form: Form, *, problem: str | None = None) -> Response:
        return self._context.render(
            request,
            "personalities/index.html",
            title=PAGE.title,
            status=200 if problem is None else 409,
            personalities=await self._service.all(self._context.caller),
            default=self._context.sources.config.current.personality,
            typed=dict(form.fields),
            problem=problem,
        )

    def _editor(
        self, request: Request, personality_id: str, form: Form, *, problem: str | None = None, diff: str = ""
    ) -> Response:
        return self._context.render(
            request,
            "personalities/edit.html",
            title=f"Edit {personality_id}",
            trail=[(PAGE.title, PATH)],
            status=200 if problem is None else 409,
            id=personality_id,
            prompt=form.get("prompt"),
            settings=form.get("settings"),
            version=form.get("version"),
            problem=problem,
            diff=diff,
        )


def _undo(personality_id: str, version: str) -> Undo:
    return Undo(action=f"{PATH}/undo", fields=[("id", personality_id), ("version", version)])


def _routes(context: PageContext) -> Sequence[Route]:
    page = PersonalitiesPage(context)
    return [
        Route("/personalities", page.show),
        Route("/personalities/create", context.form_handler(page.create), methods=["POST"]),
        Route("/personalities/undo", context.form_handler(page.undo), methods=["POST"]),
        Route("/personalities/{id}", page.edit),
        Route("/personalities/{id}", context.form_handler(page.save), methods=["POST"]),
    ]


PAGE = Page(name="personalities", title="Personalities", icon="personalities", position=50, routes=_routes)
