"""Row 15: a map that is broken, missing or half saved: nobody is taken for somebody else, and nothing is lost."""

import json
import os
import time
from pathlib import Path

import pytest
import structlog

from gateway.errors import FileError, IdentityMapBroken
from gateway.people.identity import IdentityMap
from gateway.people.identity import disk as identity_disk
from gateway.people.identity.disk import IdentityDisk
from gateway.people.identity.file import Account, IdentityDocument

ADA, BOB, CLEO = "telegram:1", "slack:T1/U1", "discord:9"


def broken_copies(path: Path) -> list[bytes]:
    return [kept.read_bytes() for kept in IdentityDisk(path).set_aside()]


def is_whole(data: bytes) -> bool:
    try:
        json.loads(data)
    except ValueError:
        return False
    return True


async def two_people(path: Path) -> tuple[str, str]:
    people = IdentityMap(path)
    return await people.resolve(ADA, "Ada"), await people.resolve(BOB, "Bob")


@pytest.mark.slow
async def test_a_map_that_is_cut_anywhere_serves_whom_it_knew(path: Path) -> None:
    """Row 15."""
    known = await two_people(path)
    whole = path.read_bytes()
    running = IdentityMap(path)
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        for people in (running, IdentityMap(path)):
            assert (await people.resolve(ADA, ""), await people.resolve(BOB, "")) == known, length
        assert is_whole(whole[:length]) or broken_copies(path)[-1] == whole[:length]
    assert len(broken_copies(path)) == identity_disk.MAX_BROKEN_COPIES


async def test_a_stranger_who_comes_to_a_cut_map_is_new_and_nobody_is_lost(path: Path, no_grace: None) -> None:
    known = await two_people(path)
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        stranger = await IdentityMap(path).resolve(f"k:{length}", "Stranger")
        assert stranger not in known
        people = IdentityMap(path)
        assert (await people.resolve(ADA, ""), await people.resolve(BOB, "")) == known
        assert await people.resolve(f"k:{length}", "") == stranger
        assert whole[:length] in broken_copies(path)
        assert {ADA, BOB, f"k:{length}"} <= json.loads(path.read_bytes())["identities"].keys()


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"",
        lambda whole: b"\0" * len(whole),
        lambda whole: whole[:40] + b"\0" * (len(whole) - 40),
        lambda whole: whole + whole,
        lambda whole: whole.replace(b'"version": 1', b'"version": "one"'),
        lambda whole: whole.replace(b'"userId": "u_', b'"userId": "../../u_'),
        lambda whole: whole.replace(BOB.encode(), ADA.encode()),
        lambda whole: whole.replace(b"}", b"},"),
        lambda whole: whole.replace(b'"', b"\xe2\x80\x9c"),
        lambda _: b'"a string"',
        lambda _: os.urandom(200),
    ],
    ids=["empty", "NULs", "NUL tail", "twice", "version", "path", "same key", "commas", "quotes", "string", "noise"],
)
async def test_a_damaged_map_serves_whom_it_knew_and_is_kept_beside_when_it_is_replaced(
    path: Path, damage, no_grace: None
) -> None:
    """Row 15."""
    known = await two_people(path)
    broken = damage(path.read_bytes())
    path.write_bytes(broken)
    people = IdentityMap(path)
    assert (await people.resolve(ADA, ""), await people.resolve(BOB, "")) == known
    assert path.read_bytes() == broken
    assert broken_copies(path) == [broken]
    cleo = await people.resolve(CLEO, "Cleo")
    assert (await people.resolve(ADA, ""), await people.resolve(BOB, "")) == known
    assert {key: entry["userId"] for key, entry in json.loads(path.read_bytes())["identities"].items()} == {
        ADA: known[0],
        BOB: known[1],
        CLEO: cleo,
    }
    assert broken_copies(path) == [broken]


