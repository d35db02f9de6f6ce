"""What turns would remember that had read words of others: an operator reads it, words it anew, and says yes or no."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from gateway.errors import EthosError
from gateway.sdk.models.memory import Proposal
from gateway.web.dashboard.frame import Frame
from gateway.web.dashboard.page import BASE
from gateway.web.forms import Form

MAX_PROPOSALS = 100


class MemoryProposals:
    """The list, and the decision."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._desk = frame.desks.memory

    async def show(self, request: Request) -> Response:
        """Those that wait, oldest first."""
        waiting = await self._desk.proposals(self._frame.caller, limit=MAX_PROPOSALS)
        return self._frame.render(
            request,
            "memory/proposals.html",
            title="Proposals",
            trail=[("Memory", f"{BASE}/memory")],
            proposals=[(one, editable_text(one)) for one in waiting],
            names=await self._frame.sources.naming.labels(),
        )

    async def decide(self, request: Request, form: Form) -> Response:
        """Approve it as it is worded in the form, keep the wording, or refuse it."""
        decision = form.get("decision")
        number = int(form.get("proposal")) if form.get("proposal").isdigit() else 0
        back = f"{BASE}/memory/proposals"
        if decision == "refuse" and not form.is_confirmed:
            return self._frame.ask(
                request,
                form,
                title="Refuse this proposal?",
                text="It is kept for the record, and is never written to the memory. This cannot be undone.",
                yes="Refuse it",
                back=back,
            )
        try:
            said = await self._decide(number, decision, form)
        except EthosError as error:
            return self._frame.go(request, back, str(error), is_problem=True)
        self._frame.live.changed("memory")
        return self._frame.go(request, back, said)

    async def _decide(self, number: int, decision: str, form: Form) -> str:
        caller = self._frame.caller
        if decision == "refuse":
            await self._desk.refuse(caller, number)
            return "The proposal is refused."
        if form.has("content") and form.get("content") != editable_text(await self._desk.proposal(caller, number)):
            await self._desk.edit(caller, number, form.get("content"))
        if decision == "approve":
            await self._desk.approve(caller, number)
            return "The proposal is in the memory. It can be taken back in the list of changes."
        return "The new wording is kept; the proposal still waits."


def editable_text(proposal: Proposal) -> str | None:
    """The one text that it would add; None where there is not exactly one, so that it cannot be worded anew."""
    texts = [update.content for update in proposal.updates if update.action != "remove"]
    return texts[0] if len(texts) == 1 else None
