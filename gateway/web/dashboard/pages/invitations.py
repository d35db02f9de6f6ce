"""Invitations: how people come to a password for these pages, how they change it, and how an owner ends it."""

from __future__ import annotations

from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from gateway.sdk.models.people import ROLES, Invitation, Role
from gateway.services.caller import ServiceError
from gateway.web.dashboard.page_context import PageContext
from gateway.web.dashboard.pages import sign_ins
from gateway.web.dashboard.pages.people import PAGE
from gateway.web.forms import Form


@PAGE.form("/invite", back=PAGE.path)
async def invite(context: PageContext, request: Request, form: Form) -> Response:
    """Make a link for a person, and show it once."""
    made = await context.services.logins.invite(context.caller, form.get("user"))
    return await _shown(context, request, made)


@PAGE.form("/invite-new", back=PAGE.path)
async def invite_new(context: PageContext, request: Request, form: Form) -> Response:
    """The same for somebody who has no account here."""
    role: Role = next((one for one in ROLES if one == form.get("role")), "member")
    made = await context.services.logins.invite_new(context.caller, form.get("name"), role)
    context.live.changed("people")
    return await _shown(context, request, made)


@PAGE.form("/end-sign-ins", back=PAGE.path)
async def end_sign_ins(context: PageContext, request: Request, form: Form) -> Response:
    """End the password of a person and sign them out, after a question."""
    person = await context.services.people.show(context.caller, form.get("user"))
    back = _of(person.id)
    if not form.is_confirmed:
        return context.ask(
            request,
            form,
            title=f"End all sign-ins of {person.name}?",
            text="Their password, second factor and link are deleted, and their browsers are signed out. They can sign "
            "in again when you invite them. Their chats go on.",
            yes="End them",
            back=back,
        )
    await context.services.logins.end(context.caller, person.id)
    return context.go(request, back, f"{person.name} is signed out everywhere, and has no password.")


@sign_ins.PAGE.form("/change", back=sign_ins.PAGE.path)
async def change(context: PageContext, request: Request, form: Form) -> Response:
    """On to the page on which all of it is set up again, once the password and a code were shown."""
    try:
        path = await context.services.logins.change(context.caller, form.get("password"), form.get("code"))
    except ServiceError as error:
        text = str(error)
        return context.go(request, sign_ins.PAGE.path, f"{text[:1].upper()}{text[1:]}.", is_problem=True)
    return RedirectResponse(path, status_code=303)


async def _shown(context: PageContext, request: Request, made: Invitation) -> Response:
    person = await context.services.people.show(context.caller, made.user)
    trail = [(PAGE.title, PAGE.path), (person.name, _of(person.id))]
    title = f"A link for {person.name}"
    return context.render(request, "people/invited.html", title=title, trail=trail, made=made, back=_of(person.id))


def _of(user_id: str) -> str:
    return f"{PAGE.path}/person?{urlencode({'user': user_id})}"
