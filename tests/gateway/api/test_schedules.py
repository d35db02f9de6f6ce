"""What is done at a time, by HTTP: made, listed, changed, paused, run, removed; a person's key sees that person's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.app.gateway import Gateway
from gateway.sdk.models.chat import SendMessage
from tests.fake_channel import FakeChannel
from tests.gateway.way.conftest import House, settled
from tests.scripted_model import ScriptedModel

from .conftest import OPERATOR

TODAY = datetime.now(UTC).date()
MONDAY = TODAY + timedelta(days=105 - TODAY.weekday())
WEEKLY = {"text": "Water the plants", "everyDays": 7, "timeOfDay": "18:00", "firstDay": f"{MONDAY}", "zone": "UTC"}
Client = httpx.AsyncClient


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    """In which Ada (member) and Ben (guest) have written on two channels."""
    channels = {
        "fake": {"kind": "tests.fake_channel", "role": "member"},
        "other": {"kind": "tests.fake_channel", "role": "guest"},
    }
    async with House(tmp_path / "home").served(ScriptedModel(*["hello"] * 5), channels=channels) as running:
        await running.supervisor.all_tried.wait()
        fake, other = running.adapters
        assert isinstance(fake, FakeChannel)
        assert isinstance(other, FakeChannel)
        await fake.ask("hi", user="ada", conversation="dm-ada")
        await other.ask("hi", user="ben", conversation="dm-ben")
        await settled(running)
        yield running


@pytest.fixture
async def api(gateway: Gateway, client_with: Callable[[str | None], Client]) -> AsyncIterator[Client]:
    """As the operator sees it."""
    async with client_with((gateway.home / "web-token").read_text().strip()) as client:
        yield client


async def make(api: Client, **changes: Any) -> dict[str, Any]:
    answer = await api.post("/schedules", json={**WEEKLY, "user": "fake:ada", **changes})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def listed(api: Client, **asked: str) -> list[int]:
    answer = await api.get("/schedules", params=asked)
    assert answer.status_code == 200, answer.text
    return [one["id"] for one in answer.json()["items"]]


async def test_a_long_list_comes_in_pages_and_what_is_removed_meanwhile_moves_nothing(api: Client) -> None:
    first, second, third = [(await make(api, text=f"Number {number}"))["id"] for number in range(3)]
    page = (await api.get("/schedules", params={"limit": 1})).json()
    assert [one["id"] for one in page["items"]] == [first]
    assert (await api.delete(f"/schedules/{first}")).status_code == 204
    page = (await api.get("/schedules", params={"limit": 1, "cursor": page["nextCursor"]})).json()
    assert [one["id"] for one in page["items"]] == [second]
    last = (await api.get("/schedules", params={"cursor": page["nextCursor"]})).json()
    assert ([one["id"] for one in last["items"]], last["nextCursor"]) == ([third], None)
    assert (await api.get("/schedules", params={"cursor": "x"})).status_code == 400


async def test_a_long_history_comes_in_pages_the_newest_first(gateway: Gateway, api: Client) -> None:
    number = (await make(api))["id"]
    columns = "schedule_id, due_at, begun_at, outcome, turn_id, note, is_by_hand"
    sql = f"INSERT INTO occurrences ({columns}) VALUES (?, ?, 0, 'done', '', '', 0)"  # noqa: S608 (names of ours)
    rows = [(number, due_at) for due_at in (1_000, 2_000, 2_001)]
    await gateway.store.engine.write(lambda connection: connection.executemany(sql, rows))
    path, seconds, cursor = f"/schedules/{number}/history", [], None
    while len(seconds) < 3:
        page = (await api.get(path, params={"limit": 1} | ({"cursor": cursor} if cursor else {}))).json()
        seconds += [one["dueAt"] for one in page["items"]]
        cursor = page["nextCursor"]
    assert seconds == ["1970-01-01T00:00:02.001000Z", "1970-01-01T00:00:02Z", "1970-01-01T00:00:01Z"]
    assert cursor is None
    assert (await api.get(path, params={"cursor": "x"})).status_code == 400


async def test_a_schedule_is_made_for_a_person_and_delivered_to_their_direct_chat(api: Client) -> None:
    made = await make(api)
    assert (made["channel"], made["conversation"], made["isDirect"]) == ("fake", "dm-ada", True)
    assert made["when"] == "every week on Monday at 18:00 (UTC)"
    assert made["next"] == [f"{MONDAY + timedelta(weeks=weeks)}T18:00:00Z" for weeks in range(3)]
    assert made["rule"] == {
        "hours": None,
        "hook": None,
        "at": None, "everyMinutes": None, "cron": None, "everyDays": 7, "timeOfDay": "18:00", "firstDay": f"{MONDAY}",
    }  # fmt: skip
    assert (made["mode"], made["missed"], made["state"], made["turn"]) == ("say", "late", "active", None)
    assert (await api.get(f"/schedules/{made['id']}")).json() == made
    assert await listed(api) == await listed(api, user="fake:ada") == await listed(api, state="active") == [made["id"]]
    assert await listed(api, user="fake:ben") == await listed(api, state="paused") == []
    assert (await api.get(f"/schedules/{made['id']}/history")).json()["items"] == []


async def test_the_same_key_makes_one_also_where_the_answer_was_lost(gateway: Gateway, api: Client) -> None:
    headers = {"idempotency-key": "plants"}
    body = {**WEEKLY, "user": "fake:ada"}
    first = await api.post("/schedules", json=body, headers=headers)
    again = await api.post("/schedules", json=body, headers=headers)
    assert again.headers["idempotency-replayed"] == "true"
    await gateway.store.engine.write(lambda connection: connection.execute("DELETE FROM idempotent_requests").rowcount)
    lost = await api.post("/schedules", json=body, headers=headers)
    assert first.json()["id"] == again.json()["id"] == lost.json()["id"]
    assert len(await listed(api)) == 1


async def test_it_is_changed_paused_resumed_run_and_removed(gateway: Gateway, api: Client) -> None:
    number = (await make(api))["id"]
    changed = (await api.patch(f"/schedules/{number}", json={"text": "Feed the cat", "cron": "0 8 * * 1-5"})).json()
    assert (changed["text"], changed["when"]) == ("Feed the cat", "every weekday at 08:00 (UTC)")
    assert (changed["zone"], changed["missed"], changed["mode"]) == ("UTC", "late", "say")
    paused = (await api.post(f"/schedules/{number}/pause")).json()
    assert (paused["state"], paused["next"]) == ("paused", [])
    assert await listed(api, state="paused") == [number]
    resumed = (await api.post(f"/schedules/{number}/resume")).json()
    assert resumed["state"] == "active"
    assert datetime.fromisoformat(resumed["next"][0]) > datetime.now(UTC)
    assert (await api.post(f"/schedules/{number}/run")).status_code == 200
    fake = gateway.adapters[0]
    assert isinstance(fake, FakeChannel)
    await fake.until(lambda: any("Feed the cat" in one.text for one in fake.sent))
    await settled(gateway)
    [ran] = (await api.get(f"/schedules/{number}/history")).json()["items"]
    assert (ran["outcome"], ran["isByHand"]) == ("done", True)
    assert (await api.delete(f"/schedules/{number}")).status_code == 204
    assert await listed(api) == []
    for method, path in (
        ("GET", ""), ("GET", "/history"), ("PATCH", ""), ("DELETE", ""), ("POST", "/pause"), ("POST", "/run"),
    ):  # fmt: skip
        answer = await api.request(method, f"/schedules/{number}{path}", json={} if method == "PATCH" else None)
        assert (answer.status_code, f"no schedule {number}" in answer.text) == (404, True), (method, path)


async def test_the_same_key_runs_it_once_also_where_the_answer_was_lost(gateway: Gateway, api: Client) -> None:
    number = (await make(api))["id"]
    fake = gateway.adapters[0]
    assert isinstance(fake, FakeChannel)
    for times, key in ((1, "now"), (1, "now"), (2, "later")):
        answer = await api.post(f"/schedules/{number}/run", headers={"idempotency-key": key})
        assert answer.status_code == 200, answer.text
        await fake.until(lambda times=times: len(due_in(fake)) >= times)
        await settled(gateway)
        await gateway.store.engine.write(
            lambda connection: connection.execute("DELETE FROM idempotent_requests").rowcount
        )
    assert len((await api.get(f"/schedules/{number}/history")).json()["items"]) == len(due_in(fake)) == 2


def due_in(channel: FakeChannel) -> list[str]:
    return [one.text for one in channel.sent if one.text == "Water the plants"]


async def test_a_turn_that_it_ran_is_found_by_its_session(gateway: Gateway, api: Client) -> None:
    number = (await make(api, mode="do"))["id"]
    await api.post(f"/schedules/{number}/run")
    fake = gateway.adapters[0]
    assert isinstance(fake, FakeChannel)
    await fake.until(lambda: len(fake.sent) == 2)
    await settled(gateway)
    [ran] = (await api.get(f"/schedules/{number}/history")).json()["items"]
    session = (await api.get(f"/sessions/{ran['session']}")).json()
    assert ran["turn"] in {one["turn"] for one in session["messages"]}


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({"cron": "0 8 * * *"}, 422, ""),
        ({"everyDays": None, "timeOfDay": None, "firstDay": None}, 422, ""),
        ({"everyDays": None, "timeOfDay": None, "firstDay": None, "cron": "* * * * *"}, 422, "more often"),
        ({"zone": "Mars/Olympus"}, 422, "Mars/Olympus"),
        ({"text": " "}, 422, "text"),
        ({"more": 1}, 422, "more"),
        ({"personality": "pirate"}, 404, "pirate"),
        ({"user": "fake:nobody"}, 404, "there is no user"),
        ({"user": None}, 422, "users"),
        ({"to": "other"}, 404, "only fake:ada"),
        ({"user": "fake:ben"}, 403, "guest"),
    ],
)
async def test_what_makes_no_sense_is_refused_with_what_would(
    api: Client, changes: dict[str, Any], status: int, words: str
) -> None:
    answer = await api.post("/schedules", json={**WEEKLY, "user": "fake:ada", **changes})
    assert (answer.status_code, words in answer.text) == (status, True), answer.text
    assert await listed(api) == []


async def test_a_mistake_names_the_fields_as_the_api_calls_them(api: Client) -> None:
    wrong = {"text": "Tea", "inMinutes": 5, "everyMinutes": 90, "zone": "Mars", "user": "fake:ada"}
    answer = (await api.post("/schedules", json=wrong)).json()
    said = "give exactly one of at, inMinutes, everyMinutes, cron, everyDays"
    assert {one["where"]: one["problem"] for one in answer["errors"]} == {
        "body.zone": "'Mars' is no time zone; expected a name such as Europe/Berlin, or UTC",
        "body.everyMinutes": said,
    }
    assert answer["detail"].endswith(f"; body.everyMinutes: {said}")
    blank = (await api.post("/schedules", json={"text": " ", "inMinutes": 5})).json()
    assert blank["detail"] == "body.text: it is empty; give a text"


async def test_who_is_reached_on_two_channels_says_on_which(gateway: Gateway, api: Client) -> None:
    linked = await api.post("/people/links", json={"one": "fake:ada", "other": "fake:ben"})
    assert linked.status_code < 300, linked.text
    await settled(gateway)
    answer = await api.post("/schedules", json={**WEEKLY, "user": "fake:ada"})
    assert (answer.status_code, "fake:ada, other:ben" in answer.text) == (422, True), answer.text
    assert (await make(api, to="fake"))["conversation"] == "dm-ada"
    made = await make(api, to="fake:ada")
    assert made["conversation"] == "dm-ada"
    for to, status, words in (("other", 403, "a guest there"), ("mail", 404, "only fake:ada, other:ben")):
        answer = await api.patch(f"/schedules/{made['id']}", json={"to": to})
        assert (answer.status_code, words in answer.text) == (status, True), answer.text
    assert (await api.patch(f"/schedules/{made['id']}", json={"to": "fake"})).json()["conversation"] == "dm-ada"
    again = await api.patch(f"/schedules/{made['id']}", json={"text": "Tea"})
    assert (again.json()["text"], again.json()["conversation"]) == ("Tea", "dm-ada"), "the rest stays"


async def test_nobody_has_more_than_fifty(gateway: Gateway, api: Client) -> None:
    for _ in range(50):
        await make(api)
    answer = await api.post("/schedules", json={**WEEKLY, "user": "fake:ada"})
    assert (answer.status_code, "50" in answer.text) == (409, True), answer.text
    assert len(await listed(api)) == 50


async def test_the_key_of_a_person_sees_and_makes_that_persons_only(
    gateway: Gateway, api: Client, client_with: Callable[[str | None], Client]
) -> None:
    keys, naming = gateway.web.api.services.keys, gateway.web.api.services.naming
    await gateway.chat.send(OPERATOR, SendMessage(conversation="main", text="hello"))
    await settled(gateway)
    others = (await make(api, user="local:operator"))["id"]
    ada = await naming.user(OPERATOR, "fake:ada")
    scopes = ("schedules:read", "schedules:write")
    async with client_with((await keys.create(OPERATOR, "hers", scopes, ada)).key) as own:
        made = await own.post("/schedules", json=WEEKLY)
        assert (made.status_code, made.json()["user"]) == (201, ada), made.text
        assert await listed(own) == [made.json()["id"]]
        assert (await own.post(f"/schedules/{made.json()['id']}/pause")).status_code == 200
        assert (await own.get("/schedules", params={"user": "local:operator"})).status_code == 403
        assert (await own.post("/schedules", json={**WEEKLY, "user": "local:operator"})).status_code == 403
        for method, path in (
            ("GET", ""), ("GET", "/history"), ("DELETE", ""), ("POST", "/pause"), ("POST", "/resume"), ("POST", "/run"),
        ):  # fmt: skip
            assert (await own.request(method, f"/schedules/{others}{path}")).status_code == 404, (method, path)
        assert (await own.patch(f"/schedules/{others}", json={"text": "x"})).status_code == 404
    async with client_with((await keys.create(OPERATOR, "reads", scopes[:1], ada)).key) as reads:
        assert (await reads.post("/schedules", json=WEEKLY)).status_code == 403
    assert (await api.get(f"/schedules/{others}")).json()["state"] == "active"


async def test_a_place_of_a_group_is_no_place_for_the_api(gateway: Gateway, api: Client) -> None:
    """Who has only been heard in a group has no conversation of their own, so nothing is made."""
    fake = gateway.adapters[0]
    assert isinstance(fake, FakeChannel)
    said = fake.message("hi", user="eve", conversation="group", is_direct=False, mentions_bot=True)
    await fake.deliver(said)
    await fake.answers_to(said)
    answer = await api.post("/schedules", json={**WEEKLY, "user": "fake:eve"})
    assert (answer.status_code, "has not written" in answer.text) == (409, True), answer.text
    assert await gateway.store.schedules.schedules() == []
