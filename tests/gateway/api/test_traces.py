"""The trace memory by HTTP: found, explained, corrected, merged, forgotten, brought back, consolidated."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import httpx
import pytest

from gateway.people.access_records import SetRank
from gateway.traces.trace import DAY_MS, Owner, Trace, Viewer
from tests.gateway.api.traces import Traced, traced
from tests.gateway.memory.traces.transfer.corpora import Held, fill


@pytest.fixture
async def house_with_traces(tmp_path: Path) -> AsyncIterator[Traced]:
    async with traced(tmp_path / "home") as found:
        yield found


async def test_a_trace_is_added_found_explained_and_read(house_with_traces: Traced) -> None:
    desk = house_with_traces
    made = await desk.add("Rex eats oats", tags=["dog"], type="semantic")
    await desk.add("the train is late")
    assert (made["scope"], made["user"], made["tags"]) == ("user", desk.ada, ["dog"])
    assert made["strength"] == pytest.approx(1.0, abs=1e-3)
    page = (await desk.api.get("/traces", params={"q": "what does Rex eat", "explain": "true"})).json()
    [found] = page["items"]
    assert (found["id"], page["nextCursor"]) == (made["id"], None)
    explanation = found["explanation"]
    score = sum(explanation["parts"].values()) * math.prod(explanation["factors"].values())
    assert found["score"] == pytest.approx(score)
    assert (await desk.api.get("/traces", params={"q": "Rex"})).json()["items"][0]["explanation"] is None
    read = (await desk.api.get(f"/traces/{made['id']}")).json()
    assert {key: value for key, value in read.items() if key != "strength"} == {
        key: value for key, value in made.items() if key != "strength"
    }
    assert (await desk.api.get("/traces/mt_nothing")).status_code == 404


async def test_the_same_again_only_gets_the_tags(house_with_traces: Traced) -> None:
    first = await house_with_traces.add("I like tea", tags=["drink"])
    again = await house_with_traces.add("I like tea", tags=["warm"])
    assert (again["id"], again["tags"]) == (first["id"], ["drink", "warm"])


async def test_filters_hold_for_lists_and_for_searches(house_with_traces: Traced) -> None:
    desk = house_with_traces
    await desk.add("tea at noon", tags=["a", "b"])
    await desk.add("tea at night", tags=["a"], type="semantic")
    await desk.add("tea for the cook", scope="persona", personality="cook")
    await desk.add("tea of Ben's", user=desk.ben)
    await desk.add("tea for all", scope="organization", user=None)
    for query in ({}, {"q": "tea"}):
        every = set(await desk.contents(**query))
        assert len(every) == 5
        assert set(await desk.contents(tag=["a", "b"], **query)) == {"tea at noon"}
        assert set(await desk.contents(tag="a", **query)) == {"tea at noon", "tea at night"}
        assert await desk.contents(type="semantic", **query) == ["tea at night"]
        assert await desk.contents(scope="organization", **query) == ["tea for all"]
        assert set(await desk.contents(user=desk.ada, **query)) == every - {"tea of Ben's", "tea for all"}
        assert await desk.contents(user="mail:ben@example.org", **query) == ["tea of Ben's"]
        assert await desk.contents(personality="cook", **query) == ["tea for the cook"]
        assert await desk.contents(personality="cook", user=desk.ben, **query) == []
    assert (await desk.api.get("/traces", params={"user": "u_nobody"})).status_code == 404
    assert (await desk.api.get("/traces", params={"type": "odd"})).status_code == 422


async def test_among_more_owners_than_are_named_to_the_index_a_filter_holds_too(house_with_traces: Traced) -> None:
    """The rare trace is found though five hundred others fit the words better."""
    desk = house_with_traces
    others = [Trace(content="tea tea tea", owner=Owner("thread", f"s_{number}")) for number in range(500)]
    rare = Trace(content="I had tea once, long ago in the north", owner=Owner("user", desk.ben), tags=("rare",))
    await fill(desk.trace_store, Held([*others, rare]))
    assert await desk.contents(q="tea", tag="rare") == [rare.content]
    assert await desk.contents(q="tea", user=desk.ben) == [rare.content]
    assert await desk.contents(q="tea north", scope="user") == [rare.content]
    assert len(await desk.contents(q="tea", scope="thread", limit=100)) == 100


@pytest.mark.parametrize("query", [{}, {"q": "fact"}])
async def test_a_list_comes_in_pages_without_a_gap_or_a_repetition(
    house_with_traces: Traced, query: dict[str, str]
) -> None:
    desk = house_with_traces
    for number in range(25):
        await desk.add(f"fact {number}")
    seen: list[str] = []
    cursor: str | None = None
    while True:
        params = {**query, "limit": 10, **({"cursor": cursor} if cursor else {})}
        page = (await desk.api.get("/traces", params=params)).json()
        seen += [item["content"] for item in page["items"]]
        cursor = page["nextCursor"]
        if cursor is None:
            break
    assert sorted(seen) == sorted(f"fact {number}" for number in range(25))
    if not query:
        assert seen == [f"fact {number}" for number in reversed(range(25))]
    assert (await desk.api.get("/traces", params={"cursor": "nonsense"})).status_code == 400


async def test_a_trace_is_corrected_deleted_and_brought_back(house_with_traces: Traced) -> None:
    desk = house_with_traces
    made = await desk.add("my dog is Rex", tags=["dog"])
    path = f"/traces/{made['id']}"
    fixed = (await desk.api.patch(path, json={"content": "my dog is Max"})).json()
    assert (fixed["content"], fixed["tags"]) == ("my dog is Max", ["dog"])
    assert (await desk.api.patch(path, json={"tags": []})).json()["tags"] == []
    assert await desk.contents(q="Rex") == []
    assert (await desk.api.patch(path, json={"content": " "})).status_code == 422

    gone = (await desk.api.delete(path)).json()
    assert gone["deletedAt"] is not None
    assert (await desk.contents(q="Max"), await desk.contents()) == ([], [])
    assert await desk.contents(deleted="true") == ["my dog is Max"]
    assert (await desk.api.delete(path)).status_code == 404
    assert (await desk.api.patch(path, json={"tags": ["x"]})).status_code == 404
    back = (await desk.api.post(f"{path}/restore")).json()
    assert back["deletedAt"] is None
    assert await desk.contents(q="Max") == ["my dog is Max"]
    again = await desk.api.post(f"{path}/restore")
    assert (again.status_code, again.json()["detail"]) == (404, f"there is no deleted trace with the id {made['id']}")


async def test_traces_of_one_owner_are_merged_and_of_two_are_not(house_with_traces: Traced) -> None:
    desk = house_with_traces
    first, second = await desk.add("Rex is a dog", tags=["a"]), await desk.add("Rex is brown", tags=["b"])
    bens = await desk.add("Rex bites", user=desk.ben)
    refused = await desk.api.post("/traces/merge", json={"traces": [first["id"], bens["id"]]})
    assert refused.status_code == 409
    assert "same scope" in refused.json()["detail"] or "stay apart" in refused.json()["detail"]
    merged = (await desk.api.post("/traces/merge", json={"traces": [first["id"], second["id"]]})).json()
    assert (merged["content"], merged["tags"]) == ("Rex is a dog\nRex is brown", ["a", "b"])
    assert (await desk.api.get(f"/traces/{first['id']}")).json()["mergedInto"] == merged["id"]
    too_few = await desk.api.post("/traces/merge", json={"traces": [merged["id"], first["id"]]})
    assert "Found only 1 active trace(s)" in too_few.json()["detail"]
    assert (await desk.api.post("/traces/merge", json={"traces": [merged["id"]]})).status_code == 422


async def test_the_strength_over_time_is_the_published_formula(house_with_traces: Traced) -> None:
    desk = house_with_traces
    now = desk.trace_store.now()
    touched_at = now - timedelta(days=15)
    trace = Trace(
        content="I like tea",
        owner=Owner("user", desk.ada),
        strength=0.8,
        stability_ms=30.0 * DAY_MS,
        created_at=now - timedelta(days=90),
        last_accessed_at=touched_at,
    )
    await fill(desk.trace_store, Held([trace]))
    found = (await desk.api.get(f"/traces/{trace.id}/strength", params={"points": 20})).json()
    assert len(found["points"]) == 20
    for point in found["points"]:
        passed_days = (datetime.fromisoformat(point["at"]) - touched_at).total_seconds() / 86_400
        assert point["strength"] == pytest.approx(0.8 * math.exp(-passed_days / 30), abs=1e-6)
    assert [point["isForecast"] for point in found["points"]] == sorted(
        point["isForecast"] for point in found["points"]
    )
    assert abs(datetime.fromisoformat(found["knownSince"]) - touched_at) < timedelta(milliseconds=2)
    fades_days = (datetime.fromisoformat(found["fadesAt"]) - touched_at).total_seconds() / 86_400
    assert fades_days == pytest.approx(30 * math.log(0.8 / 0.05), abs=1e-3)
    assert found["points"][-1]["strength"] < 0.05


async def test_a_strength_that_was_used_and_one_that_is_gone_have_a_curve(house_with_traces: Traced) -> None:
    desk = house_with_traces
    made = await desk.add("I like tea")
    person = await desk.gateway.web.api.services.traces._scopes.person(desk.ada)  # type: ignore[union-attr]
    assert await desk.trace_store.offered(person, "turn 1", used=[made["id"]]) == 1
    curve = (await desk.api.get(f"/traces/{made['id']}/strength", params={"points": 2})).json()
    assert (len(curve["usedAt"]), len(curve["points"])) == (1, 2)
    weak = Trace(content="nearly nothing", owner=Owner("user", desk.ada), strength=0.01)
    await fill(desk.trace_store, Held([weak]))
    assert (await desk.api.get(f"/traces/{weak.id}/strength")).json()["fadesAt"] is None


async def test_the_graph_has_neighbours_kinds_and_weights_and_is_bounded(house_with_traces: Traced) -> None:
    desk = house_with_traces
    owner = Owner("user", desk.ada)
    traces = [Trace(content=f"fact {number}", owner=owner) for number in range(31)]
    hers, bens = traces[0], Trace(content="not hers", owner=Owner("user", desk.ben))
    hidden = Trace(content="hidden", owner=owner, deleted_at=desk.trace_store.now())
    edges = [(hers.id, each.id, "co_activated", number / 30, "{}", 0) for number, each in enumerate(traces[1:], 1)]
    edges += [(traces[30].id, traces[29].id, "link", 1.0, "{}", 0), (bens.id, hers.id, "link", 9.0, "{}", 0)]
    edges += [(hers.id, hidden.id, "link", 9.0, "{}", 0)]
    await fill(desk.trace_store, Held([*traces, bens, hidden], edges))
    key = await desk.of(desk.ada)
    graph = (await key.get(f"/traces/{hers.id}/graph", params={"limit": 3})).json()
    assert [each["label"] for each in graph["neighbours"]] == ["fact 30", "fact 29", "fact 28"]
    assert graph["isCut"] is True
    kinds = {(edge["kind"], round(edge["weight"], 3)) for edge in graph["edges"]}
    assert kinds == {("co_activated", 1.0), ("co_activated", 0.967), ("co_activated", 0.933), ("link", 1.0)}
    assert "not hers" not in str((await key.get(f"/traces/{hers.id}/graph", params={"limit": 100})).json())
    assert "not hers" in str((await desk.api.get(f"/traces/{hers.id}/graph")).json())
    assert (await key.get(f"/traces/{bens.id}/graph")).status_code == 404


async def test_a_consolidation_is_done_now_and_stands_in_the_log(house_with_traces: Traced) -> None:
    desk = house_with_traces
    weak = Trace(content="nearly nothing", owner=Owner("user", desk.ada), strength=0.01)
    bens = Trace(content="nearly nothing", owner=Owner("user", desk.ben), strength=0.01)
    await fill(desk.trace_store, Held([weak, bens]))
    key = await desk.of(desk.ada)
    hers = (await key.post("/traces/consolidate")).json()
    assert (hers["pruned"], hers["isRunning"]) == (1, False)
    assert (await key.get("/traces/consolidations")).status_code == 403
    every = (await desk.api.post("/traces/consolidate")).json()
    assert every["pruned"] == 1
    log = (await desk.api.get("/traces/consolidations", params={"limit": 1})).json()
    assert (log["items"][0]["reason"], log["items"][0]["pruned"]) == ("api", 1)
    rest = (await desk.api.get("/traces/consolidations", params={"cursor": log["nextCursor"]})).json()
    assert [entry["reason"] for entry in rest["items"]] == ["api:a key"]


async def test_where_traces_are_off_every_call_says_how_to_switch_them_on(tmp_path: Path) -> None:
    async with traced(tmp_path / "home", memory={"traces": {"enabled": False}}) as desk:
        calls = [
            ("GET", ""),
            ("GET", "/mt_1"),
            ("GET", "/consolidations"),
            ("POST", "/consolidate"),
            ("GET", "/export"),
        ]
        for method, path in [*calls, ("POST", "/import"), ("DELETE", "/mt_1"), ("GET", "/mt_1/graph")]:
            answer = await desk.api.request(method, f"/traces{path}")
            assert answer.status_code == 409, path
            assert "memory.traces.enabled: true" in answer.json()["detail"]


# ---- whose they are -------------------------------------------------------------------------------------------------


async def test_a_person_s_key_sees_and_changes_what_is_theirs_alone(house_with_traces: Traced) -> None:
    """Two people with the same facts: every call with one's key leaves the other's as they are."""
    desk = house_with_traces
    hers = [await desk.add(f"the same {number}", user=desk.ada) for number in range(2)]
    his = [await desk.add(f"the same {number}", user=desk.ben) for number in range(2)]
    before = [(await desk.api.get(f"/traces/{each['id']}")).json() for each in his]
    key = await desk.of(desk.ada)
    for params in ({}, {"q": "same"}, {"user": desk.ada}):
        items = (await key.get("/traces", params=params)).json()["items"]
        assert {item["id"] for item in items} == {each["id"] for each in hers}, params
    assert (await key.get("/traces", params={"user": desk.ben})).status_code == 403
    for each in his:
        path = f"/traces/{each['id']}"
        for method, where, body in (
            ("GET", path, None),
            ("GET", f"{path}/strength", None),
            ("GET", f"{path}/graph", None),
            ("PATCH", path, {"content": "changed"}),
            ("DELETE", path, None),
            ("POST", f"{path}/restore", None),
        ):
            answer = await key.request(method, where, json=body)
            assert answer.status_code == 404, (method, where)
    merged = await key.post("/traces/merge", json={"traces": [each["id"] for each in his]})
    assert (merged.status_code, "Found only 0" in merged.json()["detail"]) == (409, True)
    for body in ({"user": desk.ben}, {"user": "mail:ben@example.org"}):
        assert (await key.post("/traces", json={"content": "planted", **body})).status_code == 403
    added = (await key.post("/traces", json={"content": "mine"})).json()
    assert (added["user"], added["author"]) == (desk.ada, desk.ada)
    assert (await key.get("/traces/export", params={"user": desk.ben})).status_code == 403
    assert {each["id"] for each in (await key.get("/traces/export")).json()["traces"]} == {
        *(each["id"] for each in hers),
        added["id"],
    }
    await key.delete(f"/traces/{hers[0]['id']}")
    await key.post("/traces/consolidate")
    after = [(await desk.api.get(f"/traces/{each['id']}")).json() for each in his]
    for old, new in zip(before, after, strict=True):
        assert {**old, "strength": 0} == {**new, "strength": 0}


async def test_a_person_sees_all_their_personalities_and_sessions_by_their_key(house_with_traces: Traced) -> None:
    desk = house_with_traces
    await desk.add("with the cook", scope="persona", personality="cook")
    await desk.gateway.store.engine.write(
        lambda connection: connection.execute(
            "INSERT INTO sessions"
            " (id, key, user_id, personality_id, channel, conversation, title, created_at, updated_at)"
            " VALUES ('s_hers', 'k', ?, 'assistant', 'web', 'c', '', 0, 0)",
            (desk.ada,),
        )
    )
    await desk.add("in her session", scope="thread", session="s_hers")
    await fill(desk.trace_store, Held([Trace(content="elsewhere", owner=Owner("thread", "s_else"))]))
    key = await desk.of(desk.ada)
    assert set(await desk.contents(key)) == {"with the cook", "in her session"}
    own = await key.post("/traces", json={"content": "x", "scope": "thread", "session": "s_hers"})
    assert own.status_code == 201
    foreign = await key.post("/traces", json={"content": "x", "scope": "thread", "session": "s_else"})
    assert foreign.status_code == 404
    assert (await key.post("/traces", json={"content": "x", "scope": "thread"})).status_code == 422


async def test_what_everybody_shares_is_read_and_changed_by_members_and_not_by_guests(
    house_with_traces: Traced,
) -> None:
    desk = house_with_traces
    shared = await desk.add("the office closes at six", scope="organization", user=None)
    account = "mail:ada@example.org"
    for rank, status in (("guest", 404), ("member", 200)):
        at = desk.trace_store.now()
        change = SetRank(accounts=(account,), rank="guest" if rank == "guest" else "member", via="test", at=at)
        await desk.gateway.store.people.change(change)
        desk.gateway.admission.people.changed()
        key = await desk.of(desk.ada)
        assert await desk.contents(key, q="office") == ([] if rank == "guest" else [shared["content"]])
        assert (await key.get(f"/traces/{shared['id']}")).status_code == status
        exported = await key.get("/traces/export", params={"format": "json"})
        assert exported.status_code == 200
        assert (shared["content"] in exported.text) == (rank == "member")
        answer = await key.patch(f"/traces/{shared['id']}", json={"tags": [rank]})
        assert answer.status_code == status, answer.text
        added = await key.post("/traces", json={"content": f"for all, by a {rank}", "scope": "organization"})
        assert added.status_code == (403 if rank == "guest" else 201)
        mine = await key.post("/traces", json={"content": f"mine as a {rank}"})
        assert mine.status_code == 201
        export = {"traces": [{"content": f"imported by a {rank}", "scope": "organization"}]}
        await key.post("/traces/import", json=export)
        scopes = {
            each["scope"] for each in (await desk.api.get("/traces", params={"q": f"imported {rank}"})).json()["items"]
        }
        assert ("organization" in scopes) == (rank == "member")


async def test_linked_accounts_are_one_person_by_either_s_key(house_with_traces: Traced) -> None:
    desk = house_with_traces
    await desk.add("from before", user=desk.ben)
    await desk.add("of Ada's")
    old_key, new_key = await desk.of(desk.ben), await desk.of(desk.ada)
    wanted = {"one": desk.ada, "other": desk.ben, "isOneKept": True}
    assert (await desk.api.post("/people/links", json=wanted)).status_code == 200
    for key in (old_key, new_key):
        assert set(await desk.contents(key)) == {"from before", "of Ada's"}
    [old] = (await new_key.get("/traces", params={"q": "before"})).json()["items"]
    assert old["user"] == desk.ben
    assert (await new_key.delete(f"/traces/{old['id']}")).status_code == 200


async def test_a_key_that_may_only_read_changes_nothing(house_with_traces: Traced) -> None:
    desk = house_with_traces
    made = await desk.add("I like tea")
    reader: httpx.AsyncClient = await desk.of(desk.ada, "traces:read")
    assert await desk.contents(reader) == ["I like tea"]
    assert (await reader.delete(f"/traces/{made['id']}")).status_code == 403
    assert (await reader.post("/traces/import", content=b"{}")).status_code == 403


async def test_memory_why_answers_with_facts_that_no_file_holds(house_with_traces: Traced) -> None:
    desk = house_with_traces
    viewer = Viewer(user_id=desk.ada, personality_id="assistant", session_id=None)
    said = {"turnId": "t_1", "channel": "web", "sessionId": "s_1"}
    trace = Trace(content="Ada's dog is called Rex", owner=Owner("user", desk.ada), source="turn", metadata=said)
    await desk.trace_store.add(viewer, trace)
    await desk.add("Ben's cat is called Rex", user=desk.ben)
    asked = {"line": "called Rex", "user": desk.ada}
    origin = (await desk.api.get("/memory/why", params=asked)).json()
    assert (origin["change"], origin["turn"], origin["proposal"]) == (None, None, None)
    [fact] = origin["facts"]
    assert (fact["text"], fact["turn"], fact["channel"]) == (trace.content, "t_1", "web")
    assert (fact["trace"], fact["source"], fact["proposal"]) == (trace.id, "said on web", None)
    assert abs(datetime.fromisoformat(fact["at"]) - trace.created_at) < timedelta(milliseconds=1)
    own = await (await desk.of(desk.ada, "memory:read", "traces:read")).get("/memory/why", params={"line": "Rex"})
    assert [each["text"] for each in own.json()["facts"]] == [trace.content]
    without = await (await desk.of(desk.ada, "memory:read")).get("/memory/why", params={"line": "Rex"})
    assert without.status_code == 404, "a key that may not read traces"
    assert (await desk.api.get("/memory/why", params={**asked, "line": "called Max"})).status_code == 404
