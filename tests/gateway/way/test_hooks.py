"""A service calls a hook: once proved, the call is on disk before it is answered, and begins one turn."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from structlog.testing import capture_logs

from gateway.app.gateway import Gateway
from gateway.config.file import load_config
from gateway.domain.hook_proofs import WINDOW_S, standard_signature
from gateway.errors import ConfigError, ModelRefused, ModelUnavailable, StoreUnavailable
from gateway.messages import Action
from gateway.people.access_records import Rank, SetRank
from gateway.schedules.hooks import MOST_WAITING
from gateway.schedules.rule import Once
from gateway.schedules.schedule import MOST_FAILURES, TAKEN_OUT, Schedule
from gateway.schedules.schedules import ScheduleError
from gateway.web.hooks import MAX_BODY_BYTES
from tests.fake_channel import FakeChannel
from tests.gateway.privacy.conftest import found_in
from tests.gateway.way.conftest import House, settled
from tests.gateway.way.test_approvals import POST, Post, owned, post  # noqa: F401 (a fixture)
from tests.gateway.way.test_linking import DESK, link
from tests.scripted_model import Hang, ScriptedModel, call

SECRET = "whsec_" + "A" * 43 + "="
OTHER_SECRET = "whsec_" + "B" * 42 + "A="
TOKEN = "t" * 40
TEXT = "Say what failed, in one line."
CI = {"ci": {"secret": SECRET, "text": TEXT}}
EVENT = b'{"build": 7, "state": "failed"}'


def signed(
    body: bytes = EVENT, *, id_: str = "msg_1", at_s: float | None = None, secret: str = SECRET
) -> dict[str, str]:
    """The headers of Standard Webhooks."""
    timestamp = str(int(time.time() if at_s is None else at_s))
    signature = standard_signature(secret, id_, timestamp, body)
    return {"webhook-id": id_, "webhook-timestamp": timestamp, "webhook-signature": signature}


class Service:
    """A service that calls."""

    def __init__(self, gateway: Gateway) -> None:
        transport = httpx.ASGITransport(app=gateway.web.app, raise_app_exceptions=False)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://localhost")

    async def calls(
        self, path: str = "ci", body: bytes = EVENT, headers: Mapping[str, str] | None = None, **named: str
    ) -> httpx.Response:
        sent = {"content-type": "application/json", **(signed(body) if headers is None else headers)}
        return await self.client.post(f"/hooks/{path}", content=body, headers={**sent, **named})


@asynccontextmanager
async def hooked(
    house: House, model: ScriptedModel, hooks: Mapping[str, Any] | None = None, **settings: Any
) -> AsyncIterator[tuple[Gateway, FakeChannel, Service]]:
    """A gateway with hooks, whose owner has written in a direct chat."""
    async with owned(house, model, hooks=CI if hooks is None else hooks, **settings) as (gateway, channel):
        await channel.ask("/help")
        await settled(gateway)
        service = Service(gateway)
        async with service.client:
            yield gateway, channel, service


async def row(gateway: Gateway, name: str = "ci") -> Schedule:
    kept = await gateway.store.schedules.made_by(f"hook/{name}")
    assert kept is not None
    return kept


async def history(gateway: Gateway, name: str = "ci") -> list[str]:
    found = await gateway.store.schedules.history((await row(gateway, name)).id)
    return [one.outcome for one in found]


def told(channel: FakeChannel) -> list[str]:
    return [message.text for message in channel.sent[1:]]


async def test_a_signed_call_begins_a_turn_with_the_configured_text_and_the_body_as_words_of_others(
    house: House,
) -> None:
    model = ScriptedModel("Build 7 failed.")
    async with hooked(house, model) as (gateway, channel, service):
        answer = await service.calls()
        assert (answer.status_code, answer.json()) == (202, {"id": "msg_1", "new": True})
        await settled(gateway)
        assert told(channel) == ["Build 7 failed."]
        assert await history(gateway) == ["done"]
        session = await gateway.store.engine.row("SELECT is_tainted FROM sessions ORDER BY number DESC LIMIT 1")
    asked = model.requests[0].messages[-1].text
    instruction, _, sent = asked.partition("\n")
    assert instruction == TEXT
    assert json.loads(sent) == {"not_from_the_person": "call of the hook ci", "text": EVENT.decode()}
    assert "A service has called." in model.requests[0].system
    assert session["is_tainted"]


async def test_what_a_call_wants_done_in_the_world_waits_for_a_yes(house: House, post: Post) -> None:  # noqa: F811
    model = ScriptedModel([POST], "It waits.")
    async with hooked(house, model) as (gateway, channel, service):
        await service.calls(body=b"post hello to ada")
        await settled(gateway)
        assert post.sent == []
        assert "Number 1: `post`" in channel.sent[-1].text
        assert "call of the hook ci" in channel.sent[-1].text, "whose words stood in front of it"


async def test_a_grant_to_this_hook_spares_the_question_for_that_destination_and_no_other_turn_has_it(
    house: House,
    post: Post,  # noqa: F811
) -> None:
    model = ScriptedModel([POST], "It waits.", "It is sent.", [POST], "Sent.", [POST], "It waits, too.")
    async with hooked(house, model) as (gateway, channel, service):
        await service.calls(headers=signed(id_="1"))
        await settled(gateway)
        await channel.ask("/yes always 1")
        await settled(gateway)
        assert len(post.sent) == 1
        await service.calls(headers=signed(id_="2"))
        await settled(gateway)
        assert len(post.sent) == 2
        assert "Number 2" not in channel.sent[-1].text
        await channel.ask("post it")
        assert len(post.sent) == 2, "the person's own turn asks"


async def test_a_call_that_the_service_sends_again_is_answered_202_and_begins_nothing(house: House) -> None:
    model = ScriptedModel("Build 7 failed.")
    async with hooked(house, model) as (gateway, channel, service):
        first, again = await asyncio.gather(service.calls(), service.calls())
        await settled(gateway)
        later = await service.calls()
        assert [one.status_code for one in (first, again, later)] == [202, 202, 202]
        assert sorted(one.json()["new"] for one in (first, again, later)) == [False, False, True]
        await settled(gateway)
        assert told(channel) == ["Build 7 failed."]


async def test_a_call_of_another_id_at_the_same_moment_is_another_call(house: House) -> None:
    model = ScriptedModel("one", "two")
    async with hooked(house, model) as (gateway, channel, service):
        gateway.hooks.now = lambda: datetime.fromtimestamp(1_800_000_000, UTC)
        for id_ in ("a", "b"):
            headers = signed(id_=id_, at_s=1_800_000_000)
            assert (await service.calls(headers=headers)).status_code == 202
        await settled(gateway)
        assert told(channel) == ["one", "two"]
        assert await history(gateway) == ["done", "done"]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        signed(secret=OTHER_SECRET),
        signed(b"another body"),
        signed() | {"webhook-id": "msg_2"},
        signed() | {"webhook-timestamp": str(int(time.time()) + 1)},
        signed() | {"webhook-signature": "v1,"},
        signed() | {"webhook-signature": signed()["webhook-signature"].replace("v1,", "v2,")},
        {"x-hub-signature-256": "sha256=" + hmac.new(SECRET.encode(), EVENT, "sha256").hexdigest()},
    ],
    ids=["none", "secret", "body", "id", "time", "empty", "version", "way"],
)
async def test_a_call_without_the_right_secret_is_told_the_same_as_one_of_a_hook_that_is_not_there(
    house: House, headers: dict[str, str]
) -> None:
    async with hooked(house, ScriptedModel()) as (gateway, channel, service):
        known, unknown = await service.calls("ci", headers=headers), await service.calls("nothing", headers=headers)
        assert known.status_code == unknown.status_code == 401
        assert known.content == unknown.content
        assert dict(known.headers) == dict(unknown.headers)
        hidden = await service.calls("ci/guess", headers=signed()), await service.calls("nothing/guess")
        assert [one.status_code for one in hidden] == [404, 404]
        assert hidden[0].content == hidden[1].content
        assert told(channel) == []
        assert await gateway.store.engine.rows("SELECT 1 FROM occurrences") == []


async def test_a_right_signature_that_is_too_old_is_told_so(house: House) -> None:
    async with hooked(house, ScriptedModel("in time")) as (gateway, channel, service):
        for at_s in (time.time() - WINDOW_S - 5, time.time() + WINDOW_S + 5):
            answer = await service.calls(headers=signed(at_s=at_s))
            assert answer.status_code == 401
            assert "set the clock" in answer.json()["error"]
        assert (await service.calls(headers=signed(at_s=time.time() - WINDOW_S + 30))).status_code == 202
        await settled(gateway)
        assert told(channel) == ["in time"]


async def test_both_secrets_are_good_while_a_service_changes_to_the_new_one(house: House) -> None:
    hooks = {"ci": {"secret": OTHER_SECRET, "previous_secret": SECRET, "text": TEXT}}
    async with hooked(house, ScriptedModel("old", "new"), hooks) as (gateway, channel, service):
        assert (await service.calls(headers=signed(id_="1"))).status_code == 202
        assert (await service.calls(headers=signed(id_="2", secret=OTHER_SECRET))).status_code == 202
        await settled(gateway)
        assert told(channel) == ["old", "new"]


async def test_a_call_that_is_signed_the_way_of_github_is_taken_once_for_its_delivery(house: House) -> None:
    secret = "g" * 40
    signature = "sha256=" + hmac.new(secret.encode(), EVENT, "sha256").hexdigest()
    hooks = {"ci": {"secret": secret, "proof": "github", "text": TEXT}}
    async with hooked(house, ScriptedModel("one", "two"), hooks) as (gateway, channel, service):
        headers = {"x-hub-signature-256": signature, "x-github-delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958"}
        answers = [await service.calls(headers=headers), await service.calls(headers=headers)]
        assert [(one.status_code, one.json()["new"]) for one in answers] == [(202, True), (202, False)]
        without = {"x-hub-signature-256": signature}  # then the body tells two calls apart
        answers = [await service.calls(headers=without), await service.calls(headers=without)]
        assert [one.json()["new"] for one in answers] == [True, False]
        assert answers[0].json()["id"] == hashlib.sha256(EVENT).hexdigest()
        assert (await service.calls(headers={"x-hub-signature-256": signature[:-1]})).status_code == 401
        assert (await service.calls(headers=signed())).status_code == 401
        await settled(gateway)
        assert told(channel) == ["one", "two"]


async def test_a_service_that_cannot_sign_shows_the_secret_in_the_address(house: House) -> None:
    hooks = {"bell": {"secret": TOKEN, "proof": "address", "text": TEXT}}
    async with hooked(house, ScriptedModel("one", "two", "three"), hooks) as (gateway, channel, service):
        for headers in ({}, {}, {"idempotency-key": "k"}, {"idempotency-key": "k"}):
            assert (await service.calls(f"bell/{TOKEN}", headers=headers)).status_code == 202
        for path in ("bell/" + "u" * 40, f"bell/{TOKEN}/more", f"other/{TOKEN}", f"bell/{TOKEN[:-1]}"):
            assert (await service.calls(path, headers={})).status_code == 404, path
        assert (await service.calls("bell", headers={})).status_code == 401
        await settled(gateway)
        assert told(channel) == ["one", "two", "three"]


async def test_no_log_shows_the_secret_in_an_address_also_where_the_gateway_fails(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = {"bell": {"secret": TOKEN, "proof": "address", "text": TEXT}}
    async with hooked(house, ScriptedModel(), hooks) as (gateway, _channel, service):

        async def fails(*_: object, **__: object) -> None:
            raise RuntimeError("a fault of ours")

        monkeypatch.setattr(gateway.hooks._store, "take", fails)
        with capture_logs() as logs:
            answer = await service.calls(f"bell/{TOKEN}", headers={})
        assert answer.status_code == 500
        assert [one["path"] for one in logs if one["event"] == "web request failed"] == ["/hooks/bell"]
        assert TOKEN not in f"{answer.text} {logs}"


@pytest.mark.parametrize("name", ["ci", "nothing"])
async def test_only_a_post_is_a_call_and_a_body_has_a_bound(house: House, name: str) -> None:
    """All this is the same for a hook that is not there."""
    async with hooked(house, ScriptedModel()) as (_gateway, channel, service):
        got = await service.client.get(f"/hooks/{name}")
        assert (got.status_code, got.headers["allow"]) == (405, "POST")
        large = b"x" * (MAX_BODY_BYTES + 1)
        announced = await service.calls(name, large)

        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(11):
                yield b"x" * 10_000

        streamed = await service.client.post(f"/hooks/{name}", content=pieces(), headers=signed(large))
        for answer in (announced, streamed):
            assert answer.status_code == 413
            assert "100000 bytes at most" in answer.json()["error"]
        assert told(channel) == []


@pytest.mark.parametrize(
    ("content_type", "body", "shown"),
    [
        ("application/json", b'{"a": 1}', '{"a": 1}'),
        ("application/cloudevents+json; charset=utf-8", b"{}", "{}"),
        ("text/plain", "Grüße\nzwei".encode(), "Grüße\nzwei"),
        ("text/plain", "10\u00a0000 東京\u3000大阪\r\n\u200bb\x1b".encode(), "10\u00a0000 東京\u3000大阪\nb"),
        ("", b"no type", "no type"),
        ("application/x-www-form-urlencoded", b"state=failed&who=Ada+L&empty=", "state: failed\nwho: Ada L\nempty: "),
    ],
)
async def test_json_text_and_forms_are_shown_to_the_model(
    house: House, content_type: str, body: bytes, shown: str
) -> None:
    model = ScriptedModel("seen")
    async with hooked(house, model) as (gateway, _channel, service):
        answer = await service.calls(body=body, headers=signed(body), **{"content-type": content_type})
        assert answer.status_code == 202
        await settled(gateway)
    assert json.loads(model.requests[0].messages[-1].text.partition("\n")[2])["text"] == shown


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/octet-stream", b"abc"),
        ("image/png", b"\x89PNG"),
        ("multipart/form-data; boundary=x", b"--x--"),
        ("application/json", b"\xff\xfe{"),
        ("text/plain", b"a\0b"),
        ("application/x-www-form-urlencoded", b"no form"),
        ("application/x-www-form-urlencoded", b"a=%ff"),
    ],
)
async def test_other_bytes_are_refused(house: House, content_type: str, body: bytes) -> None:
    async with hooked(house, ScriptedModel()) as (_gateway, channel, service):
        answer = await service.calls(body=body, headers=signed(body), **{"content-type": content_type})
        assert answer.status_code == 415
        assert "content-type" not in (await service.calls("nothing", body, {}, **{"content-type": content_type})).text
        assert told(channel) == []


async def test_of_a_long_body_the_model_is_shown_the_beginning_and_told_of_the_rest(house: House) -> None:
    model = ScriptedModel("read")
    body = b'"' * MAX_BODY_BYTES
    async with hooked(house, model) as (gateway, channel, service):
        assert (await service.calls(body=body)).status_code == 202
        await settled(gateway)
        assert told(channel) == ["read"]
    asked = model.requests[0].messages[-1].text
    assert len(asked) < 100_000
    assert "[60000 more characters were sent]" in asked


async def test_a_hook_takes_so_many_calls_and_no_more_until_some_have_been_answered(house: House) -> None:
    hang = Hang()
    model = ScriptedModel([hang, "first"], *(["next"] * MOST_WAITING))
    async with hooked(house, model) as (gateway, channel, service):
        assert (await service.calls(headers=signed(id_="0"))).status_code == 202
        await hang.started.wait()
        for number in range(1, MOST_WAITING):
            assert (await service.calls(headers=signed(id_=str(number)))).status_code == 202
        refused = await service.calls(headers=signed(id_="late"))
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "60")
        known = await service.calls(headers=signed(id_="3"))
        assert (known.status_code, known.json()["new"]) == (202, False), "what was taken stays taken"
        hang.released.set()
        await settled(gateway)
        assert (await service.calls(headers=signed(id_="late"))).status_code == 202
        await settled(gateway)
        assert len(told(channel)) == MOST_WAITING + 1


async def test_a_call_that_cannot_be_kept_is_not_answered_202(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    async with hooked(house, ScriptedModel("kept")) as (gateway, channel, service):

        async def full(*_: object, **__: object) -> None:
            raise StoreUnavailable("the disk is full")

        with monkeypatch.context() as broken:
            broken.setattr(gateway.hooks._store, "take", full)
            refused = await service.calls()
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "30")
        assert (await service.calls()).json()["new"]
        await settled(gateway)
        assert told(channel) == ["kept"]


async def test_a_service_that_goes_away_does_not_take_its_call_back(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with hooked(house, ScriptedModel("kept")) as (gateway, channel, service):
        store, goes_on, began = gateway.hooks._store, asyncio.Event(), asyncio.Event()
        take = store.take

        async def slow(*arguments: Any, **named: Any) -> Any:
            began.set()
            await goes_on.wait()
            return await take(*arguments, **named)

        monkeypatch.setattr(store, "take", slow)
        calling = asyncio.create_task(service.calls())
        await began.wait()
        calling.cancel()
        goes_on.set()
        async with asyncio.timeout(20):
            while await history(gateway) != ["done"]:
                await asyncio.sleep(0.01)
        await settled(gateway)
        assert told(channel) == ["kept"]


async def test_the_end_of_the_server_waits_for_the_call_of_a_service_that_went_away_and_its_failure_is_logged(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with hooked(house, ScriptedModel()) as (gateway, _channel, service):
        goes_on, began = asyncio.Event(), asyncio.Event()

        async def slow(*_: object, **__: object) -> None:
            began.set()
            await goes_on.wait()
            raise StoreUnavailable("the disk is full")

        monkeypatch.setattr(gateway.hooks._store, "take", slow)
        calling = asyncio.create_task(service.calls())
        await began.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        ending = asyncio.create_task(gateway.web.stop())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not ending.done()
        with capture_logs() as logs:
            goes_on.set()
            async with asyncio.timeout(20):
                await ending
        assert [one["error"] for one in logs if one["event"] == "hook_not_taken"] == ["the disk is full"]


async def test_a_body_that_does_not_come_is_not_waited_for(house: House) -> None:
    async with hooked(house, ScriptedModel()) as (gateway, _channel, service):
        assert gateway.web._hooks is not None
        gateway.web._hooks._body_timeout_s = 0.05

        async def stalls() -> AsyncIterator[bytes]:
            yield b"{"
            await asyncio.Event().wait()

        answer = await service.client.post("/hooks/ci", content=stalls(), headers=signed())
        assert answer.status_code == 408


async def test_a_call_waits_for_a_model_and_says_when_it_came(house: House) -> None:
    model = ScriptedModel([ModelUnavailable("down")], "Build 7 failed.")
    async with hooked(house, model) as (gateway, channel, service):
        assert (await service.calls()).status_code == 202
        await settled(gateway)
        async with asyncio.timeout(20):
            while len(told(channel)) < 2:
                await asyncio.sleep(0.01)
        waits, answer = told(channel)
        assert "waits, because I cannot reach my model" in waits
        assert answer == "Build 7 failed."


# ---- the schedule behind it -----------------------------------------------------------------------------------------


async def test_a_hook_is_a_schedule_that_is_never_due_and_can_be_paused_and_run_by_hand(house: House) -> None:
    model = ScriptedModel("by hand", "called")
    async with hooked(house, model) as (gateway, channel, service):
        await gateway.configured.settle()
        schedule = await row(gateway)
        assert schedule.next_at is None
        await gateway.schedules.run_now(schedule)
        await gateway.clock.look()
        await settled(gateway)
        assert told(channel) == ["by hand"]
        assert model.requests[0].messages[-1].text == TEXT
        await gateway.schedules.pause(schedule)
        paused = await service.calls()
        assert (paused.status_code, paused.headers["retry-after"]) == (503, "600")
        await gateway.configured.settle()
        assert (await row(gateway)).state == "paused", "what a person has paused stays so"
        await gateway.schedules.resume(schedule)
        assert (await service.calls()).status_code == 202
        await settled(gateway)
        assert told(channel) == ["by hand", "called"]


async def test_a_hook_that_fails_again_and_again_is_paused_and_says_so_also_where_schedules_are_off(
    house: House,
) -> None:
    model = ScriptedModel(*[[ModelRefused("no")]] * MOST_FAILURES)
    async with hooked(house, model, schedules={"enabled": False}) as (gateway, channel, service):
        await gateway.configured.settle()
        past = datetime(2026, 1, 1, tzinfo=UTC)
        reminder = replace(await row(gateway), id=0, key="k", mode="say", text="Tea", rule=Once(at=past), next_at=past)
        kept = await gateway.store.schedules.add(reminder)
        for number in range(MOST_FAILURES):
            assert (await service.calls(headers=signed(id_=f"msg_{number}"))).status_code == 202
            await settled(gateway)
        assert (await row(gateway)).state == "failing"
        gateway.clock.wake()
        await channel.until(lambda: any("I have paused number 1" in text for text in told(channel)))
        assert "Tea" not in told(channel)
        assert kept is not None
        assert await gateway.store.schedules.schedule(kept.id) == kept, "nothing else is done at its time"


async def test_a_hook_that_is_taken_out_of_the_configuration_ends_and_one_that_comes_back_goes_on(house: House) -> None:
    async with hooked(house, ScriptedModel("again")) as (gateway, channel, service):
        await gateway.configured.settle()
        await reloaded(gateway, hooks={})
        gone = await row(gateway)
        assert (gone.state, gone.why) == ("failing", TAKEN_OUT)
        assert (await service.calls()).status_code == 401
        for refused in (gateway.schedules.run_now, gateway.schedules.resume, gateway.schedules.pause):
            with pytest.raises(ScheduleError, match="not in the configuration any more"):
                await refused(gone)
        await reloaded(gateway, hooks=CI)
        assert (await row(gateway)).state == "active"
        assert (await service.calls()).status_code == 202
        await settled(gateway)
        assert told(channel) == ["again"]
        await reloaded(gateway, hooks={})
        await gateway.schedules.cancel(await row(gateway))  # then a person may remove it


async def test_a_hook_that_changes_changes_its_schedule_and_only_the_configuration_does(house: House) -> None:
    async with hooked(house, ScriptedModel()) as (gateway, _channel, _service):
        await gateway.configured.settle()
        before = await row(gateway)
        changed = {"secret": SECRET, "text": "Count them.", "mode": "watch", "personality": "researcher"}
        await reloaded(gateway, hooks={"ci": changed})
        after = await row(gateway)
        assert after.id == before.id
        assert (after.text, after.mode, after.personality_id) == ("Count them.", "watch", "researcher")
        with pytest.raises(ScheduleError, match=r"stands in config\.yaml"):
            await gateway.schedules.cancel(after)


async def test_with_another_secret_a_signature_with_the_old_one_is_refused_at_once(house: House) -> None:
    async with hooked(house, ScriptedModel("new")) as (gateway, channel, service):
        await reloaded(gateway, hooks={"ci": {"secret": OTHER_SECRET, "text": TEXT}})
        assert (await service.calls()).status_code == 401
        assert (await service.calls(headers=signed(secret=OTHER_SECRET))).status_code == 202
        await settled(gateway)
        assert told(channel) == ["new"]


async def test_a_hook_that_has_nothing_to_report_leaves_the_conversation_as_it_was(house: House) -> None:
    hooks = {"ci": {"secret": SECRET, "text": TEXT, "mode": "watch"}}
    model = ScriptedModel("Nothing.", [call("report", '{"text": "It broke."}')], "")
    async with hooked(house, model, hooks) as (gateway, channel, service):
        await channel.ask("/personality assistant")
        found = []
        for id_ in ("1", "2"):
            await service.calls(headers=signed(id_=id_))
            await settled(gateway)
            found += [
                bool(one["is_tainted"]) for one in await gateway.store.engine.rows("SELECT is_tainted FROM sessions")
            ]
        assert found == [False, True], "only the report brings words of others"


@pytest.mark.parametrize(
    "changed",
    [{"text": "Count them."}, {"personality": "researcher"}, {"mode": "watch"}, None],
    ids=["text", "personality", "mode", "taken_out"],
)
async def test_what_was_granted_to_a_hook_ends_when_it_says_something_else(
    house: House,
    post: Post,  # noqa: F811
    changed: dict[str, str] | None,
) -> None:
    model = ScriptedModel([POST], "It waits.", "It is sent.")
    async with hooked(house, model) as (gateway, channel, service):
        await service.calls()
        await settled(gateway)
        await channel.ask("/yes always 1")
        await settled(gateway)
        await reloaded(gateway, hooks={"ci": {"secret": OTHER_SECRET, "text": TEXT}})
        assert len(await gateway.store.approvals.grants()) == 1, "another secret is the same hook"
        await reloaded(gateway, hooks={} if changed is None else {"ci": {"secret": SECRET, "text": TEXT, **changed}})
        await reloaded(gateway, hooks=CI)
        assert await gateway.store.approvals.grants() == []


async def test_a_hook_that_tells_another_person_shows_them_no_earlier_call(house: House) -> None:
    hooks = {"ci": {"secret": SECRET, "text": TEXT, "to": "fake:2"}}
    model = ScriptedModel("for two", [ModelUnavailable("down", retry_after_s=0.5)], "for two again", "for three")
    async with hooked(house, model, hooks) as (gateway, channel, service):
        for number in "23":
            await channel.ask("/help", user=number, conversation=f"c{number}")
        await service.calls(headers=signed(id_="1"))
        await settled(gateway)
        await service.calls(headers=signed(id_="2"))
        await channel.until(lambda: "waits, because I cannot reach my model" in channel.sent[-1].text)
        before = await row(gateway)
        await reloaded(gateway, hooks={"ci": {**hooks["ci"], "to": "fake:3"}})
        async with asyncio.timeout(20):
            while "for two again" not in told(channel):
                await asyncio.sleep(0.01)
        after, kept = await row(gateway), await gateway.store.schedules.schedule(before.id)
        assert kept is not None
        assert (kept.user_id, kept.why) == (before.user_id, TAKEN_OUT)
        assert [one.outcome for one in await gateway.store.schedules.history(before.id)] == ["done", "done"]
        assert (after.account, await history(gateway)) == ("3", [])
        assert not (await service.calls(headers=signed(id_="1"))).json()["new"], "what was taken stays taken"
        assert (await service.calls(headers=signed(id_="3"))).status_code == 202
        await settled(gateway)
        places = [(one.conversation.conversation, one.text) for one in channel.sent if one.text.startswith("for ")]
        assert places == [("c2", "for two"), ("c2", "for two again"), ("c3", "for three")]


async def test_a_hook_goes_on_as_the_same_where_its_person_links_another_account(house: House) -> None:
    hooks = {"ci": {"secret": SECRET, "text": TEXT, "to": "fake:2"}}
    async with hooked(house, ScriptedModel(), hooks) as (gateway, channel, _service):
        await channel.ask("/help", **DESK)
        await gateway.configured.settle()
        before = await row(gateway)
        await link(channel)
        await settled(gateway)
        await gateway.configured.settle()
        after, living = await row(gateway), await gateway.identities.known(["fake:1", "fake:2"])
        assert before.user_id not in living.values()
        assert (after.id, after.user_id) == (before.id, living["fake:1"])


async def test_a_hook_that_was_paused_stays_so_where_it_tells_another_person(house: House) -> None:
    async with hooked(house, ScriptedModel()) as (gateway, channel, service):
        await channel.ask("/help", user="2", conversation="c2")
        await gateway.configured.settle()
        await gateway.schedules.pause(await row(gateway))
        await reloaded(gateway, hooks={"ci": {**CI["ci"], "to": "fake:2"}})
        assert ((await row(gateway)).account, (await row(gateway)).state) == ("2", "paused")
        assert (await service.calls()).status_code == 503


async def test_a_paused_hook_stays_so_where_the_gateway_ends_while_its_person_changes(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with hooked(house, ScriptedModel()) as (gateway, channel, service):
        await channel.ask("/help", user="2", conversation="c2")
        await gateway.configured.settle()
        before = await row(gateway)
        await gateway.schedules.pause(before)

        async def ends(*_: object, **__: object) -> None:
            raise StoreUnavailable("the gateway ends")

        with monkeypatch.context() as ending:
            ending.setattr(gateway.store.schedules, "add", ends)
            await reloaded(gateway, hooks={"ci": {**CI["ci"], "to": "fake:2"}})
        kept = await gateway.store.schedules.schedule(before.id)
        assert kept is not None
        assert kept.is_taken_out
        assert await gateway.store.schedules.made_by("hook/ci") is None
        await gateway.configured.settle()
        assert ((await row(gateway)).account, (await row(gateway)).state) == ("2", "paused")
        assert (await service.calls()).status_code == 503
        await gateway.schedules.resume(await row(gateway))
        assert (await service.calls()).status_code == 202


async def test_a_hook_that_watches_is_silent_unless_it_reports(house: House) -> None:
    hooks = {"ci": {"secret": SECRET, "text": TEXT, "mode": "watch"}}
    model = ScriptedModel("Nothing.", [call("report", '{"text": "It broke."}')], "")
    async with hooked(house, model, hooks) as (gateway, channel, service):
        await service.calls(headers=signed(id_="1"))
        await settled(gateway)
        assert told(channel) == []
        await service.calls(headers=signed(id_="2"))
        await settled(gateway)
        assert told(channel) == ["It broke."]
        assert await history(gateway) == ["done", "silent"]


async def test_the_page_of_a_hook_offers_no_change_and_no_removal_before_it_is_taken_out(house: House) -> None:
    async with hooked(house, ScriptedModel("seen")) as (gateway, channel, service):
        await service.calls()
        await settled(gateway)
        number = (await row(gateway)).id
        transport = httpx.ASGITransport(app=gateway.web.of_owner)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as owner:
            assert "when the hook ci is called" in (await owner.get("/dashboard/schedules")).text
            page = (await owner.get(f"/dashboard/schedules/of/{number}")).text
            assert "/change" not in page
            assert "Run now" in page
            assert ">Remove<" not in page
            assert (await owner.get(f"/dashboard/schedules/of/{number}/change")).status_code == 409
            assert "Remove" not in [action.label for action in await choices(channel, number)]
            assert (await owner.delete(f"/api/v1/schedules/{number}")).status_code == 409
            paths = (await owner.get("/api/v1/openapi.json")).json()["paths"]
            assert "409" in paths["/schedules/{schedule}"]["delete"]["responses"]
            await reloaded(gateway, hooks={})
            page = (await owner.get(f"/dashboard/schedules/of/{number}")).text
            assert "Remove" in page
            assert TAKEN_OUT in page


async def choices(channel: FakeChannel, number: int) -> tuple[Action, ...]:
    """The buttons below one schedule."""
    await channel.ask(f"/schedules {number}")
    return channel.sent[-1].actions


async def test_with_its_person_a_hooks_history_and_what_services_sent_are_erased(house: House) -> None:
    body = b'{"word": "canary-of-a-service"}'
    hooks = {"ci": {"secret": SECRET, "text": TEXT, "to": "fake:2"}}
    async with hooked(house, ScriptedModel("heard"), hooks) as (gateway, channel, service):
        await channel.ask("/help", user="2", conversation="c2")
        assert (await service.calls(body=body, headers=signed(body))).status_code == 202
        await settled(gateway)
        assert found_in(house.home, ["canary-of-a-service"])
        await gateway.privacy.schedule_erasure((await row(gateway)).user_id)
        async with asyncio.timeout(60):
            while await gateway.privacy.eraser().due():
                await asyncio.sleep(0.01)
        assert not found_in(house.home, ["canary-of-a-service"])
        assert await gateway.store.schedules.made_by("hook/ci") is None
        assert (await service.calls(headers=signed(id_="later"))).status_code == 503


# ---- who is told ----------------------------------------------------------------------------------------------------


async def test_the_owner_is_told_in_the_chat_that_they_used_last(house: House) -> None:
    async with hooked(house, ScriptedModel("one", "two")) as (gateway, channel, service):
        await service.calls(headers=signed(id_="1"))
        await settled(gateway)
        await channel.ask("/help", conversation="c9")
        await settled(gateway)
        await service.calls(headers=signed(id_="2"))
        await settled(gateway)
        assert [(one.conversation.conversation, one.text) for one in channel.sent if one.text in ("one", "two")] == [
            ("c1", "one"),
            ("c9", "two"),
        ]


async def test_another_person_is_told_where_they_wrote_and_a_guest_or_stranger_is_not(house: House) -> None:
    hooks = {"ci": {"secret": SECRET, "text": TEXT, "to": "fake:2"}}
    async with hooked(house, ScriptedModel("for two"), hooks) as (gateway, channel, service):
        unknown = await service.calls()
        assert unknown.status_code == 503
        await channel.ask("/help", user="2", conversation="c2")
        assert (await service.calls()).status_code == 202
        await settled(gateway)
        assert (channel.sent[-1].conversation.conversation, channel.sent[-1].text) == ("c2", "for two")
        assert (await row(gateway)).account == "2"


@pytest.mark.parametrize("rank", ["revoked", "guest"])
async def test_for_a_person_who_may_have_none_any_more_no_call_is_taken_and_one_that_waits_is_not_done(
    house: House, rank: Rank
) -> None:
    hooks = {"ci": {"secret": SECRET, "text": TEXT, "to": "fake:2"}}
    model = ScriptedModel([ModelUnavailable("down", retry_after_s=0.5)], "never")
    async with hooked(house, model, hooks) as (gateway, channel, service):
        await channel.ask("/help", user="2", conversation="c2")
        assert (await service.calls()).status_code == 202
        await channel.until(lambda: "waits, because I cannot reach my model" in channel.sent[-1].text)
        change = SetRank(accounts=("fake:2",), rank=rank, via="test", at=datetime.now(UTC))
        await gateway.store.people.change(change)
        gateway.admission.people.changed()
        assert (await service.calls(headers=signed(id_="msg_2"))).status_code == 503
        async with asyncio.timeout(20):
            while (await row(gateway)).state == "active":
                await asyncio.sleep(0.01)
        assert await history(gateway) == ["failed"]
        assert len(model.requests) == 1


async def test_without_an_owner_who_has_written_a_call_is_to_be_sent_again(house: House) -> None:
    async with owned(house, ScriptedModel("now"), hooks=CI) as (gateway, channel):
        service = Service(gateway)
        async with service.client:
            assert (await service.calls()).status_code == 503
            assert "no owner has written" in gateway.configured.problems[0]
            await channel.ask("/help")
            await settled(gateway)
            assert (await service.calls()).status_code == 202
            await settled(gateway)
        assert channel.sent[-1].text == "now"


async def test_the_webhook_channel_keeps_its_address_beside_hooks(house: House) -> None:
    shop = {"kind": "webhook", "secret": OTHER_SECRET, "reply_url": "http://127.0.0.1:1/replies"}
    channels = {"fake": {"kind": "tests.fake_channel"}, "shop": shop}
    async with hooked(house, ScriptedModel("from the hook"), channels=channels) as (gateway, channel, service):
        assert "webhook-id must be there once" in (await service.calls("shop", headers={})).json()["error"]
        assert "webhook-id must be there once" in (await service.calls("shop/", headers={})).json()["error"]
        assert (await service.calls("ci")).status_code == 202
        await settled(gateway)
        assert told(channel) == ["from the hook"]


# ---- the configuration ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hook", "problem"),
    [
        ({"text": TEXT}, "secret"),
        ({"secret": SECRET}, "text"),
        ({"secret": "short", "text": TEXT}, "Standard Webhooks"),
        ({"secret": "x" * 31, "proof": "github", "text": TEXT}, "32 characters or more"),
        ({"secret": "x" * 40 + "/", "proof": "address", "text": TEXT}, "stands in an address"),
        ({"secret": SECRET, "text": TEXT, "to": "Ada"}, "expected owner, or a channel and an account"),
        ({"secret": SECRET, "text": TEXT, "to": "mail:ada@example.org"}, "there is no channel 'mail'"),
        ({"secret": SECRET, "text": TEXT, "personality": "resarcher"}, "did you mean `researcher`"),
    ],
)
def test_what_is_wrong_with_a_hook_is_said_at_the_start(tmp_path: Path, hook: dict[str, str], problem: str) -> None:
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"hooks": {"ci": hook}}))
    with pytest.raises(ConfigError, match=problem) as error:
        load_config(home=tmp_path)
    assert str(hook.get("secret", "-") or "-") not in str(error.value).replace("short for", "")


@pytest.mark.parametrize(
    "hooks", ["7", "{ci: 7}", "{ci: {secret: {file: nowhere}, text: t}}", "{ci: {secret: 7, to: 8}}"]
)
def test_what_is_no_hook_at_all_is_an_error_of_the_start(tmp_path: Path, hooks: str) -> None:
    (tmp_path / "config.yaml").write_text(f"hooks: {hooks}\n")
    with pytest.raises(ConfigError, match="hooks"):
        load_config(home=tmp_path)


def test_a_hook_has_no_name_of_a_channel_and_none_that_is_no_part_of_an_address(tmp_path: Path) -> None:
    hooks = {name: {"secret": SECRET, "text": TEXT} for name in ("fake", "a/b")}
    settings = {"channels": {"fake": {"kind": "tests.fake_channel"}}, "hooks": hooks}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(settings))
    with pytest.raises(ConfigError) as error:
        load_config(home=tmp_path)
    assert "a channel has this name, too" in str(error.value)
    assert "hooks.fake: has the same secret as the hook a/b" in str(error.value)
    assert SECRET not in str(error.value)
    assert "not a hook's name" in str(error.value)


async def reloaded(gateway: Gateway, **settings: Any) -> None:
    """The configuration is another, and taken over."""
    path = gateway.home / "config.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **settings}))
    done = await gateway.reloading.reload()
    assert done.problems == ()
    await gateway.configured.settle()