async def test_the_operator_is_told_once_where_the_mistake_is(path: Path) -> None:
    await two_people(path)
    text = path.read_text()
    path.write_text(text.replace("{\n", '{\n  "version": 1\n', 1))
    soon_ns = time.time_ns() + 500_000_000  # young for half a second, so that it is read again for each message
    os.utime(path, ns=(soon_ns, soon_ns))
    people = IdentityMap(path)
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            await people.resolve(ADA, "")
        assert [log["event"] for log in logs] == ["identity_map_broken"]
        assert f"{path}:3:3: " in logs[0]["problem"]
        path.write_text("{")
        await people.resolve(ADA, "")
        assert [log["log_level"] for log in logs] == ["error", "error"]
    live, *kept = await people.problems()
    assert live.startswith(f"{path}:1:2: ")
    assert "last good copy serves" in live
    assert [problem.split(".broken-")[0] for problem in kept] == [str(path)] * 2
    path.write_text(text)
    assert await people.problems() == kept
    for beside in IdentityDisk(path).set_aside():
        beside.unlink()
    assert await people.problems() == []


async def test_a_mended_map_counts_at_once(path: Path) -> None:
    ada, _ = await two_people(path)
    text = path.read_text()
    people = IdentityMap(path)
    path.write_text(text[:-5])
    await people.resolve(ADA, "")
    path.write_text(text.replace(f'"{ADA}": {{"userId": "{ada}"', f'"{ADA}": {{"userId": "u_new"'))
    assert await people.resolve(ADA, "") == "u_new"


async def test_an_edit_that_nobody_looked_at_between_is_the_last_good_one_once_it_was_read(path: Path) -> None:
    await two_people(path)
    path.write_text('{"version": 1, "identities": {"telegram:1": {"userId": "u_new"}}}')
    assert await IdentityMap(path).resolve(ADA, "") == "u_new"
    path.write_text("{")
    assert await IdentityMap(path).resolve(ADA, "") == "u_new"


async def test_without_a_good_copy_a_broken_map_stops_everybody_and_stays_as_it_is(written: Path) -> None:
    written.write_text("{ oops")
    people = IdentityMap(written)
    for _ in range(2):
        with pytest.raises(IdentityMapBroken, match=r"identity-map\.json:1:3: .*Fix the file"):
            await people.resolve(ADA, "Ada")
    with pytest.raises(IdentityMapBroken):
        await people.ensure_joined([(ADA, "Ada")], via="operator")
    assert written.read_text() == "{ oops"
    (problem,) = await people.problems()
    assert ":1:3: " in problem
    written.with_name(".identity-map.last-good.json").write_text("also broken")
    with pytest.raises(IdentityMapBroken):
        await people.resolve(ADA, "Ada")
    written.write_text('{"telegram:1": "u_ada"}')
    assert await people.resolve(ADA, "Ada") == "u_ada"


async def test_a_map_that_is_broken_while_we_run_is_served_from_memory_where_the_copy_is_lost(path: Path) -> None:
    people = IdentityMap(path)
    ada = await people.resolve(ADA, "Ada")
    path.with_name(".identity-map.last-good.json").unlink()
    path.write_text("{")
    assert await people.resolve(ADA, "") == ada


async def test_a_missing_map_is_served_from_the_copy_and_reported(path: Path, no_grace: None) -> None:
    known = await two_people(path)
    path.unlink()
    people = IdentityMap(path)
    assert (await people.resolve(ADA, ""), await people.resolve(BOB, "")) == known
    (problem,) = await people.problems()
    assert "is missing" in problem
    assert not path.exists()
    await people.resolve(CLEO, "Cleo")
    assert list(json.loads(path.read_bytes())["identities"]) == [ADA, BOB, CLEO]
    assert await people.problems() == []


async def test_a_missing_map_with_a_broken_copy_is_no_new_start(path: Path) -> None:
    await two_people(path)
    path.unlink()
    path.with_name(".identity-map.last-good.json").write_text("{")
    with pytest.raises(IdentityMapBroken, match="missing"):
        await IdentityMap(path).resolve(ADA, "")


