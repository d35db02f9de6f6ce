"""What turns would remember that had read words of others: an operator reads it, may edit it, and says yes or no."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from gateway.domain.provenance import others_words, own_words
from gateway.domain.visible import without_hidden
from gateway.sdk.models.memory import Proposal
from gateway.sdk.models.sessions import Message
from gateway.web.dashboard.page import BASE
from gateway.web.dashboard.page_context import PageContext
from gateway.web.dashboard.pages.memory import PAGE
from gateway.web.forms import Form, whole_number

PROPOSALS = f"{PAGE.path}/proposals"
MAX_PROPOSALS = 100
MAX_SOURCE_CHARS = 4_000
# How a source is called that a tool has shown, where the tool says so of only a part of its results.
_OF_TOOLS = {"search_conversations": "an earlier session"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A proposal on the page.

    Attributes:
        text: that can be edited; None where there is none.
        read: what its turn had read, each with its origin; where that was nothing of others, the message itself.
        place: the address of its turn; None where the session is gone.
    """

    proposal: Proposal
    text: str | None
    read: Sequence[tuple[str, str]]
    place: str | None


@PAGE.route("/proposals")
async def show(context: PageContext, request: Request) -> Response:
    """Those that wait, oldest first."""
    waiting = await context.services.memory.proposals(context.caller, limit=MAX_PROPOSALS)
    said = await context.services.sessions.of_turns(context.caller, {one.turn for one in waiting})
    return context.render(
        request,
        "memory/proposals.html",
        title="Proposals",
        trail=[(PAGE.title, PAGE.path)],
        proposals=[_waiting(one, said[one.turn]) for one in waiting],
        names=await context.names(),
    )


@PAGE.form("/proposals/decide", back=PROPOSALS)
async def decide(context: PageContext, request: Request, form: Form) -> Response:
    """Approve it as it is worded in the form, keep the wording, or refuse it."""
    decision = form.get("decision")
    number = whole_number(form.get("proposal")) or 0
    if decision == "refuse" and not form.is_confirmed:
        return context.ask(
            request,
            form,
            title="Refuse this proposal?",
            text="It is kept for the record, and is never written to the memory. This cannot be undone.",
            yes="Refuse it",
            back=PROPOSALS,
        )
    said = await _decide(context, number, decision, form)
    context.live.changed("memory")
    return context.go(request, PROPOSALS, said)


async def _decide(context: PageContext, number: int, decision: str, form: Form) -> str:
    service = context.services.memory
    caller = context.caller
    if decision == "refuse":
        await service.refuse(caller, number)
        return "The proposal is refused."
    if form.has("content") and form.get("content") != added_text(await service.proposal(caller, number)):
        await service.edit(caller, number, form.get("content"))
    if decision == "approve":
        if (await service.approve(caller, number)).is_late:
            return "The proposal is approved, and comes into the memory as soon as that can be written."
        return "The proposal is in the memory. It can be taken back in the list of changes."
    return "The new wording is kept; the proposal still waits."


def _waiting(proposal: Proposal, said: Sequence[Message]) -> Waiting:
    text = added_text(proposal)
    asked = next((one for one in said if one.role == "user"), None)
    read = [] if asked is None else others_words(asked.text)
    read += [
        (origin, one.text)
        for one in said
        if one.role == "tool_result"
        and (origin := _OF_TOOLS.get(one.tool or "", f"what {one.tool} returned")) in proposal.sources
    ]
    if asked is not None and not read:
        read = [("the message", own_words(asked.text))]
    return Waiting(
        proposal=proposal,
        text=None if text is None else without_hidden(text),
        read=[(origin, shortened(words)) for origin, words in read],
        place=None if asked is None else f"{BASE}/sessions/{proposal.session}?at={asked.id}#m{asked.id}",
    )


def shortened(text: str) -> str:
    """As much of it as a page can show for many."""
    return text if len(text) <= MAX_SOURCE_CHARS else f"{text[:MAX_SOURCE_CHARS]} […]"


def added_text(proposal: Proposal) -> str | None:
    """The one text that it would add; None where there is not exactly one, so that it cannot be edited."""
    texts = [update.content for update in proposal.updates if update.action != "remove"]
    return texts[0] if len(texts) == 1 else None
