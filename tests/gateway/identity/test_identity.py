"""Who is who, seen from outside: ids, labels, joining, hand edits."""

import asyncio
import json
import os
import stat
import threading
import time
from pathlib import Path

import pytest

from gateway.errors import EthosError, FileError, InvalidAccount, LockTimeout, UnsafePath
from gateway.files.atomic import make_private_directory
from gateway.files.locks import FileLock
from gateway.people.identity import IdentityMap, _joining
from gateway.people.identity.file import new_user_id, parse
from tests.conformance.accounts import ADA, OPERATOR, IdentitySuite, Maps


def entries(path: Path) -> dict[str, dict[str, str]]:
    return json.loads(path.read_text())["identities"]


async def test_the_file_is_as_the_documentation_shows_it(people: IdentityMap, path: Path) -> None:
    ada = await people.resolve(ADA, "Ada Çelik 🦊")
    at = entries(path)[ADA]["firstSeenAt"]
    assert path.read_text(encoding="utf-8") == (
        '{\n  "version": 1,\n  "identities": {\n'
        f'    "{ADA}": {{"userId": "{ada}", "label": "Ada Çelik 🦊", "firstSeenAt": "{at}", "via": "first-contact"}}\n'
        "  }\n}\n"
    )


async def test_files_are_for_their_owner_alone(people: IdentityMap, path: Path) -> None:
    await people.resolve(ADA, "Ada")
    await people.resolve("b:1", "Bob")
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


async def test_ten_first_messages_at_once_make_one_user_and_one_write(people: IdentityMap, path: Path) -> None:
    others = [people, IdentityMap(path)]
    ids = await asyncio.gather(*(others[n % 2].resolve(ADA, f"Ada {n}") for n in range(10)))
    assert len(set(ids)) == 1
    assert len(entries(path)) == 1
    assert not (path.parent / ".identity-map.previous.json").exists()