async def test_deleting_the_map_and_its_copy_starts_anew(path: Path) -> None:
    people = IdentityMap(path)
    ada = await people.resolve(ADA, "Ada")
    path.unlink()
    path.with_name(".identity-map.last-good.json").unlink()
    assert await people.users() == []
    assert await people.resolve(ADA, "Ada") != ada


async def test_a_map_of_a_newer_program_is_left_alone(path: Path) -> None:
    people = IdentityMap(path)
    await people.resolve(ADA, "Ada")
    newer = path.read_text().replace('"version": 1', '"version": 2')
    path.write_text(newer)
    for key in (ADA, BOB):
        with pytest.raises(IdentityMapBroken, match="newer program"):
            await people.resolve(key, "")
    assert path.read_text() == newer
    assert "newer program" in (await people.problems())[0]


@pytest.mark.parametrize(("make", "remove"), [(os.mkfifo, Path.unlink), (Path.mkdir, Path.rmdir)])
async def test_a_map_that_is_no_file_serves_whom_it_knew_and_takes_nobody_in(
    path: Path, make, remove, no_grace: None
) -> None:
    known = await two_people(path)
    path.unlink()
    make(path)
    people = IdentityMap(path)
    assert await people.resolve(ADA, "") == known[0]
    with pytest.raises(FileError, match="not a regular file"):
        await people.resolve(CLEO, "Cleo")
    remove(path)
    assert await people.resolve(BOB, "") == known[1]


async def test_a_lost_copy_is_made_anew_from_the_map(path: Path) -> None:
    await two_people(path)
    copy = path.with_name(".identity-map.last-good.json")
    copy.write_text("{")
    await IdentityMap(path).resolve(ADA, "")
    assert copy.read_bytes() == path.read_bytes()


# ---- editors in the middle of it ------------------------------------------------------------------------------------


async def test_a_half_saved_map_is_not_replaced_while_its_editor_is_still_writing(path: Path) -> None:
    await two_people(path)
    whole = path.read_text().replace('"label": "Ada"', '"label": "The Countess"')
    waits = iter(range(1000))

    def wait(_seconds: float) -> None:
        if next(waits) == 5:
            path.write_text(whole)

    people = IdentityMap(path)
    people._disk = IdentityDisk(path, wait=wait)
    path.write_text("")
    await people.resolve(CLEO, "Cleo")
    assert next(waits) > 5
    assert [user.accounts[0].label for user in await people.users()] == ["The Countess", "Bob", "Cleo"]


async def test_a_map_that_its_editor_has_renamed_away_is_waited_for(path: Path) -> None:
    await two_people(path)
    backup = path.with_name("identity-map.json~")

    def wait(_seconds: float) -> None:
        if backup.exists():
            backup.rename(path)

    people = IdentityMap(path)
    people._disk = IdentityDisk(path, wait=wait)
    path.rename(backup)
    with structlog.testing.capture_logs() as logs:
        await people.resolve(ADA, "")
        await people.resolve(CLEO, "Cleo")
    assert logs == []


def cleo(user_id: str = "u_cleo") -> Account:
    return Account(key=CLEO, user_id=user_id, label="Cleo", first_seen_at=None, via="first-contact")


def by_rename(path: Path, text: str) -> None:
    other = path.with_name("4913~")
    other.write_text(text)
    other.replace(path)


def in_place(path: Path, text: str) -> None:
    path.write_text(text)


async def test_a_broken_map_is_never_replaced_before_it_is_kept_beside(path: Path, no_grace: None) -> None:
    await two_people(path)
    path.write_text("{ oops")
    IdentityDisk(path).change(lambda document: document.with_accounts([cleo()]), None)
    assert broken_copies(path) == [b"{ oops"]
    assert CLEO in path.read_text()


