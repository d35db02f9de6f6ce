"""Two gateways on one database do each job once, and show and know what the other one does."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest

from gateway import __version__
from gateway.agent.budgets import Bill, PlannedCall
from gateway.agent.model import ModelUsage, Spender
from gateway.app import cluster
from gateway.app.gateway import Gateway
from gateway.app.telling import MAX_PREVIEW_BYTES, PREVIEW_EVERY_S
from gateway.app.upkeep import Upkeep
from gateway.cluster.worker import SeenWorker, Worker, differences
from gateway.config.file import load_config
from gateway.errors import StoreError, StoreMoved
from gateway.files.home import EXPORTS_NAME
from gateway.messages import ConversationRef, OutboundMessage
from gateway.ops.privacy import sweeping
from gateway.people.access_records import SetRank
from gateway.people.logins import STEP_S, totp
from gateway.pipeline.local_channel import ToolStep, named_place
from gateway.protocols import MemoryScope, MemoryUpdate
from gateway.runtime.observe import note, span, stage
from gateway.services.caller import operator
from gateway.store.blobs import SqlBlobs
from gateway.store.copy_state import set_state
from gateway.store.idempotency import KEPT_MS, SqlIdempotency, StoredAnswer
from gateway.store.settings import ForeignSecret
from tests.conformance.links import link
from tests.fake_channel import FakeChannel, FakeChannelWithPreviews
from tests.gateway.cluster.test_gateways import PATIENCE_S, SECRET, config, reaches, serving

CHAT = named_place("operator", "chat")
THERE = ConversationRef(channel="web", conversation="c1")
OPERATOR = operator("test")


class Seen:
    """What somebody sees who watches a conversation."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def has_news(self) -> None:
        self.told.append("news")

    def show_preview(self, message: OutboundMessage) -> None:
        self.told.append(message.text)

    def show_typing(self) -> None:
        self.told.append("typing")

    def show_tool(self, step: ToolStep) -> None:
        self.told.append((step.tool, step.state, step.is_ok))

    def end(self) -> None:
        self.told.append("end")


async def until(holds: Callable[[], object]) -> None:
    while not holds():
        await asyncio.sleep(0.01)


def pair(tmp_path: Path, url: str) -> tuple[Path, Path]:
    homes = [config(tmp_path / name, url, name) for name in ("north", "south")]
    for home in homes:
        text = (home / "config.yaml").read_text()
        kind = "kind: tests.fake_channel, has_previews: true, max_attachment_bytes: 10000000"
        (home / "config.yaml").write_text(text.replace("kind: tests.fake_channel", kind))
    return homes[0], homes[1]