async def test_strangers_who_wait_for_the_lock_are_written_down_together(
    people: IdentityMap, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, writes = people._disk.change, []
    monkeypatch.setattr(people._disk, "change", lambda *args: writes.append(1) or change(*args))
    make_private_directory(path.parent)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group, FileLock(people._lock_path, 10):
        for number in range(100):
            group.create_task(people.resolve(f"k:{number}", ""))
        while len(people._strangers) < 100:
            await asyncio.sleep(0)
    assert len(entries(path)) == 100
    assert len(writes) == 1


def test_new_ids_are_never_those_of_somebody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter(["aaaaaaaaaaaa", "aaaaaaaaaaaa", "bbbbbbbbbbbb"])
    monkeypatch.setattr("secrets.token_hex", lambda _bytes: next(drawn))
    assert new_user_id({"u_aaaaaaaaaaaa"}) == "u_bbbbbbbbbbbb"


# ---- joining --------------------------------------------------------------------------------------------------------


async def test_joining_what_is_joined_writes_nothing(people: IdentityMap, path: Path) -> None:
    operator = await people.ensure_joined(OPERATOR, via="operator")
    before = path.stat()
    assert await people.ensure_joined(OPERATOR, via="operator") == operator
    assert path.stat().st_ino == before.st_ino


def test_accounts_that_were_separated_a_moment_ago_are_not_joined() -> None:
    separated = parse(b'{"desk:operator": "u_1", "local:operator": "u_2"}')
    assert _joining([*OPERATOR, ("desk:1", "")], "operator")(separated) == []


class TestSuite(IdentitySuite):
    @pytest.fixture
    def maps(self, path: Path) -> Maps:
        return lambda: IdentityMap(path)


async def test_nothing_is_written_by_looking_or_by_what_is_refused(people: IdentityMap, path: Path) -> None:
    with pytest.raises(InvalidAccount):
        await people.resolve("a:\0", "Mallory")
    assert await people.users() == []
    assert await people.problems() == []
    assert not path.parent.exists()


# ---- hand edits -----------------------------------------------------------------------------------------------------


def link_in_place(path: Path, old: str, new: str) -> None:
    """Save as an editor that writes into the file itself."""
    path.write_text(path.read_text().replace(old, new))


def link_by_rename(path: Path, old: str, new: str) -> None:
    other = path.with_name("4913~")
    other.write_text(path.read_text().replace(old, new))
    other.replace(path)


@pytest.mark.parametrize("save", [link_in_place, link_by_rename])
async def test_a_hand_edit_counts_at_the_next_message(people: IdentityMap, path: Path, save) -> None:
    ada = await people.resolve(ADA, "Ada")
    bob = await people.resolve("slack:T1/U1", "Bob")
    for _ in range(20):  # each edit is of the same size, and many fall into one tick of the file system's clock
        save(path, bob, ada)
        assert await people.resolve("slack:T1/U1", "") == ada
        save(path, f'"slack:T1/U1": {{"userId": "{ada}"', f'"slack:T1/U1": {{"userId": "{bob}"')
        assert await people.resolve("slack:T1/U1", "") == bob


async def test_an_edit_in_the_same_tick_of_the_clock_and_of_the_same_size_counts_too(
    people: IdentityMap, path: Path
) -> None:
    ada = await people.resolve(ADA, "Ada")
    bob = await people.resolve("slack:T1/U1", "Bob")
    tick_ns = path.stat().st_mtime_ns
    link_in_place(path, bob, ada)
    os.utime(path, ns=(tick_ns, tick_ns))
    assert await people.resolve("slack:T1/U1", "") == ada  # edited after our own write
    tick_ns = time.time_ns() + 500_000_000
    os.utime(path, ns=(tick_ns, tick_ns))
    assert await people.resolve("slack:T1/U1", "") == ada
    link_in_place(path, f'"slack:T1/U1": {{"userId": "{ada}"', f'"slack:T1/U1": {{"userId": "{bob}"')
    os.utime(path, ns=(tick_ns, tick_ns))
    assert await people.resolve("slack:T1/U1", "") == bob  # edited after our reading


async def test_once_the_map_has_settled_a_known_person_costs_no_reading(people: IdentityMap, path: Path) -> None:
    ada = await people.resolve(ADA, "Ada")
    os.utime(path, ns=(1_000_000_000_000_000_000, 1_000_000_000_000_000_000))
    await people.users()
    people._disk = None  # type: ignore[assignment]
    assert await people.resolve(ADA, "Ada") == ada


async def test_a_hand_edit_survives_our_next_write(people: IdentityMap, path: Path) -> None:
    await people.resolve(ADA, "Ada")
    text = path.read_text().replace('"via": "first-contact"', '"pronouns": ["she", 1.5, null], "via": "letter"')
    path.write_text(text.replace('"version": 1,', '"//": "ours",\n "version": 1,\n "team": {"b": 1, "a": 2},'))
    hand_made = json.loads(path.read_text())
    await people.resolve("slack:T1/U1", "Bob")
    now = json.loads(path.read_text())
    assert list(now["identities"]) == [ADA, "slack:T1/U1"]
    assert list(now["identities"].pop(ADA).items()) == list(hand_made["identities"].pop(ADA).items())
    assert list(now) == ["//", "version", "team", "identities"]
    assert list(now["team"]) == ["b", "a"]


async def test_a_bare_user_id_may_stand_for_an_entry(people: IdentityMap, path: Path) -> None:
    ada = await people.resolve(ADA, "Ada")
    path.write_text(path.read_text().replace('"identities": {', f'"identities": {{"irc:ada": "{ada}",'))
    assert await people.resolve("irc:ada", "") == ada
    await people.resolve("irc:bob", "")
    assert json.loads(path.read_text())["identities"]["irc:ada"] == ada
    assert [account.via for account in await people.accounts_of(ada)] == ["hand", "first-contact"]


async def test_an_entry_that_was_removed_by_hand_stays_removed(people: IdentityMap, path: Path) -> None:
    ada = await people.resolve(ADA, "Ada")
    await people.resolve("slack:T1/U1", "Bob")
    path.write_text('{"version": 1, "identities": {}}')
    assert await people.users() == []
    assert await people.resolve(ADA, "Ada") != ada
    assert list(entries(path)) == [ADA]
    assert await people.problems() == []


async def test_what_a_killed_process_left_half_written_is_swept_away(written: Path) -> None:
    for name in (".identity-map.json.0123456789ab.tmp", "..identity-map.last-good.json.0123456789ab.tmp"):
        written.with_name(name).write_text("{")
    await IdentityMap(written).resolve(ADA, "Ada")
    assert not list(written.parent.glob("*.tmp"))


# ---- places ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["identity-map.json", ".identity-map.last-good.json", ".identity-map.lock"])
async def test_a_link_out_of_the_data_directory_is_refused(written: Path, tmp_path: Path, name: str) -> None:
    outside = tmp_path / "outside.json"
    outside.write_text("{}")
    written.with_name(name).symlink_to(outside)
    with pytest.raises(UnsafePath):
        await IdentityMap(written).resolve(ADA, "Ada")
    assert outside.read_text() == "{}"


async def test_a_users_directory_that_leads_out_is_refused(path: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    path.parent.parent.mkdir()
    path.parent.symlink_to(outside)
    with pytest.raises(UnsafePath):
        await IdentityMap(path).resolve(ADA, "Ada")
    assert list(outside.iterdir()) == []


async def test_a_link_that_stays_inside_is_written_through(written: Path) -> None:
    real = written.parent.parent / "people.json"
    real.write_text("{}")
    written.symlink_to(real)
    await IdentityMap(written).resolve(ADA, "Ada")
    assert written.is_symlink()
    assert list(entries(real)) == [ADA]


async def test_a_stranger_waits_for_the_lock_in_vain_and_those_known_do_not(path: Path) -> None:
    people = IdentityMap(path, lock_timeout_s=0.05)
    ada = await people.resolve(ADA, "Ada")
    async with FileLock(path.with_name(".identity-map.lock"), 1):
        with pytest.raises(LockTimeout, match=str(os.getpid())):
            await people.resolve("slack:T1/U1", "Bob")
        path.write_text(path.read_text().replace("Ada", "Countess"))
        assert await people.resolve(ADA, "") == ada
        assert any("no copy" in problem for problem in await people.problems())
    await people.resolve("slack:T1/U1", "Bob")
    assert await IdentityMap(path).problems() == []


@pytest.mark.parametrize("jump_s", [86_400, -86_400])
async def test_a_clock_that_jumps_while_the_lock_is_waited_for_ends_no_wait(
    path: Path, monkeypatch: pytest.MonkeyPatch, jump_s: int
) -> None:
    now, now_ns = time.time, time.time_ns
    people = IdentityMap(path, lock_timeout_s=50)
    make_private_directory(path.parent)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        async with FileLock(path.with_name(".identity-map.lock"), 1):
            strangers = [group.create_task(people.resolve(f"k:{number}", "")) for number in range(20)]
            while len(people._strangers) < 20:
                await asyncio.sleep(0)
            monkeypatch.setattr("time.time", lambda: now() + jump_s)
            monkeypatch.setattr("time.time_ns", lambda: now_ns() + jump_s * 10**9)
        await asyncio.wait(strangers)
    assert len({stranger.result() for stranger in strangers}) == 20
    assert await people.resolve("k:20", "")


async def test_a_place_that_cannot_be_written_gets_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "users").write_text("a file")
    with pytest.raises(EthosError, match="users"):
        await IdentityMap(tmp_path / "data" / "users" / "identity-map.json").resolve(ADA, "Ada")


async def test_a_full_disk_changes_nothing_and_the_next_try_succeeds(
    people: IdentityMap, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = await people.resolve(ADA, "Ada")
    before = path.read_bytes()
    with monkeypatch.context() as patch:

        def no_space(*_: object) -> int:
            raise OSError(28, "No space left on device")

        patch.setattr("gateway.files.atomic.os.write", no_space)
        with pytest.raises(FileError, match="No space left"):
            await people.resolve("slack:T1/U1", "Bob")
        assert await people.resolve(ADA, "") == ada
    assert path.read_bytes() == before
    bob = await people.resolve("slack:T1/U1", "Bob")
    assert entries(path)["slack:T1/U1"]["userId"] == bob
    assert not list(path.parent.glob(".*.tmp"))


async def test_a_cancelled_first_contact_holds_the_lock_until_its_write_is_over(
    people: IdentityMap, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await people.resolve(ADA, "Ada")
    change, is_writing, go_on = people._disk.change, threading.Event(), threading.Event()

    def change_slowly(*args):
        is_writing.set()
        assert go_on.wait(10)
        return change(*args)

    monkeypatch.setattr(people._disk, "change", change_slowly)
    task = asyncio.create_task(people.resolve("slack:T1/U1", "Bob"))
    await asyncio.to_thread(is_writing.wait, 10)
    task.cancel()
    with pytest.raises(LockTimeout):
        await IdentityMap(path, lock_timeout_s=0.05).resolve("slack:T1/U2", "Cleo")
    task.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert list(entries(path)) == [ADA, "slack:T1/U1"]
