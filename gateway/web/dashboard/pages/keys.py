"""Keys: those of the HTTP API, made with what each may do, shown once, and ended."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response

from gateway.services.caller import OF_A_PERSON, Permission, ServiceError
from gateway.services.keys import ABOUT, MAX_NAME_CHARS
from gateway.web.dashboard.page import Page
from gateway.web.dashboard.page_context import PageContext
from gateway.web.forms import Form

PAGE = Page(name="keys", title="API keys", icon="keys", position=32, least="member")


@PAGE.route()
async def show(context: PageContext, request: Request) -> Response:
    """All that the caller may see, those in force first."""
    keys = await context.services.keys.all(context.caller)
    return context.render(
        request,
        "keys/index.html",
        title=PAGE.title,
        keys=sorted(keys, key=lambda key: key.revoked_at is not None),
        names=await context.names(),
    )


@PAGE.route("/new")
async def new(context: PageContext, request: Request) -> Response:
    """The form for another one."""
    return await _form(context, request, Form())


@PAGE.form("/new")
async def create(context: PageContext, request: Request, form: Form) -> Response:
    """Make one; the page with its text is the only one that ever shows it."""
    try:
        made = await context.services.keys.create(
            context.caller, form.get("name"), form.all("scope"), form.get("user").strip() or None
        )
    except ServiceError as error:
        return await _form(context, request, form, problem=str(error))
    trail = [(PAGE.title, PAGE.path)]
    return context.render(request, "keys/made.html", title=f"The key {made.name}", trail=trail, key=made)


@PAGE.form("/end", back=PAGE.path)
async def end(context: PageContext, request: Request, form: Form) -> Response:
    """End one, after a question."""
    name = form.get("name")
    if not form.is_confirmed:
        text = "Programs that use it are refused from now on. This cannot be undone."
        return context.ask(request, form, title=f"End the key {name}?", text=text, yes="End it", back=PAGE.path)
    ended = await context.services.keys.revoke(context.caller, form.get("key"))
    return context.go(request, PAGE.path, f"The key {ended.name} has ended.")


async def _form(context: PageContext, request: Request, form: Form, *, problem: str | None = None) -> Response:
    return context.render(
        request,
        "keys/form.html",
        title="Make a key",
        trail=[(PAGE.title, PAGE.path)],
        status=200 if problem is None else 409,
        problem=problem,
        name=form.get("name"),
        user=form.get("user"),
        chosen=set(form.all("scope")),
        max_name_chars=MAX_NAME_CHARS,
        names=await context.names(),
        groups=_groups(context),
        of_a_person=OF_A_PERSON,
    )


def _groups(context: PageContext) -> Mapping[str, Mapping[Permission, str]]:
    """The scopes that the caller may give, in their groups."""
    found = {
        group: {scope: text for scope, text in scopes.items() if context.caller.may(scope)}
        for group, scopes in ABOUT.items()
    }
    return {group: scopes for group, scopes in found.items() if scopes}
