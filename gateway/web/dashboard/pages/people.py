"""People: everybody with their accounts, links and roles; who asks to be let in; export and erasure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from functools import wraps
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.errors import EthosError
from gateway.sdk.models.people import ROLES, ChannelAccess, Link, PairingRequest, Person, Role
from gateway.services.people import Place, place_of_person
from gateway.web.dashboard.flash import Undo
from gateway.web.dashboard.page import BASE, Page, Take
from gateway.web.dashboard.page_context import PageContext, own_path
from gateway.web.downloads import download
from gateway.web.forms import CONFIRMED_FIELD, Form

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


class People:
    """The list, one person, and what can be done about them."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._service = context.services.people
        self._pairing = context.services.pairing
        self._personal = context.services.personal

    # ---- showing ----------------------------------------------------------------------------------------------------

    async def show(self, request: Request) -> Response:
        """Who waits, and everybody."""
        asked, caller = request.query_params, self._context.caller
        query = asked.get("q", "").strip()
        after = _place_of(asked.get("after", ""))
        people = await self._service.list(caller, query=query, limit=PEOPLE + 1, after=after)
        older = _address(q=query, after=_cursor(people[PEOPLE - 1])) if len(people) > PEOPLE else None
        return self._context.render(
            request,
            "people/index.html",
            title=PAGE.title,
            waiting=await self._pairing.waiting(caller),
            people=[(person, _known_since(person)) for person in people[:PEOPLE]],
            query=query,
            newest=_address(q=query) if after else None,
            older=older,
            **_words(),
        )

    async def person(self, request: Request) -> Response:
        """One person."""
        person = await self._service.show(self._context.caller, request.query_params.get("user", ""))
        return self._context.render(
            request,
            "people/person.html",
            title=person.name,
            trail=[(PAGE.title, PAGE.path)],
            person=person,
            names=await self._context.sources.naming.labels(),
            links=[link for link in person.links if link.undone_at is None],
            back=_of(person.id),
            **_words(),
        )

    # ---- who asks to be let in --------------------------------------------------------------------------------------

    async def decide(self, request: Request, form: Form) -> Response:
        """Let a stranger in, or refuse them, which is asked first."""
        who, caller = form.get("who"), self._context.caller
        if form.get("do") == "refuse":
            asking = await self._waiting(who)
            if asking is not None and not form.is_confirmed:
                return self._ask_to_refuse(request, form, asking)
            decided = await self._pairing.refuse(caller, who)
            return self._context.go(request, PAGE.path, decided.text)
        decided = await self._pairing.approve(caller, who, _role(form.get("role")))
        undo = Undo(action=f"{BASE}/people/revoke", fields=[("user", decided.account), (CONFIRMED_FIELD, "yes")])
        return self._context.go(request, PAGE.path, decided.text, undo=undo)

    async def _waiting(self, who: str) -> PairingRequest | None:
        waiting = await self._pairing.waiting(self._context.caller)
        return next((one for one in waiting if one.code == who), None)

    def _ask_to_refuse(self, request: Request, form: Form, asking: PairingRequest) -> Response:
        return self._context.ask(
            request,
            form,
            title=f"Refuse {asking.label or asking.account}?",
            text=f"{asking.account} is told so, gets no other code for a week, and what they wrote is not answered.",
            yes="Refuse",
            back=PAGE.path,
        )

    # ---- what they may do -------------------------------------------------------------------------------------------

    async def set_role(self, request: Request, form: Form) -> Response:
        """Give a person a role."""
        role = _role(form.get("role"))
        if role is None:
            return self._context.go(request, PAGE.path, "Choose a role.", is_problem=True)
        before = await self._service.show(self._context.caller, form.get("user"))
        after = await self._service.set_role(self._context.caller, before.id, role)
        undo = None
        if before.role is not None and before.role != after.role:
            action = "revoke" if before.role == "revoked" else "role"
            fields = [("user", before.id), ("role", before.role), (CONFIRMED_FIELD, "yes")]
            undo = Undo(action=f"{BASE}/people/{action}", fields=fields)
        text = f"{after.name} is {WORDS[role][0].lower()} from the next message on."
        if not any(account.access for account in after.accounts):
            text += " They have to be let in again: when they write, they are given a code."
        return self._context.go(request, _of(after.id), text, undo=undo)

    async def revoke(self, request: Request, form: Form) -> Response:
        """Revoke all access of a person, after a question: where they were let in is forgotten."""
        person = await self._service.show(self._context.caller, form.get("user"))
        if not form.is_confirmed:
            return self._context.ask(
                request,
                form,
                title=f"Let {person.name} in nowhere any more?",
                text="None of this person's accounts is answered any more, on no channel, whatever the configuration "
                "says; their API keys open nothing. What is known of them stays. To let them in again, give them a "
                "role, and say yes when they ask.",
                yes="Revoke",
                back=_of(person.id),
            )
        await self._service.revoke(self._context.caller, person.id)
        return self._context.go(request, _of(person.id), f"{person.name}: access is revoked everywhere.")

    # ---- who is whom ------------------------------------------------------------------------------------------------

    async def link(self, request: Request, form: Form) -> Response:
        """Make two users one."""
        other = form.get("other").strip()
        linked = await self._service.link(
            self._context.caller, form.get("user"), other, is_one_kept=form.get("is_one_kept") == "yes"
        )
        to = _of(linked.person.id)
        if linked.link is None:
            text = f"{other} is {linked.person.name} from the first message on."
            return self._context.go(request, to, text)
        undo = Undo(action=f"{BASE}/people/unlink", fields=[("link", linked.link.id), ("user", linked.person.id)])
        return self._context.go(request, to, _linked(linked.link), undo=undo)

    async def unlink(self, request: Request, form: Form) -> Response:
        """Take a link back; it can be made again."""
        link = await self._service.unlink(self._context.caller, form.get("link"))
        undo = Undo(
            action=f"{BASE}/people/link",
            fields=[("user", link.survivor), ("other", link.absorbed), ("is_one_kept", "yes")],
            label="Link again",
        )
        text = "They are two people again, as before the link."
        if link.state != "undone":
            text = "It is decided. They are two people again when the answers that are being written have ended."
        return self._context.go(request, _of(link.survivor), text, undo=undo)

    # ---- all of it, and nothing of it -------------------------------------------------------------------------------

    async def export(self, request: Request) -> Response:
        """Everything about a person, as a file."""
        return download(await self._personal.export(self._context.caller, request.query_params.get("user", "")))

    async def ask_to_erase(self, request: Request) -> Response:
        """Says what will be gone, and asks for the user id."""
        person = await self._service.show(self._context.caller, request.query_params.get("user", ""))
        return self._erase_page(request, person)

    async def erase(self, request: Request, form: Form) -> Response:
        """Erase a person, once the user id was typed."""
        person = await self._service.show(self._context.caller, form.get("user"))
        typed = form.get("typed").strip()
        if typed != person.id:
            return self._erase_page(request, person, problem=f"Nothing was erased: what you typed is not {person.id}.")
        erased = await self._personal.erase(self._context.caller, person.id, confirmed=typed)
        text = f"{person.name} is erased."
        if not erased.is_done:
            text = f"{person.name} is being erased. This continues automatically, also after a restart."
        return self._context.go(request, PAGE.path, text)

    def _erase_page(self, request: Request, person: Person, *, problem: str | None = None) -> Response:
        return self._context.render(
            request,
            "people/erase.html",
            title=f"Erase {person.name}?",
            trail=[(PAGE.title, PAGE.path), (person.name, _of(person.id))],
            status=422 if problem else 200,
            person=person,
            problem=problem,
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
    return f"{BASE}/people/person?{urlencode({'user': user_id})}"


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


def _routes(context: PageContext) -> Sequence[Route]:
    page = People(context)

    def form(name: str, take: Callable[[Request, Form], Awaitable[Response]]) -> Route:
        return Route(f"/people/{name}", context.form_handler(_back_with_problem(context, take)), methods=["POST"])

    return [
        Route("/people", page.show),
        Route("/people/person", page.person),
        Route("/people/export", page.export),
        Route("/people/erase", page.ask_to_erase, methods=["GET"]),
        form("erase", page.erase),
        form("decide", page.decide),
        form("role", page.set_role),
        form("revoke", page.revoke),
        form("link", page.link),
        form("unlink", page.unlink),
    ]


def _back_with_problem(context: PageContext, take: Take) -> Take:
    """What cannot be done is said on the page from which it was asked."""

    @wraps(take)
    async def form_handler(request: Request, form: Form) -> Response:
        try:
            return await take(request, form)
        except EthosError as error:
            return context.go(request, own_path(form.get("back"), PAGE.path), str(error), is_problem=True)

    return form_handler


PAGE = Page(name="people", title="People", icon="people", position=30, routes=_routes)
