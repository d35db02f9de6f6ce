"""Linked accounts: a person finds, changes and tidies what was kept under any of their ids, while they are one.

A link is no part of the trace store; it is looked up at every call, and no trace is written anew for it or for its end.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.domain.roles import Role
from gateway.errors import StoreUnavailable, TraceError
from gateway.tools.contract import ToolContext
from gateway.tools.spec import ToolCall
from gateway.tools.toolbox import Toolbox
from gateway.traces.archive import rehydrate, shorten_old
from gateway.traces.consolidation import Consolidation
from gateway.traces.search import TraceQuery
from gateway.traces.tools import trace_tools
from gateway.traces.trace import ORGANIZATION, Owner, Trace, Viewer
from gateway.traces.trace_store import TRACES_NAME, TraceStore, open_trace_store
from gateway.traces.transfer.bounds import OfPerson
from gateway.traces.transfer.exporting import export_traces
from gateway.traces.transfer.importing import import_traces
from tests.gateway.memory.traces.people import ADA, BEN, NOBODY, Clock, of
from tests.gateway.memory.traces.test_apart import scope, state

DESK = Viewer(user_id="u_desk", personality_id="assistant", session_id="s_desk")


class Links:
    """Who is one person with whom, as the test says."""

    def __init__(self) -> None:
        self.absorbed: dict[str, list[str]] = {}

    async def person_ids(self, user_id: str) -> Sequence[str]:
        return [user_id, *self.absorbed.get(user_id, [])]


@pytest.fixture
def links() -> Links:
    return Links()


@pytest.fixture
async def trace_store(tmp_path: Path, clock: Clock, links: Links) -> AsyncIterator[TraceStore]:
    async with open_trace_store(tmp_path / TRACES_NAME, now=clock, person_ids=links.person_ids) as trace_store:
        yield trace_store


async def found(trace_store: TraceStore, viewer: Viewer, query: str) -> set[str]:
    return {each.trace.content for each in await trace_store.search(viewer, TraceQuery(query=query))}


async def use(trace_store: TraceStore, viewer: Viewer, name: str, role: Role = "member", **arguments: Any) -> str:
    toolbox = Toolbox(trace_tools(trace_store, Consolidation(trace_store)))
    context = ToolContext(scope=scope(viewer, "t"), memory=None, role=role)
    return (await toolbox.call(ToolCall(id="c", name=name, arguments=json.dumps(arguments)), context)).text


async def test_a_person_sees_what_was_kept_under_either_id_until_the_link_ends(
    trace_store: TraceStore, links: Links
) -> None:
    await trace_store.add(ADA, of(ADA, "The cat is Mia"))
    await trace_store.add(DESK, of(DESK, "The boat is Argo"))
    await trace_store.add(DESK, of(DESK, "The boat sails on Sundays", "persona"))
    await trace_store.add(BEN, of(BEN, "The boat is Ben's"))
    before = await state(trace_store, ADA), await state(trace_store, DESK)
    assert await found(trace_store, ADA, "cat boat") == {"The cat is Mia"}

    links.absorbed["u_ada"] = ["u_desk"]
    both = {"The cat is Mia", "The boat is Argo", "The boat sails on Sundays"}
    assert await found(trace_store, ADA, "cat boat") == both
    assert await trace_store.count(ADA) == 3
    assert await found(trace_store, BEN, "cat boat") == {"The boat is Ben's"}
    assert await found(trace_store, replace(ADA, personality_id="other"), "boat") == {"The boat is Argo"}

    links.absorbed.clear()
    assert await found(trace_store, ADA, "cat boat") == {"The cat is Mia"}
    assert await found(trace_store, DESK, "cat boat") == both - {"The cat is Mia"}
    assert (await state(trace_store, ADA), await state(trace_store, DESK)) == before


async def test_every_operation_reaches_either_id_and_nobody_elses(
    trace_store: TraceStore, links: Links, clock: Clock
) -> None:
    """Get, update, delete, restore, use, reflect and rehydrate."""
    clock.move(days=-90)
    text = "The key lies under the third pot " + "and the pot is red " * 12
    old = (
        await trace_store.add(
            DESK, of(DESK, text, created_at=clock.now, last_accessed_at=clock.now, stability_ms=1.7e10)
        )
    ).id
    bens = (await trace_store.add(BEN, of(BEN, "The tea is green"))).id
    clock.move(days=90)
    faded = (await trace_store.add(DESK, of(DESK, "Forgotten", strength=0.01))).id
    tea = (await trace_store.add(DESK, of(DESK, "The tea is black"))).id

    async def first_words(trace: Trace) -> str:
        return trace.content[:20]

    assert await shorten_old(trace_store, first_words) == 1
    assert '"results": []' in await use(trace_store, ADA, "memory_search", query="tea")

    links.absorbed["u_ada"] = ["u_desk"]
    assert tea in await use(trace_store, ADA, "memory_search", query="tea")
    assert bens not in await use(trace_store, ADA, "memory_search", query="tea")
    kept = await trace_store.get(ADA, tea)
    assert kept is not None
    assert kept.owner == Owner("user", "u_desk")
    assert await use(trace_store, ADA, "memory_update", traceId=tea, content="The tea is white") == '{"updated": true}'
    assert await trace_store.offered(ADA, "q", used=[tea, bens]) == 1
    assert await use(trace_store, ADA, "memory_delete", traceId=tea) == '{"deleted": true}'
    assert await trace_store.restore(ADA, tea)
    assert (await rehydrate(trace_store, ADA, old)).verbatim_content == text
    assert '"pruned": 1' in await use(trace_store, ADA, "memory_reflect")
    assert await trace_store.get(ADA, faded) is None
    assert await use(trace_store, ADA, "memory_delete", traceId=bens) == '{"deleted": false}'


async def test_what_is_new_is_the_id_s_that_lives_and_what_both_said_is_told_once(
    trace_store: TraceStore, links: Links
) -> None:
    """So that the end of a link leaves both with all that they have said."""
    await trace_store.add(DESK, of(DESK, "Tea at five"))
    links.absorbed["u_ada"] = ["u_desk"]
    await use(trace_store, ADA, "memory_add", content="Tea at five")
    results = json.loads(await use(trace_store, ADA, "memory_search", query="tea"))["results"]
    assert [each["content"] for each in results] == ["Tea at five"]
    links.absorbed.clear()
    for viewer in (ADA, DESK):
        assert await found(trace_store, viewer, "tea") == {"Tea at five"}


async def test_what_the_ids_of_a_person_hold_is_not_merged_over_them(trace_store: TraceStore, links: Links) -> None:
    mine = (await trace_store.add(ADA, of(ADA, "Tea at five"))).id
    theirs = (await trace_store.add(DESK, of(DESK, "Tea at five"))).id
    links.absorbed["u_ada"] = ["u_desk"]
    with pytest.raises(TraceError, match="from before the person's accounts were linked"):
        await trace_store.merge(ADA, [mine, theirs])
    assert (await Consolidation(trace_store).run(ADA)).merged == 0
    for viewer in (ADA, DESK):
        assert await found(trace_store, viewer, "tea") == {"Tea at five"}


async def test_in_a_group_a_link_shows_nothing_personal(trace_store: TraceStore, links: Links) -> None:
    await trace_store.add(DESK, of(DESK, "The boat is Argo"))
    links.absorbed["u_ada"] = ["u_desk"]
    assert await found(trace_store, NOBODY, "boat") == set()
    assert replace(NOBODY, other_ids=("u_desk",)).owners == NOBODY.owners


async def test_an_export_holds_all_ids_and_comes_back_to_each(
    trace_store: TraceStore, links: Links, tmp_path: Path
) -> None:
    await trace_store.add(ADA, of(ADA, "The cat is Mia"))
    await trace_store.add(DESK, of(DESK, "The boat is Argo"))
    await trace_store.add(DESK, of(DESK, "It sails on Sundays", "persona"))
    links.absorbed["u_ada"] = ["u_desk"]
    person = OfPerson(await trace_store.whole(ADA))
    assert await export_traces(trace_store, tmp_path / "out.json", bounds=person) == 3
    result = await import_traces(trace_store, tmp_path / "out.json", bounds=person)
    assert (result.imported, result.skipped, result.errors) == (0, 3, [])


async def test_where_links_cannot_be_read_nothing_is_answered_rather_than_half(tmp_path: Path, clock: Clock) -> None:
    async def broken(_user_id: str) -> Sequence[str]:
        raise StoreUnavailable("the disk is full")

    async with open_trace_store(tmp_path / TRACES_NAME, now=clock, person_ids=broken) as trace_store:
        with pytest.raises(StoreUnavailable):
            await trace_store.search(ADA, TraceQuery(query="tea"))


def _is_unknown(answer: str) -> bool:
    """As of a trace that is not there."""
    return answer in ('{"updated": false}', '{"deleted": false}') or "Found only 0 active trace(s)" in answer


@pytest.mark.parametrize("owner", [Owner("organization", ORGANIZATION), Owner("thread", "s_group")])
async def test_a_guest_changes_nothing_that_others_read(trace_store: TraceStore, owner: Owner) -> None:
    """Neither what everybody shares, which a guest does not see, nor what a group does; members do."""
    viewer = NOBODY if owner.kind == "thread" else BEN
    kept = (await trace_store.add(viewer, Trace(content="The door code is 4711", owner=owner))).id
    other = (await trace_store.add(viewer, Trace(content="The door is green", owner=owner))).id
    refused = "Error: this is shared with others, and only an owner or member changes it"
    calls: list[tuple[str, dict[str, Any]]] = [
        ("memory_add", {"content": "The door code is 0815", "scope": owner.kind}),
        ("memory_update", {"traceId": kept, "content": "The door code is 0815"}),
        ("memory_merge", {"traceIds": [kept, other]}),
        ("memory_delete", {"traceId": kept}),
    ]
    for name, arguments in calls:
        answer = await use(trace_store, viewer, name, "guest", **arguments)
        assert answer.startswith(refused) or (owner.kind == "organization" and _is_unknown(answer)), (name, answer)
    assert await found(trace_store, viewer, "door") == {"The door code is 4711", "The door is green"}
    assert (await use(trace_store, BEN, "memory_add", "guest", content="Ben likes doors")).startswith('{"traceId"')
    for name, arguments in calls:
        assert not (await use(trace_store, viewer, name, "member", **arguments)).startswith("Error"), name
