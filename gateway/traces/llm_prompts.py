"""What a consolidation asks of a model: one sentence for many facts, and a short one for a long."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from gateway.agent.model import ChatMessage, Model, ModelRequest, Purpose, Spender, reply_of
from gateway.traces import archive, insights
from gateway.traces.archive import Shorten
from gateway.traces.insights import Insight, as_data
from gateway.traces.trace import Owner, Trace

NOTHING = "NOTHING"
_MAX_OUTPUT_TOKENS = 200
_LONGEST_CHARS = 1_000


def insight_by(model: Callable[[], Model]) -> Insight:
    """Asks the model what facts show together."""

    async def ask(traces: Sequence[Trace]) -> str | None:
        return await _ask(model(), insights.INSTRUCTIONS, as_data(traces), "insight", traces[0].owner)

    return ask


def gist_by(model: Callable[[], Model]) -> Shorten:
    """Asks the model for a short form of a fact."""

    async def ask(trace: Trace) -> str | None:
        data = json.dumps({"fact": trace.content}, ensure_ascii=False)
        return await _ask(model(), archive.INSTRUCTIONS, data, "gist", trace.owner)

    return ask


async def _ask(model: Model, instructions: str, data: str, purpose: Purpose, owner: Owner) -> str | None:
    request = ModelRequest(
        system=instructions,
        messages=(ChatMessage(role="user", text=data),),
        max_output_tokens=_MAX_OUTPUT_TOKENS,
        purpose=purpose,
        spender=_spender(owner),
    )
    reply = await reply_of(model, request)
    sentence = " ".join(reply.message.text.split())[:_LONGEST_CHARS]
    return None if not sentence or sentence.strip(".").upper() == NOTHING else sentence


def _spender(owner: Owner) -> Spender:
    """The budget that pays; no person's where the traces belong to several people."""
    match owner.kind:
        case "user":
            return Spender(user_id=owner.id)
        case "persona":
            user_id, _, personality_id = owner.id.partition("::")
            return Spender(user_id=user_id, personality_id=personality_id)
        case _:
            return Spender()
