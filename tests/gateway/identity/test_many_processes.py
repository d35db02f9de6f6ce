"""Several processes and one map."""

import json
from pathlib import Path

import pytest

from gateway.people.identity import IdentityMap
from tests.gateway.identity import minters


def entries(path: Path) -> dict[str, str]:
    found = json.loads(path.read_text())["identities"]
    return {key: entry if isinstance(entry, str) else entry["userId"] for key, entry in found.items()}


def leftovers(path: Path) -> list[str]:
    return [name for name in (file.name for file in path.parent.iterdir()) if ".tmp" in name or ".broken" in name]


@pytest.mark.slow
def test_first_messages_in_four_processes_at_once_make_one_user(path: Path) -> None:
    answers = minters.run_together([minters.start(path, ["telegram:1"] * 10) for _ in range(4)])
    ids = {user_id for answer in answers for user_id in answer}
    assert len(ids) == 1
    assert entries(path) == {"telegram:1": ids.pop()}
    assert leftovers(path) == []


@pytest.mark.slow
def test_four_processes_that_meet_the_same_fifty_people_agree_on_each(path: Path) -> None:
    keys = [f"telegram:{number}" for number in range(50)]
    answers = minters.run_together([minters.start(path, keys[shift:] + keys[:shift]) for shift in (0, 13, 26, 39)])
    ids = dict(zip(keys, answers[0], strict=True))
    for answer, shift in zip(answers, (0, 13, 26, 39), strict=True):
        assert dict(zip(keys[shift:] + keys[:shift], answer, strict=True)) == ids
    assert entries(path) == ids


@pytest.mark.slow
def test_two_thousand_people_met_by_four_processes_are_all_there_each_once(path: Path) -> None:
    """Row 14."""
    shares = [[f"k{process}:{number}" for number in range(500)] for process in range(4)]
    answers = minters.run_together([minters.start(path, share) for share in shares])
    told = {}
    for share, ids in zip(shares, answers, strict=True):
        told |= zip(share, ids, strict=True)
    assert entries(path) == told
    assert len(set(told.values())) == 2000
    assert path.with_name(".identity-map.last-good.json").read_bytes() == path.read_bytes()


@pytest.mark.slow
async def test_a_process_that_is_killed_while_it_writes_loses_nobody_and_breaks_nothing(path: Path) -> None:
    """Row 14."""
    ada = await IdentityMap(path).resolve("telegram:1", "Ada")
    for round_ in range(8):
        process = minters.start(path, [f"r{round_}:{number}" for number in range(2000)], "in-turn")
        try:
            minters.let_go(process)
            assert process.stdout is not None
            told = [process.stdout.readline() for _ in range(3 + round_)]
        finally:
            process.kill()
            told += process.communicate()[0].splitlines(keepends=True)
        assert 0 < len(told) < 2000
        there = entries(path)
        assert there["telegram:1"] == ada
        for line in told[:-1]:
            key, user_id = line.decode().split()
            assert there[key] == user_id
        people = IdentityMap(path)
        assert await people.resolve(f"after:{round_}", "") not in there.values()
        assert await people.problems() == []
        assert leftovers(path) == []


@pytest.mark.slow
def test_what_an_editor_saves_while_processes_write_is_all_there_in_the_end(path: Path) -> None:
    edits = {f"hand:{number}": f"u_hand_{number}" for number in range(40)}
    processes = [
        minters.start(path, [f"k{process}:{number}" for number in range(2000)], "in-turn") for process in (1, 2)
    ]
    try:
        for process in processes:
            minters.let_go(process)
        for process in processes:  # the map is there now
            assert process.stdout is not None
            process.stdout.readline()
        for key, user_id in edits.items():
            text = path.read_text()
            path.write_text(text.replace('"identities": {', f'"identities": {{\n"{key}": "{user_id}",', 1))
            for process in processes:  # and writes on
                assert process.stdout is not None
                process.stdout.readline()
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    there = entries(path)
    assert {key: there.get(key) for key in edits} == edits
    assert not [name for name in leftovers(path) if ".broken" in name]
