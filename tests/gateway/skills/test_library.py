"""Which skills a personality has: the nearest of a name, and only those whose bytes are what the operator trusts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gateway.skills import library as library_module
from gateway.skills.library import LOOK_EVERY_S, Library, NoSuchSkill, SkillChanged, warnings_of
from tests.gateway.skills.conftest import text, write
from tests.gateway.skills.test_folder import nobody_special
from tests.servers import directory


class Trust:
    """What is trusted, in memory; the real store passes `tests/conformance/skills.py`."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], Mapping[str, str]] = {}

    async def trusted(self) -> Mapping[tuple[str, str], Mapping[str, str]]:
        return dict(self.rows)

    async def trust(self, personality_id: str, name: str, files: Mapping[str, str]) -> None:
        self.rows[personality_id, name] = files

    async def forget(self, personality_id: str, name: str) -> bool:
        return self.rows.pop((personality_id, name), None) is not None


def library_at(home: Path, *paths: str) -> Library:
    return Library(home, lambda: paths, Trust(), look_every_s=0)


async def trust(library: Library, name: str = "packing", personality: str = "") -> None:
    entry = await library.find(name, personality)
    assert entry.skill is not None
    await library.trust(name, personality, entry.skill.pin)


async def roots(library: Library, personality: str = "assistant") -> dict[str, Path]:
    return {name: entry.root for name, entry in (await library.of(personality)).items()}


async def test_a_skill_that_is_put_there_by_hand_is_withheld_until_it_is_trusted(tmp_path: Path) -> None:
    root = write(tmp_path / "skills")
    library = library_at(tmp_path)
    with capture_logs() as logged:
        assert await roots(library) == {}
    [line] = logged
    assert (line["event"], line["log_level"]) == ("skill_not_used", "warning")
    problem = f"the skill packing in {root} is withheld: nobody trusts it yet; see `ethos skills trust packing`"
    assert line["why"] == problem
    assert library.problems == [problem]
    await trust(library)
    assert await roots(library) == {"packing": root}
    assert library.problems == []


@pytest.mark.parametrize("file", ["SKILL.md", "scripts/a.py", "assets/new", "references/gone.md"])
async def test_a_changed_byte_withholds_it_until_it_is_trusted_again(tmp_path: Path, file: str) -> None:
    root = write(tmp_path / "skills", scripts__a_dot_py="print(7)", references__gone_dot_md="x")
    library = library_at(tmp_path)
    await trust(library)
    path = root / file
    if file == "references/gone.md":
        path.unlink()
    else:
        path.parent.mkdir(exist_ok=True)
        path.write_text((path.read_text() if path.exists() else "") + " ")
    with capture_logs() as logged:
        assert await roots(library) == {}
    what = {"assets/new": "is new", "references/gone.md": "is gone"}.get(file, "has changed")
    assert f"it is not what was trusted ({file} {what})" in logged[0]["why"]
    await library.look()
    assert len(logged) == 1, "it is said once"
    await trust(library)
    assert await roots(library) == {"packing": root}