@pytest.mark.parametrize("save", [by_rename, in_place])
async def test_an_edit_between_our_reading_and_our_writing_survives(path: Path, save) -> None:
    await two_people(path)
    edited = path.read_text().replace('"label": "Ada"', '"label": "The Countess"')
    disk = IdentityDisk(path)
    documents: list[IdentityDocument] = []

    def change(document: IdentityDocument) -> IdentityDocument:
        if not documents:
            save(path, edited)
        documents.append(document)
        return document.with_accounts([cleo()])

    reading = disk.change(change, None)
    assert len(documents) == 2
    assert [account.label for account in reading.document.accounts()] == ["The Countess", "Bob", "Cleo"]
    assert path.read_bytes() == reading.document.source == disk.copy_path.read_bytes()


async def test_an_edit_in_the_last_moment_before_our_rename_survives(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await two_people(path)
    edited = path.read_text().replace('"label": "Ada"', '"label": "The Countess"')
    link, calls = identity_disk._link, []

    def link_and_edit(target: Path, other: Path) -> bool:
        is_linked = link(target, other)
        if not calls:
            in_place(path, edited)
        calls.append(other)
        return is_linked

    monkeypatch.setattr(identity_disk, "_link", link_and_edit)
    reading = IdentityDisk(path).change(lambda document: document.with_accounts([cleo()]), None)
    assert len(calls) == 2
    assert [account.label for account in reading.document.accounts()] == ["The Countess", "Bob", "Cleo"]
    assert path.read_bytes() == reading.document.source


async def test_an_editor_that_never_stops_saving_gets_its_way_and_we_an_error(path: Path) -> None:
    await two_people(path)
    disk = IdentityDisk(path)
    saves = iter(range(1000))

    def change(document: IdentityDocument) -> IdentityDocument:
        in_place(path, f'{{"telegram:1": "u_{next(saves)}"}}')
        return document.with_accounts([cleo()])

    with pytest.raises(FileError, match="changes faster"):
        disk.change(change, None)
    assert "telegram:1" in path.read_text()
    assert CLEO not in path.read_text()


async def test_where_there_are_no_hard_links_the_map_is_written_all_the_same(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity_disk, "_link", lambda *_: False)
    ada, _ = await two_people(path)
    assert await IdentityMap(path).resolve(ADA, "") == ada


# ---- other forms ----------------------------------------------------------------------------------------------------

FORMS = {
    "array": '[{"platform": "telegram", "platformUserId": "1", "userId": "a1b2c3", "displayLabel": "ada", "x": 1}]',
    "plain": '{"telegram:1": "a1b2c3"}',
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
async def test_another_form_is_rewritten_only_when_somebody_new_comes_and_the_original_is_kept(
    written: Path, form: str
) -> None:
    written.write_text(form)
    people = IdentityMap(written)
    assert await people.resolve(ADA, "Ada") == "a1b2c3"
    assert written.read_text() == form
    assert not list(written.parent.glob("*before-conversion*"))
    await people.resolve(BOB, "Bob")
    assert [kept.read_text() for kept in written.parent.glob("*before-conversion*")] == [form]
    identities = json.loads(written.read_text())["identities"]
    assert [*identities] == [ADA, BOB]
    assert identities[ADA]["userId"] == "a1b2c3"
    assert await people.problems() == []


async def test_each_original_is_kept_once(written: Path) -> None:
    people = IdentityMap(written)
    for number, form in enumerate([*FORMS.values(), *FORMS.values()]):
        written.write_text(form)
        await people.resolve(f"k:{number}", "")
    kept = written.parent.glob("*before-conversion*")
    assert sorted(file.read_text() for file in kept) == sorted(FORMS.values())


async def test_another_form_that_breaks_is_restored_from_its_copy(written: Path, no_grace: None) -> None:
    written.write_text(FORMS["array"])
    await IdentityMap(written).resolve(ADA, "")
    written.write_text(FORMS["array"][:-1])
    people = IdentityMap(written)
    await people.resolve(BOB, "Bob")
    assert await people.resolve(ADA, "") == "a1b2c3"
    assert [kept.read_text() for kept in written.parent.glob("*before-conversion*")] == [FORMS["array"]]
    assert broken_copies(written) == [FORMS["array"][:-1].encode()]