@pytest.mark.slow
async def test_what_one_worker_does_is_seen_at_the_other(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOT", SECRET)  # for the reload
    first, second = pair(tmp_path, postgres_url)
    async with asyncio.timeout(PATIENCE_S), serving(first) as (north, _):
        await reaches(north, "up")
        async with serving(second) as (south, _):
            await reaches(south, "elsewhere")
            await _sees_a_conversation(north, south)
            await _shows_on_the_channel_of_the_other(south, north)
            await _knows_people_pages_and_sign_ins(north, south)
            await _signs_in_at_either(north, south)
            await _sends_an_export_of_the_other(south, north)
            await _erases_what_the_other_was_asked(south, north)
            await _says_that_configurations_differ(north, south)
            await _reloads(north, south)


async def _sees_a_conversation(north: Gateway, south: Gateway) -> None:
    here, there = Seen(), Seen()
    message = OutboundMessage(id="r1", conversation=CHAT, text="so far")
    long = "a long line with \n and é" * 1_000
    with north.local_channel.watched(CHAT, here), south.local_channel.watched(CHAT, there):
        await north.local_channel.show_typing(CHAT)
        await until(lambda: "typing" in there.told)
        with stage("turn", "t1", CHAT), span("tool.call", tool="search"):
            note(outcome="done")
        with stage("turn", "t1", CHAT), span("tool.call", tool="post"):
            note(outcome="failed")
        await north.local_channel.preview(message)
        await north.local_channel.preview(replace(message, text="so far, and"))
        await north.local_channel.preview(replace(message, text="so far, and then the model thinks"))
        await until(lambda: "so far, and then the model thinks" in there.told)
        assert "so far, and" not in there.told
        await north.local_channel.preview(replace(message, text="so far, and too soon to be told"))
        await north.local_channel.preview(replace(message, id="r2", text=long))
        await north.local_channel.send(message)
        await until(lambda: "news" in there.told)
        begun = {("search", "began", True), ("post", "began", True)}
        steps = {*begun, ("search", "ended", True), ("post", "ended", False)}
        assert [one for one in there.told if one not in steps][:2] == ["typing", "so far"]
        assert steps <= set(there.told)
        assert steps <= set(here.told)
        cut = next(one for one in there.told if one[:6] == "a long")
        assert long.startswith(cut)
        assert 0.8 * MAX_PREVIEW_BYTES < len(cut.encode()) < MAX_PREVIEW_BYTES
        assert here.told.count("news") == 1, "nothing comes back"
        await asyncio.sleep(2 * PREVIEW_EVERY_S)
        assert "so far, and too soon to be told" not in there.told, "the answer is there"
        assert "so far, and too soon to be told" in here.told


async def _shows_on_the_channel_of_the_other(south: Gateway, north: Gateway) -> None:
    holder = cast("FakeChannelWithPreviews", north.channels.find("web"))
    shows = cast("FakeChannelWithPreviews", south.channels.showing("web"))
    assert shows.capabilities == holder.capabilities
    message = OutboundMessage(id="r3", conversation=THERE, text="as far", reply_to="m1")
    await shows.preview(message)
    await until(lambda: holder.previews)
    assert holder.previews == [message]
    await north.outbox.settle(message)
    await shows.preview(replace(message, text="too late"))
    await shows.preview(replace(message, id="r4", text="the next"))
    await until(lambda: holder.previews[-1].text == "the next")
    assert [one.text for one in holder.previews] == ["as far", "the next"]


async def _knows_people_pages_and_sign_ins(north: Gateway, south: Gateway) -> None:
    await south.people.snapshot()
    rank = SetRank(accounts=("fake:1",), rank="guest", via="test", at=datetime.now(UTC))
    await north.store.people.change(rank)
    north.people.changed()
    while (await south.people.snapshot()).ranks.get("fake:1") != "guest":
        await asyncio.sleep(0.01)
    dashboard = await south.web._dashboard.application()  # type: ignore[union-attr]
    async with aclosing(dashboard.context.live.events()) as events:
        await anext(events)
        north.cluster.tell_topics("usage")
        while b"usage" not in (told := await anext(events)):
            assert b"changed" in told
    for end in (north.web.sign_ins.end, north.store.sign_ins.end):  # the latter tells nobody
        cookie = await north.web.sign_ins.begin("a browser")
        sign_in = await south.web.sign_ins.known(cookie)
        assert sign_in is not None
        ending = asyncio.create_task(south.web.sign_ins.until_ended(sign_in))
        await asyncio.sleep(0)
        await end(sign_in.id)
        await ending


async def _signs_in_at_either(north: Gateway, south: Gateway) -> None:
    """What was set up at one counts at the other; a code, a recovery code and the tries count for both together."""
    ada = await north.identities.resolve("fake:ada", "Ada")
    here, there = north.web.api.services.logins, south.web.api.services.logins
    secret = (await here.invite(OPERATOR, ada)).url.rpartition("/")[2]
    key = base64.b32decode((await there.invited(secret)).secret)
    now = datetime.now(UTC)
    step = int(now.timestamp()) // STEP_S
    password = "several words of hers"
    _, codes = await there.join(secret, name="Ada", password=password, code=totp(key, step))
    assert (await here.entered("ada", password, totp(key, step))).user_id is None, "it set the login up at the other"
    tried = await asyncio.gather(*(one.entered("ada", password, totp(key, step + 1)) for one in (here, there)))
    assert [one.user_id for one in tried].count(ada) == 1, "of two at the same time one comes in"
    for one in (here, there) * 3:
        await one.entered("ada", password, "000000")
    assert (await there.entered("ada", password, codes[0])).wait_s > 0
    cookie = await north.web.sign_ins.begin("a browser", ada)
    sign_in = await south.web.sign_ins.known(cookie)
    assert sign_in is not None
    ending = asyncio.create_task(south.web.sign_ins.until_ended(sign_in))
    await asyncio.sleep(0)
    await north.web.api.services.people.revoke(OPERATOR, ada)
    await ending


async def _sends_an_export_of_the_other(south: Gateway, north: Gateway) -> None:
    user_id = await south.identities.resolve("fake:1", "Ada")
    name, size_bytes = await south.privacy.write_export(user_id)
    exported = await south.privacy.deliverable(user_id, name, size_bytes, THERE)
    assert exported.attachment is not None
    assert not (south.home / name).exists()
    message = OutboundMessage(id="r5", conversation=THERE, text="here", attachments=(exported.attachment,))
    async with north.outbox.fetched(message) as sent:
        path = Path(sent.attachments[0].ref)
        assert path.is_relative_to(north.home)
        assert path.stat().st_size == size_bytes == exported.attachment.size_bytes
    assert not path.exists()
    large = await south.privacy.write_export(user_id)
    too_large = await south.privacy.deliverable(user_id, large[0], 10_000_001, THERE)
    assert (too_large.attachment, too_large.place) == (None, f"ethos people export {user_id} FILE")
    assert not (south.home / large[0]).exists()
    await SqlBlobs(south.store.engine).remove(exported.attachment.ref)
    async with north.outbox.fetched(message) as sent:
        assert not Path(sent.attachments[0].ref).exists(), "as a file that is not there any more"


async def _erases_what_the_other_was_asked(south: Gateway, north: Gateway) -> None:
    user_id = await south.identities.resolve("fake:1", "Ada")
    name, size_bytes = await south.privacy.write_export(user_id)
    await south.privacy.deliverable(user_id, name, size_bytes, THERE)
    erasure = await south.privacy.schedule_erasure(user_id)
    assert await north.privacy.is_erased(erasure, wait_s=20)
    assert await south.privacy.is_erased(erasure, wait_s=20)
    assert not await SqlBlobs(north.store.engine).ids(f"{EXPORTS_NAME}/")
    held = [name for gateway in (north, south) for name in gateway.cluster.leases.held]  # type: ignore[attr-defined]
    assert {"job:retention", "job:usage", "job:blobs", "job:memory", "job:links"} <= set(held)
    assert len(held) == len(set(held)), "nothing is held by both"


async def _says_that_configurations_differ(north: Gateway, south: Gateway) -> None:
    path = south.home / "config.yaml"
    path.write_text(path.read_text() + "limits: {steps_per_turn: 8}\n")
    await south.reloading.reload()
    hashes = {one.name: one.config_hash for one in await north.services.system.workers(OPERATOR)}
    while len(set(hashes.values())) == 1:  # until the next beat
        await asyncio.sleep(0.1)
        hashes = {one.name: one.config_hash for one in await north.services.system.workers(OPERATOR)}
    health = await north.health()
    assert health.problems == (
        f"the workers have different configurations: north {hashes['north']}, south {hashes['south']}",
    )
    assert (health.status, health.is_ready) == ("ok", True), "both serve"
    path.write_text(path.read_text().replace("steps_per_turn: 8", "steps_per_turn: 7"))


async def _reloads(north: Gateway, south: Gateway) -> None:
    path = north.home / "config.yaml"
    path.write_text(path.read_text() + "limits: {steps_per_turn: 7}\n")
    await south.services.system.reload(OPERATOR)
    await until(lambda: north.config.limits.steps_per_turn == 7 == south.config.limits.steps_per_turn)
    while (await north.health()).problems:  # until the next beats
        await asyncio.sleep(0.1)


async def test_what_dead_workers_left_is_taken_up_and_what_has_expired_is_removed(
    postgres_url: str, tmp_path: Path
) -> None:
    first, second = pair(tmp_path, postgres_url)
    async with asyncio.timeout(PATIENCE_S), serving(first) as (north, _):
        store, day = north.store, "2026-11-26"
        for owner in ("dead", north.cluster.worker.id):
            spender = Spender(user_id=f"u_{owner}", personality_id="assistant", turn_id=f"t_{owner}")
            planned = PlannedCall(spender=spender, day=day, model="m", input_tokens=1, output_tokens=1)
            await store.usage.reserve(planned, {}, owner=owner)
        dead = SqlIdempotency(store.engine.of("idempotency"), owner="dead")
        assert await dead.begin("op", "key", b"hash") == "new"
        assert await north.idempotency.begin("op", "key", b"hash") == "new", "its owner is dead"
        await dead.begin("op", "old", b"hash")
        await dead.end("op", "old", StoredAnswer(status=200, headers="", body=b""))
        too_old = "UPDATE idempotent_requests SET created_at = created_at - ? WHERE key = 'old'"
        await store.engine.write(lambda connection: connection.execute(too_old, (KEPT_MS + 1,)).rowcount)
        async with serving(second) as (south, _):
            assert await south.idempotency.begin("op", "key", b"hash") == "running", "north lives"
            for upkeep in (Upkeep(north), Upkeep(south)):
                await upkeep.forgive()
                await upkeep.expire()
            reserved = {one.user_id for one in await store.usage.spending(day) if one.reserved.tokens}
            assert reserved == {f"u_{north.cluster.worker.id}"}
            assert [row["key"] for row in await store.engine.rows("SELECT key FROM idempotent_requests")] == ["key"]


def test_workers_of_one_name_are_told_apart_where_they_differ() -> None:
    here, gone = (SeenWorker(worker=_worker("vm", "a1"), silent_s=silent_s, holds=()) for silent_s in (0.0, 60.0))
    there = replace(here, worker=_worker("vm", "b2", version="9.9.9"))
    assert differences([here, gone]) == differences([here, replace(here)]) == []
    assert differences([here, replace(there, silent_s=60.0)]) == [], "it is gone"
    assert differences([here, there]) == [
        "the workers have different configurations: vm a1, vm b2",
        f"the workers have different versions: vm {__version__}, vm 9.9.9",
    ]


def _worker(name: str, config_hash: str, *, version: str = __version__) -> Worker:
    return Worker(id=name + config_hash, name=name, config_hash=config_hash, version=version)


async def test_what_was_told_while_news_did_not_come_is_looked_up(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """News come again after some tenths of a second, so no look needs to have fallen into them."""
    monkeypatch.setattr(cluster, "LOOK_S", 3.0)
    async with (
        asyncio.timeout(PATIENCE_S),
        serving(config(tmp_path / "north", postgres_url, "north")) as (north, _),
        await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as server,
    ):
        await until(lambda: "job:links" in north.cluster.leases.held)  # type: ignore[attr-defined]
        async with serving(config(tmp_path / "south", postgres_url, "south")) as (south, _):
            await north.store.links.decide(link(), request_id=None)
            assert south.linking.people.successors("u_desk") == ["u_desk"], "nobody has told"
            await server.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND application_name = 'ethos news'"
            )
            await until(lambda: south.linking.people.successors("u_desk") == ["u_desk", "u_ada"])


async def test_what_nobody_told_is_found_while_others_tell_of_something_else_all_the_time(
    postgres_url: str, tmp_path: Path
) -> None:
    replies = json.dumps({"from": "another", "told": [{"news": "replies", "channel": "web"}]})
    async with (
        asyncio.timeout(PATIENCE_S),
        serving(config(tmp_path / "north", postgres_url, "north")) as (north, _),
        await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as server,
    ):
        await reaches(north, "up")
        fake = north.adapters[0]
        assert isinstance(fake, FakeChannel)

        async def tell() -> None:
            while True:
                await server.execute("SELECT pg_notify('ethos', %s)", (replies,))

        telling = asyncio.create_task(tell())
        message = fake.message("hello there")
        await north.store.inbox.add(message, "t_1")  # by a worker that died before it told
        await fake.answers_to(message)
        telling.cancel()
        await asyncio.wait([telling])
        seen, notice = Seen(), OutboundMessage(id="r1", conversation=CHAT, text="You are let in.")
        with north.local_channel.watched(CHAT, seen):
            rank = SetRank(accounts=("fake:1",), rank="guest", via="test", at=datetime.now(UTC))
            await north.store.people.change(rank, [notice])  # by one that died before it sent, where all send
            await until(lambda: "news" in seen.told)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda connection: set_state(connection, "moved", "postgresql://elsewhere/ethos"), StoreMoved),
        (lambda connection: connection.execute("UPDATE settings SET value = 'another'"), ForeignSecret),
    ],
    ids=["moved", "another secret"],
)
async def test_a_worker_ends_when_the_database_is_not_its_own_any_more(
    postgres_url: str, tmp_path: Path, change: Callable[[Any], object], error: type[StoreError]
) -> None:
    home = config(tmp_path / "north", postgres_url, "north")

    def work(connection: Any) -> None:
        change(connection)

    async with (
        asyncio.timeout(PATIENCE_S),
        Gateway(home, load_config(home=home, environment={"ROOT": SECRET}).config) as gateway,
    ):
        running = asyncio.create_task(gateway.run(asyncio.Event()))
        await gateway.is_serving.wait()
        await gateway.store.engine.write(work)
        with pytest.raises(error):
            await running


