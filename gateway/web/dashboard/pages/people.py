"""People: everybody with their accounts, links and roles; who asks to be let in; export and erasure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from gateway.sdk.models.people import ROLES, ChannelAccess, Link, Person, Role
from gateway.services.people import Place, place_of_person
from gateway.web.dashboard.flash import Undo
from gateway.web.dashboard.page import Page
from gateway.web.dashboard.page_context import PageContext
from gateway.web.downloads import download
from gateway.web.forms import CONFIRMED_FIELD, Form

PAGE = Page(name="people", title="People", icon="people", position=30)

PEOPLE = 50
WORDS: Mapping[str | None, tuple[str, str]] = {
    "owner": ("Owner", "ok"),
    "member": ("Member", ""),
    "guest": ("Guest", ""),
    "revoked": ("Revoked", "bad"),
    None: ("Not let in", "warn"),
}
_CAME = {
    "first-contact": "wrote here first",
    "link-code": "linked by the person, with a code",
    "link-operator": "linked by an operator",
    "operator": "the operator, or added by the operator",
    "imported": "imported",
    "hand": "added to the map by hand",
}


# ---- showing --------------------------------------------------------------------------------------------------------


@PAGE.route()
async def show(context: PageContext, request: Request) -> Response:
    """Who waits, and everybody."""
    asked, caller = request.query_params, context.caller
    query = asked.get("q", "").strip()
    after = _place_of(asked.get("after", ""))
    people = await context.services.people.list(caller, query=query, limit=PEOPLE + 1, after=after)
    older = _address(q=query, after=_cursor(people[PEOPLE - 1])) if len(people) > PEOPLE else None
    return context.render(
        request,
        "people/index.html",
        title=PAGE.title,
        waiting=await context.services.pairing.waiting(caller),
        people=[(person, _known_since(person)) for person in people[:PEOPLE]],
        query=query,
        newest=_address(q=query) if after else None,
        older=older,
        **_words(),
    )


@PAGE.route("/person")
async def person(context: PageContext, request: Request) -> Response:
    """One person."""
    person = await context.services.people.show(context.caller, request.query_params.get("user", ""))
    return context.render(
        request,
        "people/person.html",
        title=person.name,
        trail=[(PAGE.title, PAGE.path)],
        person=person,
        names=await context.sources.naming.labels(),
        links=[link for link in person.links if link.undone_at is None],
        kept_apart=context.services.people.kept_apart,
        login=await context.services.logins.state(context.caller, person.id),
        back=_of(person.id),
        **_words(),
    )


# ---- who asks to be let in ------------------------------------------------------------------------------------------


@PAGE.form("/decide", back=PAGE.path)
async def decide(context: PageContext, request: Request, form: Form) -> Response:
    """Let a stranger in, or refuse them, which is asked first."""
    who, caller = form.get("who"), context.caller
    if form.get("do") == "refuse":
        asking = next((one for one in await context.services.pairing.waiting(caller) if one.code == who), None)
        if asking is not None and not form.is_confirmed:
            return context.ask(
                request,
                form,
                title=f"Refuse {asking.label or asking.account}?",
                text=f"{asking.account} is told so, gets no other code for a week, and what they wrote is not "
                "answered.",
                yes="Refuse",
                back=PAGE.path,
            )
        decided = await context.services.pairing.refuse(caller, who)
        return context.go(request, PAGE.path, decided.text)
    decided = await context.services.pairing.approve(caller, who, _role(form.get("role")))
    undo = Undo(action=f"{PAGE.path}/revoke", fields=[("user", decided.account), (CONFIRMED_FIELD, "yes")])
    return context.go(request, PAGE.path, decided.text, undo=undo)


# ---- what they may do -----------------------------------------------------------------------------------------------


@PAGE.form("/role", back=PAGE.path)
async def set_role(context: PageContext, request: Request, form: Form) -> Response:
    """Give a person a role."""
    role = _role(form.get("role"))
    if role is None:
        return context.go(request, PAGE.path, "Choose a role.", is_problem=True)
    before = await context.services.people.show(context.caller, form.get("user"))
    after = await context.services.people.set_role(context.caller, before.id, role)
    undo = None
    if before.role is not None and before.role != after.role:
        action = "revoke" if before.role == "revoked" else "role"
        fields = [("user", before.id), ("role", before.role), (CONFIRMED_FIELD, "yes")]
        undo = Undo(action=f"{PAGE.path}/{action}", fields=fields)
    text = f"{after.name} is {WORDS[role][0].lower()} from the next message on."
    if not any(account.access for account in after.accounts):
        text += " They have to be let in again: when they write, they are given a code."
    return context.go(request, _of(after.id), text, undo=undo)


@PAGE.form("/revoke", back=PAGE.path)
async def revoke(context: PageContext, request: Request, form: Form) -> Response:
    """Revoke all access of a person, after a question: where they were let in is forgotten."""
    person = await context.services.people.show(context.caller, form.get("user"))
    if not form.is_confirmed:
        return context.ask(
            request,
            form,
            title=f"Revoke all access of {person.name}?",
            text="None of this person's accounts is answered any more, on no channel, whatever the configuration "
            "says; their API keys open nothing. What is known of them stays. To let them in again, give them a "
            "role, and say yes when they ask.",
            yes="Revoke",
            back=_of(person.id),
        )
    await context.services.people.revoke(context.caller, person.id)
    return context.go(request, _of(person.id), f"{person.name}: access is revoked everywhere.")


# ---- who is whom ----------------------------------------------------------------------------------------------------


@PAGE.form("/link", back=PAGE.path)
async def link(context: PageContext, request: Request, form: Form) -> Response:
    """Make two users one."""
    other = form.get("other").strip()
    linked = await context.services.people.link(
        context.caller, form.get("user"), other, is_one_kept=form.get("is_one_kept") == "yes"
    )
    to = _of(linked.person.id)
    if linked.link is None:
        text = f"{other} is {linked.person.name} from the first message on."
        return context.go(request, to, text)
    undo = Undo(action=f"{PAGE.path}/unlink", fields=[("link", linked.link.id), ("user", linked.person.id)])
    text = " ".join(part for part in (_linked(linked.link), linked.kept_apart) if part)
    return context.go(request, to, text, undo=undo)


@PAGE.form("/unlink", back=PAGE.path)
async def unlink(context: PageContext, request: Request, form: Form) -> Response:
    """Take a link back; it can be made again."""
    link = await context.services.people.unlink(context.caller, form.get("link"))
    undo = Undo(
        action=f"{PAGE.path}/link",
        fields=[("user", link.survivor), ("other", link.absorbed), ("is_one_kept", "yes")],
        label="Link again",
    )
    text = "They are two people again, as before the link."
    if link.state != "undone":
        text = "It is decided. They are two people again when the answers that are being written have ended."
    return context.go(request, _of(link.survivor), text, undo=undo)


# ---- all of it, and nothing of it -----------------------------------------------------------------------------------


@PAGE.route("/export")
async def export(context: PageContext, request: Request) -> Response:
    """Everything about a person, as a file."""
    return download(await context.services.personal.export(context.caller, request.query_params.get("user", "")))


@PAGE.route("/erase")
async def ask_to_erase(context: PageContext, request: Request) -> Response:
    """Says what will be gone, and asks for the user id."""
    person = await context.services.people.show(context.caller, request.query_params.get("user", ""))
    return _erase_page(context, request, person)


@PAGE.form("/erase", back=PAGE.path)
async def erase(context: PageContext, request: Request, form: Form) -> Response:
    """Erase a person, once the user id was typed."""
    person = await context.services.people.show(context.caller, form.get("user"))
    typed = form.get("typed").strip()
    if typed != person.id:
        return _erase_page(context, request, person, problem=f"Nothing was erased: what you typed is not {person.id}.")
    erased = await context.services.personal.erase(context.caller, person.id, confirmed=typed)
    text = f"{person.name} is erased."
    if not erased.is_done:
        text = f"{person.name} is being erased. This continues automatically, also after a restart."
    if erased.left:
        text = f"{text} {erased.left}"
    return context.go(request, PAGE.path, text)


def _erase_page(context: PageContext, request: Request, person: Person, *, problem: str | None = None) -> Response:
    return context.render(
        request,
        "people/erase.html",
        title=f"Erase {person.name}?",
        trail=[(PAGE.title, PAGE.path), (person.name, _of(person.id))],
        status=422 if problem else 200,
        person=person,
        problem=problem,
        left=context.services.personal.left_by_erasure,
        back=_of(person.id),
    )


def _words() -> dict[str, Any]:
    return {"words": WORDS, "roles": [(role, WORDS[role][0]) for role in ROLES], "came": _CAME, "reason": reason}


def reason(place: ChannelAccess, names: Mapping[str, str]) -> str:
    """Why an account is answered on a channel, for people."""
    match place.how:
        case "owner":
            return "owners always are"
        case "listed":
            return "is in the configuration, under `allow`"
        case "open":
            return "everybody is"
        case "elsewhere":
            return "is let in elsewhere, and linked"
    by = place.by or ""
    who = names.get(by.removesuffix(" in a chat"), by)
    return f"let in by {who}"


def _known_since(person: Person) -> datetime | None:
    return min((account.first_seen_at for account in person.accounts if account.first_seen_at), default=None)


def _linked(link: Link) -> str:
    if link.state != "linked":
        return "It is decided, and done when the answers that are being written have ended."
    told = (
        f"Told: {', '.join(link.notified)}."
        if link.notified
        else "They are not told: no direct chat with them is known."
    )
    return f"They are one person now. {told}"


def _role(word: str) -> Role | None:
    return next((role for role in ROLES if role == word), None)


def _of(user_id: str) -> str:
    return f"{PAGE.path}/person?{urlencode({'user': user_id})}"


def _address(**values: str) -> str:
    given = urlencode({key: value for key, value in values.items() if value})
    return f"{PAGE.path}?{given}" if given else PAGE.path


def _cursor(person: Person) -> str:
    known_at, user_id = place_of_person(person)
    return f"{known_at.isoformat()}~{user_id}"


def _place_of(text: str) -> Place | None:
    """What `_cursor` made; None of anything else, which is the first page."""
    known_at, _, user_id = text.partition("~")
    try:
        moment = datetime.fromisoformat(known_at)
    except ValueError:
        return None
    return (moment, user_id) if moment.tzinfo else None
