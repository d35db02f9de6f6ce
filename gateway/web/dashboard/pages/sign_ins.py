"""Sign-ins: the browsers that may open this dashboard, and the end of each."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from gateway.people.sign_ins import SignIn
from gateway.web.auth import SIGN_IN
from gateway.web.dashboard.page import Page
from gateway.web.dashboard.page_context import PageContext
from gateway.web.forms import Form

PAGE = Page(name="sign-ins", title="Sign-ins", icon="sign-ins", position=34, least="guest")

# By the order in which a name decides: every browser also claims to be those behind it.
_BROWSERS = (("Edg", "Edge"), ("OPR/", "Opera"), ("Firefox/", "Firefox"), ("Chrom", "Chrome"), ("Safari/", "Safari"))
_SYSTEMS = (
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
)


@PAGE.route()
async def show(context: PageContext, request: Request) -> Response:
    """The signed-in browsers that the caller may see, the last seen first."""
    login = await context.services.logins.state(context.caller)
    service, current = context.services.sign_ins, _current(request)
    rows = [
        (one, browser_name(one.browser), one.id == current, service.user_of(one))
        for one in await service.listed(context.caller)
    ]
    return context.render(
        request, "sign-ins/index.html", title=PAGE.title, rows=rows, names=await context.names(), login=login
    )


@PAGE.form("/end", back=PAGE.path)
async def end(context: PageContext, request: Request, form: Form) -> Response:
    """Sign one browser out."""
    sign_in_id = form.get("id")
    await context.services.sign_ins.end(context.caller, sign_in_id)
    if sign_in_id == _current(request):
        return RedirectResponse("/login", status_code=303)
    return context.go(request, PAGE.path, "The browser is signed out.")


@PAGE.form("/end-others")
async def end_others(context: PageContext, request: Request, _form: Form) -> Response:
    """Sign all others out."""
    service = context.services.sign_ins
    others = [one for one in await service.listed(context.caller) if one.id != _current(request)]
    for one in others:
        await service.end(context.caller, one.id)
    count = "1 browser is" if len(others) == 1 else f"{len(others)} browsers are"
    return context.go(request, PAGE.path, f"{count} signed out.")


def browser_name(user_agent: str) -> str:
    """What people call a browser, as `Firefox on Linux`; what it says itself where that is not known."""
    names = [name for mark, name in _BROWSERS if mark in user_agent][:1]
    systems = [name for mark, name in _SYSTEMS if mark in user_agent][:1]
    return " on ".join(names + systems) or user_agent or "A browser that does not say its name"


def _current(request: Request) -> str | None:
    sign_in: SignIn | None = request.scope[SIGN_IN]
    return None if sign_in is None else sign_in.id
