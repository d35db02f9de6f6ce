"""What is broken is found, its button repairs it, and then it is found no more; twice and half done are safe."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from gateway.app.gateway import Gateway
from gateway.app.services import services_of
from gateway.config import Config
from gateway.errors import AdapterAuthFailed, FileError
from gateway.files.last_backup import LAST_BACKUP_NAME, last_backup
from gateway.sdk.models.system import Finding
from gateway.services.caller import Caller, NotAllowed, NotFound, Refused, operator
from gateway.services.repairs import RepairService
from gateway.services.sessions import SessionQuery
from gateway.store.sqlite import search
from tests.browser.dashboard.writing import write
from tests.gateway.way.conftest import House, settled
from tests.scripted_model import ScriptedModel

OPERATOR = operator("test")
READER = Caller(name="key", permissions=frozenset({"system:read"}), key_id="k_1")
BOOM = [RuntimeError("boom")]


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path / "home")


@asynccontextmanager
async def served(house: House, model: ScriptedModel | None = None, **settings: object) -> AsyncIterator[Gateway]:
    async with house.served(model, **{"channels": {}, **settings}) as gateway:
        await gateway.is_serving.wait()
        await gateway.supervisor.all_tried.wait()
        yield gateway


def repairs(gateway: Gateway) -> RepairService:
    return services_of(gateway).repairs


async def ids(service: RepairService) -> set[str]:
    """Of all that is found now, by the quick checks."""
    return {one.id for one in (await service.findings(OPERATOR)).items}


async def one(service: RepairService, finding: str, *, thorough: bool = False) -> Finding:
    found = await service.findings(OPERATOR, thorough=thorough)
    return next(each for each in found.items if each.id == finding)


async def mended(service: RepairService, finding: str) -> str:
    """It was found, is repaired, and a look finds it no more; what the repair says."""
    done = await service.repair(OPERATOR, finding)
    assert done.is_gone, done
    assert finding not in await ids(service)
    with pytest.raises(NotFound):
        await service.repair(OPERATOR, finding)
    return done.did


# ---- files -----------------------------------------------------------------------------------------------------------


async def test_files_that_others_may_read_are_closed(house: House) -> None:
    async with served(house) as gateway:
        service = repairs(gateway)
        (house.home / "users").chmod(0o755)
        (house.home / "web-token").chmod(0o644)
        assert {"open-directories", "open-files"} <= await ids(service)
        assert "not look into them" in await mended(service, "open-directories")
        assert (house.home / "users").stat().st_mode & 0o777 == 0o700
        assert (house.home / "web-token").stat().st_mode & 0o777 == 0o600
        assert "open-files" not in await ids(service), "one repair closes all of them"


async def test_directories_that_are_shut_are_opened_from_the_top_down(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(house) as gateway:
        person = house.home / "users" / "u_1"
        person.mkdir(mode=0o000)
        monkeypatch.setattr(  # root may everything
            os,
            "access",
            lambda path, mode: not path or bool(Path(path).stat().st_mode & 0o700 >= 0o700 or mode == os.F_OK),
        )
        (house.home / "ethos.sqlite").chmod(0o700)
        for name in ("ethos.sqlite-wal", "ethos.sqlite-shm"):
            (house.home / name).chmod(0o700)
        service = repairs(gateway)
        assert (await one(service, "out-of-reach")).level == "problem"
        assert "1 more" in await mended(service, "out-of-reach")
        assert person.stat().st_mode & 0o777 == 0o700


async def test_drafts_of_writes_that_were_broken_off_are_deleted_and_the_files_stay(house: House) -> None:
    async with served(house) as gateway:
        old, new = house.home / "users" / ".MEMORY.md.0123456789ab.tmp", house.home / ".config.yaml.0123456789ac.tmp"
        kept = house.home / "users" / "notes.tmp"
        for path in (old, new, kept):
            path.write_text("half")
        for path in (old, kept):
            os.utime(path, (time.time() - 7200,) * 2)
        service = repairs(gateway)
        assert (await one(service, "drafts")).level == "note"
        await mended(service, "drafts")
        assert [path.exists() for path in (old, new, kept)] == [False, True, True], "another may be writing it now"


async def test_a_secret_that_no_key_names_is_deleted_after_a_question_and_others_stay(house: House) -> None:
    async with served(house) as gateway:
        secrets = house.home / "secrets"
        secrets.mkdir(mode=0o700, exist_ok=True)
        for name in ("models-old-api_key", "models-m-api_key"):
            (secrets / name).write_text("x")
            (secrets / name).chmod(0o600)
        config = house.home / "config.yaml"
        model = "{provider: openai, model: gpt, api_key: {file: secrets/models-m-api_key}}"
        config.write_text(f"{config.read_text()}\nmodels: {{m: {model}}}\n")
        service = repairs(gateway)
        [orphan] = [one for one in (await service.findings(OPERATOR)).items if "models-old-api_key" in one.what]
        assert orphan.repair is not None
        assert orphan.repair.asks
        await mended(service, orphan.id)
        kept = {path.name for path in secrets.iterdir()}
        assert "models-old-api_key" not in kept
        assert "models-m-api_key" in kept


async def test_a_secret_in_the_configuration_is_moved_to_a_file_and_the_rest_stays_as_it_was(house: House) -> None:
    async with served(house) as gateway:
        config = house.home / "config.yaml"
        config.write_text(
            config.read_text()
            + "\nmodels:\n  m:  # mine\n    provider: openai\n    model: gpt\n    api_key: sk-very-secret\n"
        )
        service = repairs(gateway)
        await service.repair(OPERATOR, "config-changed")
        [clear] = [one for one in (await service.findings(OPERATOR)).items if "a secret is in the file" in one.what]
        assert "models.m.api_key" in await mended(service, clear.id)
        assert "sk-very-secret" not in config.read_text()
        assert "m:  # mine" in config.read_text()
        [kept] = [path for path in (house.home / "secrets").iterdir() if path.name.startswith("models")]
        assert kept.read_text().strip() == "sk-very-secret"
        assert kept.stat().st_mode & 0o777 == 0o600
        assert "config-changed" not in await ids(service), "it says the same as before"


async def test_a_copy_of_a_broken_map_is_deleted_and_the_map_stays(house: House) -> None:
    async with served(house) as gateway:
        await write(gateway, "hello")
        path = house.home / "users" / "identity-map.json"
        broken = b'{"users": '
        copy = path.with_name(f"{path.name}.broken-{hashlib.sha256(broken).hexdigest()[:12]}")
        copy.write_bytes(broken)
        service = repairs(gateway)
        [finding] = [one for one in (await service.findings(OPERATOR)).items if one.id.startswith("identity-map-")]
        assert finding.repair is not None
        assert finding.repair.asks
        await mended(service, finding.id)
        assert path.exists()
        assert not copy.exists()


async def test_a_token_that_others_could_read_is_removed(house: House) -> None:
    async with served(house) as gateway:
        (house.home / "web-token").chmod(0o640)
        service = repairs(gateway)
        await mended(service, "web-token")
        assert not (house.home / "web-token").exists()


async def test_a_full_disk_is_answered_with_the_deletion_of_what_is_old(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(house, retention={"exports_days": None}) as gateway:
        config = house.home / "config.yaml"
        config.write_text(config.read_text().replace("exports_days: null", "exports_days: 1"))
        assert (await gateway.reloading.reload()).problems == ()
        old = house.home / "exports" / "u_1" / "old.zip"
        old.parent.mkdir(parents=True)
        old.write_text("x")
        os.utime(old, (time.time() - 2 * 86_400,) * 2)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(total=1, used=1, free=0))
        done = await repairs(gateway).repair(OPERATOR, "disk-space")
        assert done.did == "Deleted: 1 files of /export."
        assert not done.is_gone, "the disk is as full as before"
        assert not old.exists()


# ---- what the gateway keeps ------------------------------------------------------------------------------------------


async def test_dead_messages_are_tried_again_all_at_once(house: House) -> None:
    model = ScriptedModel(BOOM, BOOM, "fine", "fine")
    async with served(house, model, delivery={"max_attempts": 1, "first_retry_s": 0.001}) as gateway:
        await write(gateway, "first")
        await write(gateway, "second")
        service = repairs(gateway)
        finding = await one(service, "dead-inbox-local")
        assert "2 messages" in finding.what
        assert finding.page == "deliveries?queue=inbox&state=dead&channel=local"
        assert finding.repair is not None
        assert finding.repair.asks
        assert "2 messages will be tried again" in await mended(service, "dead-inbox-local")
        await settled(gateway)
        assert len(model.requests) == 4


async def test_memory_that_is_late_is_brought_in(house: House) -> None:
    async with served(house) as gateway:
        await write(gateway, "hello")
        gateway.memory._late_turns = 1
        service = repairs(gateway)
        assert (await one(service, "memory-late")).level == "warning"
        assert await mended(service, "memory-late") == "All of them are in the memory now."


async def test_memory_that_stays_late_says_why(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(house) as gateway:
        gateway.memory._late_turns = 2

        async def refuse() -> int:
            return 0

        monkeypatch.setattr(gateway.memory, "replay", refuse)
        with pytest.raises(Refused, match="the updates of 2 turns still wait"):
            await repairs(gateway).repair(OPERATOR, "memory-late")


async def hits(gateway: Gateway, word: str) -> int:
    found, _ = await services_of(gateway).sessions.search(OPERATOR, word, SessionQuery(), limit=5)
    return len(found)


async def lost(gateway: Gateway) -> int:
    """Take two messages out of the index."""

    def work(db: object) -> None:
        db.execute("INSERT INTO search (search) VALUES ('delete-all')")  # type: ignore[attr-defined]

    await gateway.store.index.catch_up()
    await gateway.store.engine.write(work)
    return await gateway.store.index.missing()


async def test_an_index_that_lost_messages_is_built_again(house: House) -> None:
    async with served(house) as gateway:
        await write(gateway, "marmalade")
        assert await lost(gateway) == 2
        service = repairs(gateway)
        assert "search-index" not in await ids(service), "it counts all messages, so only a thorough look does"
        assert "2 messages" in (await one(service, "search-index", thorough=True)).what
        await mended(service, "search-index")
        assert await hits(gateway, "marmalade") == 1


async def test_an_index_whose_building_was_broken_off_is_finished_by_the_next_search(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(house) as gateway:
        await write(gateway, "marmalade")
        await write(gateway, "apricots")
        monkeypatch.setattr(search, "BATCH", 1)
        write_one, writes = gateway.store.engine.write, 0

        async def killed(work: object, **how: object) -> object:
            nonlocal writes
            writes += 1
            if writes == 3:
                raise asyncio.CancelledError
            return await write_one(work, **how)  # type: ignore[arg-type]

        monkeypatch.setattr(gateway.store.index._engine, "write", killed)  # type: ignore[attr-defined]
        with pytest.raises(asyncio.CancelledError):
            await gateway.store.index.build()
        monkeypatch.undo()
        assert await hits(gateway, "apricots") == 1
        assert await gateway.store.index.missing() == 0


async def test_an_old_backup_is_followed_by_a_new_one_beside_it(house: House, tmp_path: Path) -> None:
    async with served(house) as gateway:
        await write(gateway, "hello")
        at = datetime.now(UTC) - timedelta(days=20)
        place = tmp_path / "backups"
        place.mkdir()
        word = {"at": at.isoformat(), "file": str(place / "old.tar.gz")}
        (house.home / LAST_BACKUP_NAME).write_text(json.dumps(word))
        service = repairs(gateway)
        assert (await one(service, "backup")).repair is not None
        said = await mended(service, "backup")
        last = last_backup(house.home)
        assert last is not None
        assert last.file in said
        assert [str(path) for path in place.iterdir()] == [last.file]


async def test_a_backup_whose_directory_is_gone_says_so(house: House, tmp_path: Path) -> None:
    async with served(house) as gateway:
        await write(gateway, "hello")
        word = {"at": "2026-01-01T00:00:00+00:00", "file": str(tmp_path / "gone" / "old.tar.gz")}
        (house.home / LAST_BACKUP_NAME).write_text(json.dumps(word))
        with pytest.raises(Refused, match="could not be repaired"):
            await repairs(gateway).repair(OPERATOR, "backup")


# ---- channels and the configuration ----------------------------------------------------------------------------------


async def test_a_channel_whose_key_was_refused_is_connected_again(house: House) -> None:
    async with served(house, channels={"fake": {"kind": "tests.fake_channel"}}) as gateway:
        [adapter] = gateway.adapters
        adapter.connect_failures = [AdapterAuthFailed("the token is wrong")]  # type: ignore[attr-defined]
        await adapter.lose_connection()  # type: ignore[attr-defined]
        await adapter.until(lambda: not adapter.connect_failures)  # type: ignore[attr-defined]
        await asyncio.wait([gateway.supervisor._tasks["fake"]])  # it waits for its operator
        service = repairs(gateway)
        finding = await one(service, "channel-fake")
        assert finding.level == "problem"
        assert finding.page == "channels"
        await mended(service, "channel-fake")
        [again] = gateway.adapters
        assert again is not adapter
        await again.connected()  # type: ignore[attr-defined]


async def test_a_configuration_that_was_changed_is_taken_over(house: House) -> None:
    async with served(house) as gateway:
        service = repairs(gateway)
        assert "config-changed" not in await ids(service)
        config = house.home / "config.yaml"
        config.write_text(config.read_text() + "\nretention: {messages_days: 5}\n")
        assert (await one(service, "config-changed")).page == "settings"
        await mended(service, "config-changed")
        assert gateway.live.current.retention.messages_days == 5


async def test_a_configuration_that_is_wrong_is_not_taken_over(house: House) -> None:
    async with served(house) as gateway:
        service = repairs(gateway)
        (house.home / "config.yaml").write_text("personalty: x")
        found = {one.id: one for one in (await service.findings(OPERATOR)).items}
        assert "config-changed" not in found
        [wrong] = [one for name, one in found.items() if name.startswith("config-")]
        assert wrong.level == "problem"
        assert wrong.repair is None
        with pytest.raises(Refused, match="has no repair; what to do: Edit"):
            await service.repair(OPERATOR, wrong.id)


# ---- who may, and what counts ----------------------------------------------------------------------------------------


async def test_a_key_may_look_but_repairs_nothing_and_spends_nothing(house: House) -> None:
    async with served(house) as gateway:
        service = repairs(gateway)
        (house.home / "users").chmod(0o755)
        assert "open-directories" in {one.id for one in (await service.findings(READER)).items}
        for refused in (
            service.repair(READER, "open-directories"),
            service.put_aside(READER, "open-directories"),
            service.findings(READER, asks=True),
            service.findings(Caller(name="key", permissions=READER.permissions, user_id="u_1", key_id="k_2")),
        ):
            with pytest.raises(NotAllowed):
                await refused


async def test_what_is_put_aside_counts_again_when_it_changes_or_comes_back(house: House) -> None:
    async with served(house) as gateway:
        service = repairs(gateway)
        (house.home / "users").chmod(0o755)
        await service.put_aside(OPERATOR, "open-directories")
        assert (await one(service, "open-directories")).is_put_aside
        assert (await one(repairs(gateway), "open-directories")).is_put_aside, "a restart does not forget it"
        (house.home / "run").chmod(0o755)
        assert not (await one(service, "open-directories")).is_put_aside, "another directory is open, too"
        (house.home / "run").chmod(0o700)
        assert (await one(service, "open-directories")).is_put_aside
        await service.put_aside(OPERATOR, "open-directories", is_put_aside=False)
        assert not (await one(service, "open-directories")).is_put_aside
        await service.put_aside(OPERATOR, "open-directories")
        await service.repair(OPERATOR, "open-directories")
        await service.findings(OPERATOR, thorough=True)
        (house.home / "users").chmod(0o755)
        assert not (await one(service, "open-directories")).is_put_aside, "it is there anew"


async def test_the_number_is_of_a_kept_look_until_something_happens(house: House) -> None:
    async with served(house) as gateway:
        service = repairs(gateway)
        first = await service.latest(OPERATOR, 1)
        (house.home / "users").chmod(0o755)
        assert (await service.latest(OPERATOR, 1)).looked_at == first.looked_at
        second = await service.latest(OPERATOR, 2)
        assert "open-directories" in {one.id for one in second.items}
        assert second.looked_at > first.looked_at


async def test_nobody_waits_for_a_long_repair_to_read_the_number(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(house) as gateway:
        service, goes_on = repairs(gateway), asyncio.Event()
        first = await service.latest(OPERATOR)
        gateway.memory._late_turns = 1

        async def slow() -> int:
            await goes_on.wait()
            gateway.memory._late_turns = 0
            return 1

        monkeypatch.setattr(gateway.memory, "replay", slow)
        repairing = asyncio.create_task(service.repair(OPERATOR, "memory-late"))
        while not service._lock.locked():
            await asyncio.sleep(0)
        async with asyncio.timeout(10):
            assert (await service.latest(OPERATOR, "something happened")).looked_at >= first.looked_at
        goes_on.set()
        assert (await repairing).is_gone


async def test_a_repair_that_fails_says_why_and_the_finding_stays(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(house) as gateway:
        (house.home / "users").chmod(0o755)

        def refuse(_home: Path) -> None:
            raise FileError("the file system is read-only")

        monkeypatch.setattr("gateway.ops.doctor.files.close_to_others", refuse)
        service = repairs(gateway)
        with pytest.raises(Refused, match="it could not be repaired: the file system is read-only"):
            await service.repair(OPERATOR, "open-directories")
        assert "open-directories" in await ids(service)


async def test_two_who_press_at_once_repair_it_once(house: House) -> None:
    async with served(house) as gateway:
        (house.home / "users").chmod(0o755)
        service = repairs(gateway)
        both = [service.repair(OPERATOR, "open-directories") for _ in range(2)]
        first, second = await asyncio.gather(*both, return_exceptions=True)
        assert not isinstance(first, BaseException)
        assert first.is_gone
        assert isinstance(second, NotFound)


async def test_a_look_blocks_nobody_for_long(house: House) -> None:
    """While it looks, the event loop comes round; a look that read files on it would not let it."""
    async with served(house) as gateway:
        longest, looking = 0.0, asyncio.create_task(repairs(gateway).findings(OPERATOR, thorough=True))
        while not looking.done():
            began = time.perf_counter()
            await asyncio.sleep(0.001)
            longest = max(longest, time.perf_counter() - began)
        assert (await looking).looked_at_all_at is not None
        assert longest < 0.5
        assert isinstance(gateway.config, Config)
