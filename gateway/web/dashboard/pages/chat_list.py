"""The list beside a conversation: searched, and each conversation renamed, pinned and deleted where it stands."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from gateway.sdk.models.sessions import Session, UpdateSession
from gateway.services.caller import NotFound
from gateway.web.dashboard.chats import chats
from gateway.web.dashboard.page_context import PageContext, own_path
from gateway.web.dashboard.pages.chat import PAGE
from gateway.web.dashboard.pages.sessions import MAX_TITLE_CHARS
from gateway.web.forms import Form


@PAGE.route("/{session}/list")
async def show(context: PageContext, request: Request) -> Response:
    """The list alone, for a page that is open; `new` stands for none that is."""
    try:
        current = await context.services.sessions.get(context.caller, request.path_params["session"])
    except NotFound:
        current = None
    query = request.query_params.get("q", "")
    here = PAGE.path if current is None else f"{PAGE.path}/{current.id}"
    found = await chats(context, query, current)
    return context.render(request, "chat/list.html", title="Conversations", chats=found, here=here, open_title="")


@PAGE.form("/rename", back=PAGE.path)
async def rename(context: PageContext, request: Request, form: Form) -> Response:
    """Another title, for all versions; turns do not change it any more."""
    title, back = " ".join(form.get("title").split()), own_path(form.get("back"), PAGE.path)
    if not title or len(title) > MAX_TITLE_CHARS or not title.isprintable():
        text = f"The title stays: a new one needs 1 to {MAX_TITLE_CHARS} characters."
        return context.go(request, back, text, is_problem=True)
    await _update(context, form, UpdateSession(title=title))
    return context.go(request, back)


@PAGE.form("/pin", back=PAGE.path)
async def pin(context: PageContext, request: Request, form: Form) -> Response:
    """Keep it on top of the list, or no longer."""
    await _update(context, form, UpdateSession(is_pinned=form.get("pinned") == "yes"))
    return context.go(request, own_path(form.get("back"), PAGE.path))


@PAGE.form("/delete", back=PAGE.path)
async def delete(context: PageContext, request: Request, form: Form) -> Response:
    """Forget it with all its versions, after a question."""
    versions = await context.services.sessions.all_versions(context.caller, form.get("session"))
    here = own_path(form.get("back"), PAGE.path)
    if not form.is_confirmed:
        return context.ask(
            request, form, title="Delete this conversation?", text=_what_goes(versions), yes="Delete it", back=here
        )
    for one in versions:
        await context.services.sessions.delete(context.caller, one.id)
    context.live.changed("messages")
    is_open = any(here == f"{PAGE.path}/{one.id}" for one in versions)
    return context.go(request, PAGE.path if is_open else here, "The conversation is deleted.")


def _what_goes(versions: Sequence[Session]) -> str:
    messages = sum(one.messages for one in versions)
    all_of_them = f" in {len(versions)} versions" if len(versions) > 1 else ""
    return (
        f"“{versions[0].title or 'New conversation'}” is forgotten with its {messages} messages{all_of_them}, and no "
        "search finds them any more. What the memory holds stays. This cannot be undone; export the transcript first "
        "if you may want it again."
    )


async def _update(context: PageContext, form: Form, update: UpdateSession) -> None:
    for one in await context.services.sessions.all_versions(context.caller, form.get("session")):
        await context.services.sessions.update(context.caller, one.id, update)
    context.live.changed("messages")