async def test_what_another_worker_writes_of_an_erased_person_is_swept_away(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeping, "LATE_S", 4.0)
    async with asyncio.timeout(PATIENCE_S), serving(config(tmp_path / "north", postgres_url, "north")) as (north, _):
        user_id = await north.identities.resolve("fake:1", "Ada")
        assert await north.privacy.is_erased(await north.privacy.schedule_erasure(user_id), wait_s=20)
        again = await north.identities.resolve("fake:1", "Ada")
        people = {user_id, again}
        for sweep in (None, north.privacy._forget_old):
            for each in people:
                await _write_late(north, each)
            assert await _written(north) == people
            if sweep is not None:
                assert await sweep(files=False)
            while await _written(north) != {again}:
                await asyncio.sleep(0.05)


async def _write_late(gateway: Gateway, user_id: str) -> None:
    """What a turn, and the memory of one before it, leave on a worker that has not heard of the erasure."""
    day, store = "2026-11-26", gateway.store
    spender = Spender(user_id=user_id, personality_id="assistant", turn_id=f"t_{user_id}")
    planned = PlannedCall(spender=spender, day=day, model="m", input_tokens=1, output_tokens=1)
    await store.usage.reserve(planned, {}, owner=gateway.cluster.worker.id)
    call = ModelUsage(model="m", input_tokens=1, output_tokens=1, cost_usd=None)
    await store.usage.settle(Bill(None, spender, day, (call,)))
    scope = MemoryScope(user_id=user_id, personality_id="assistant", session_id=None, turn_id=f"t_{user_id}")
    await gateway.memory_provider.sync(scope, [MemoryUpdate(action="add", store="user", content="Name: Ada")])


async def _written(gateway: Gateway) -> set[str]:
    """Of whom any of it is left."""
    rows = await gateway.store.engine.rows(
        "SELECT user_id FROM usage UNION SELECT user_id FROM reservations UNION SELECT user_id FROM usage_days"
        " UNION SELECT user_id FROM memory_journal UNION SELECT substr(path, 7) FROM documents"
    )
    return {row[0].partition("/")[0] for row in rows if row[0].startswith("u_")}


async def test_a_command_without_a_gateway_tells_the_workers_what_it_did(postgres_url: str, tmp_path: Path) -> None:
    first, second = pair(tmp_path, postgres_url)
    async with asyncio.timeout(PATIENCE_S), serving(first) as (north, _):
        await reaches(north, "up")
        user_id = await north.identities.resolve("fake:1", "Ada")
        command = Gateway(second, load_config(home=second, environment={"ROOT": SECRET}).config, is_served=False)
        async with command.at_rest(makes=True):
            erasure = await command.privacy.schedule_erasure(user_id)
        assert await north.privacy.is_erased(erasure, wait_s=20), "it does not wait for the next look, in a minute"