async def test_a_change_of_the_same_size_in_the_same_moment_is_seen(tmp_path: Path) -> None:
    """File systems count time in steps, so such a change may leave everything about the file but its bytes."""
    root = write(tmp_path / "skills", scripts__a_dot_py="print(7)")
    library = library_at(tmp_path)
    before = (root / "scripts" / "a.py").stat()
    await trust(library)
    with (root / "scripts" / "a.py").open("r+b") as file:
        file.write(b"print(8)")
    os.utime(root / "scripts" / "a.py", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert await roots(library) == {}


async def test_what_has_not_changed_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write(tmp_path / "skills")
    now = [100.0]
    library = Library(tmp_path, tuple, Trust(), clock=lambda: now[0])
    await trust(library)
    now[0] += 10
    assert await roots(library) == {"packing": root}
    monkeypatch.setattr(library_module, "read_files", None)
    now[0] += 10
    assert await roots(library) == {"packing": root}


async def test_what_was_trusted_once_and_not_last_is_withheld(tmp_path: Path) -> None:
    root = write(tmp_path / "skills")
    library = library_at(tmp_path)
    await trust(library)
    old = (root / "SKILL.md").read_text()
    (root / "SKILL.md").write_text(old + "More.")
    await trust(library)
    (root / "SKILL.md").write_text(old)
    assert await roots(library) == {}


async def test_a_skill_is_trusted_only_as_it_was_shown(tmp_path: Path) -> None:
    root = write(tmp_path / "skills")
    library = library_at(tmp_path)
    entry = await library.find("packing")
    assert entry.skill is not None
    (root / "SKILL.md").write_text(text() + "And send it to me.")
    with pytest.raises(SkillChanged, match="is not what was shown any more"):
        await library.trust("packing", "", entry.skill.pin)
    assert await roots(library) == {}


async def test_what_is_read_is_what_was_hashed_or_it_is_not_read(tmp_path: Path) -> None:
    root = write(tmp_path / "skills", scripts__a_dot_py="print(7)")
    library = library_at(tmp_path)
    await trust(library)
    entry = (await library.of("assistant"))["packing"]
    assert entry.read("scripts/a.py") == b"print(7)"
    (root / "scripts" / "a.py").write_text("print(8)")
    with pytest.raises(SkillChanged, match=r"scripts/a\.py has changed since it was trusted"):
        entry.read("scripts/a.py")
    (root / "scripts" / "a.py").unlink()
    (root / "scripts" / "a.py").symlink_to("/etc/passwd")
    with pytest.raises(SkillChanged, match="is a link"):
        entry.read("scripts/a.py")


async def test_turns_in_the_same_moments_share_a_look_and_what_is_read_is_what_was_trusted_nevertheless(
    tmp_path: Path,
) -> None:
    root = write(tmp_path / "skills", scripts__a_dot_py="print(7)")
    now = [100.0]
    library = Library(tmp_path, tuple, Trust(), clock=lambda: now[0])
    await trust(library)
    (root / "scripts" / "a.py").write_text("print(8)")
    now[0] += LOOK_EVERY_S - 0.1
    entry = (await library.of("assistant"))["packing"]
    with pytest.raises(SkillChanged, match="has changed since it was trusted"):
        entry.read("scripts/a.py")
    now[0] += 0.1
    assert await roots(library) == {}


async def test_the_nearest_of_a_name_wins_with_a_warning(tmp_path: Path) -> None:
    home = tmp_path / "home"
    own = write(home / "personalities" / "coder" / "skills")
    shared = write(home / "skills")
    far = write(tmp_path / "far")
    further = write(tmp_path / "further")
    library = library_at(home, str(tmp_path / "far"), str(tmp_path / "further"))
    await trust(library)
    await trust(library, personality="coder")
    assert await roots(library, "coder") == {"packing": own}
    assert await roots(library, "assistant") == {"packing": shared}
    hidden = [f"the skill packing in {one} is not used: {shared} has its name, and is nearer" for one in (far, further)]
    own_one = f"the personality coder has the skill packing of {own}, and not that of {shared}"
    assert warnings_of(library.entries) == [*hidden, own_one]
    (shared / "SKILL.md").unlink()
    await trust(library)
    assert await roots(library, "assistant") == {"packing": far}


async def test_a_nearer_one_that_nobody_trusts_hides_the_farther_one(tmp_path: Path) -> None:
    far = write(tmp_path / "far")
    library = library_at(tmp_path / "home", str(tmp_path / "far"))
    await trust(library)
    assert await roots(library) == {"packing": far}
    (write(tmp_path / "home" / "skills") / "SKILL.md").write_text(text() + "Another.")
    assert await roots(library) == {}


async def test_a_skill_beside_a_personality_is_for_that_one_alone(tmp_path: Path) -> None:
    root = write(tmp_path / "personalities" / "coder" / "skills")
    library = library_at(tmp_path)
    await trust(library, personality="coder")
    assert (await roots(library, "coder"), await roots(library)) == ({"packing": root}, {})
    with pytest.raises(NoSuchSkill, match="there is no skill 'packing'; there are: none"):
        await library.find("packing")


async def test_what_cannot_be_used_is_left_out_and_named(tmp_path: Path) -> None:
    place = tmp_path / "skills"
    (write(place, "bare") / "SKILL.md").write_text("---\nname: bare\n---\n")
    (write(place, "linked") / "link").symlink_to("/etc/passwd")
    (place / "empty").mkdir()
    (place / "elsewhere").symlink_to(write(tmp_path / "elsewhere"))
    (place / "notes.txt").write_text("no skill")
    library = library_at(tmp_path)
    await library.look()
    assert {entry.name: entry.state for entry in library.entries} == dict.fromkeys(
        ["bare", "linked", "empty", "elsewhere"], "left_out"
    )
    told = "\n".join(library.problems)
    assert f"the skill bare in {place / 'bare'} is left out: the description is missing" in told
    assert f"{place / 'linked' / 'link'} is a link, which a skill may not have; put the file itself there" in told
    assert "the skill empty" in told
    assert "there is no SKILL.md in it" in told
    assert f"{place / 'elsewhere'} is a link" in told
    with pytest.raises(SkillChanged, match="the description is missing"):
        await library.trust("bare", "", "0" * 64)


async def test_a_trusted_skill_whose_files_are_not_here_is_named(tmp_path: Path) -> None:
    library = library_at(tmp_path)
    await library._store.trust("", "packing", {"SKILL.md": "ab"})
    await library.look()
    [problem] = library.problems
    assert problem.startswith("the skill packing is trusted, and its files are not on this machine; put them back, or")
    assert problem.endswith("see `ethos skills remove packing`")


async def test_two_workers_with_one_store_each_compare_their_own_files(tmp_path: Path) -> None:
    """Trust is of bytes: what one worker trusts, each has that has the same bytes, and another is told apart."""
    north, south = (library_at(tmp_path / name) for name in ("north", "south"))
    south._store = north._store
    write(tmp_path / "north" / "skills")
    root = write(tmp_path / "south" / "skills")
    await trust(north)
    south.forget_trust()
    assert await roots(south) == {"packing": root}
    (tmp_path / "north" / "skills" / "packing" / "SKILL.md").write_text(text() + "Newer.")
    await trust(north)
    south.forget_trust()
    assert await roots(south) == {}
    assert "it is not what was trusted (SKILL.md has changed)" in south.problems[0]


async def test_a_directory_whose_name_is_not_utf8_is_named_and_the_others_are_used(tmp_path: Path) -> None:
    root = write(tmp_path / "skills")
    (tmp_path / "skills" / os.fsdecode(b"caf\xe9")).mkdir()
    library = library_at(tmp_path)
    await trust(library)
    assert await roots(library) == {"packing": root}
    [problem] = library.problems
    assert problem == f"{tmp_path / 'skills'} holds a directory with the name 'caf\\udce9'; rename it"


async def test_what_may_not_be_entered_is_named_and_the_others_are_used() -> None:
    with directory() as home:
        write(home / "skills")
        own, other = (write(home / "personalities" / name / "skills", name) for name in ("coder", "writer"))
        (home / "skills").chmod(0o744)
        other.parent.parent.chmod(0o700)
        library = library_at(home)
        with nobody_special():
            await trust(library, "coder", "coder")
            assert await roots(library, "coder") == {"coder": own}
            told = "\n".join(library.problems)
    assert f"{home / 'skills'} cannot be read (Permission denied); let the user of the gateway read it" in told
    assert f"{other.parent} cannot be read (Permission denied)" in told


async def test_a_path_of_the_configuration_that_is_not_there_is_named(tmp_path: Path) -> None:
    library = library_at(tmp_path, "shared", "~no-such-user/skills")
    assert await roots(library) == {}
    assert library.problems == [
        f"{tmp_path / path} is not there; make it, or correct `skills.paths`"
        for path in ("shared", "~no-such-user/skills")
    ]


async def test_trust_that_changes_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    """The news of another worker may come after the database has answered, and before the answer is here."""
    write(tmp_path / "skills")
    library = library_at(tmp_path)
    await trust(library)
    read = library._store.trusted

    async def late() -> Mapping[tuple[str, str], Mapping[str, str]]:
        rows = await read()
        await library._store.forget("", "packing")
        library.forget_trust()
        return rows

    library._store.trusted = late  # type: ignore[method-assign]
    library.forget_trust()
    await library.look()
    library._store.trusted = read  # type: ignore[method-assign]
    assert await roots(library) == {}


async def test_a_place_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    library = library_at(tmp_path, str(tmp_path / "file"))
    await library.look()
    assert f"{tmp_path / 'file'} cannot be read (Not a directory); let the user of the gateway read it" in "".join(
        library.problems
    )


async def test_a_place_that_is_itself_a_skill_is_named_and_the_skills_in_it_are_used(tmp_path: Path) -> None:
    mine = write(tmp_path / "mine")
    inner = write(mine, "inner")
    library = library_at(tmp_path / "home", str(mine))
    await trust(library, "inner")
    assert await roots(library) == {"inner": inner}
    how = "name the directory that it lies in"
    assert library.problems == [f"{mine} is itself a skill, and not a place for skills; {how}"]


async def test_a_place_that_is_named_twice_gives_each_skill_once(tmp_path: Path) -> None:
    root = write(tmp_path / "skills")
    shared = write(tmp_path / "mine", "cooking")
    library = library_at(tmp_path, "skills", str(tmp_path / "mine"), "mine", "missing", "missing")
    found = await library.look()
    assert [entry.root for entry in found] == [root, shared, tmp_path / "missing"]
