"""A ZIP is taken apart in memory, and one that leads out, links, or is a bomb is refused with a word on why."""

from __future__ import annotations

import contextlib
import io
import stat
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given as for_any
from hypothesis import settings
from hypothesis import strategies as st

from gateway.skills.archive import BadArchive, given, packed, unpacked
from gateway.skills.folder import MAX_FILES, read_files
from gateway.skills.placing import put
from tests.gateway.skills.conftest import text, write

SKILL = text()


def zipped(*entries: tuple[str | zipfile.ZipInfo, str | bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries:
            archive.writestr(name, data)
    return out.getvalue()


def entry(name: str, kind: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = (kind | 0o644) << 16
    return info


def test_what_is_packed_is_unpacked() -> None:
    files = {"SKILL.md": SKILL.encode(), "scripts/a.py": b"print(7)"}
    data = packed(files, "packing")
    assert unpacked(data) == ("packing", files)
    assert packed(files, "packing") == data, "the same bytes"


def test_a_skill_at_the_top_takes_the_name_of_its_file_and_what_systems_add_is_left_out() -> None:
    data = zipped(("SKILL.md", SKILL), ("__MACOSX/._SKILL.md", "x"), (".DS_Store", "x"), (".git/config", "x"))
    assert unpacked(data, "packing") == ("packing", {"SKILL.md": SKILL.encode()})


def test_a_skill_some_directories_deep_is_found() -> None:
    data = zipped(("a/", ""), ("a/b/SKILL.md", SKILL), ("a/b/assets/SKILL.md", "not this"))
    assert unpacked(data) == ("b", {"SKILL.md": SKILL.encode(), "assets/SKILL.md": b"not this"})


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ([("../SKILL.md", SKILL)], "'../SKILL.md', which leads out of it"),
        ([("packing/../../etc/x", "x")], "which leads out of it"),
        ([("/etc/SKILL.md", SKILL)], "'/etc/SKILL.md', which leads out of it"),
        ([("C:/SKILL.md", SKILL)], "which leads out of it"),
        ([(r"packing\..\SKILL.md", SKILL)], "which leads out of it"),
        ([("SKILL.md", SKILL), (entry("link", stat.S_IFLNK), "/etc/passwd")], "a link, 'link'; put the file itself in"),
        ([("SKILL.md", SKILL), (entry("pipe", stat.S_IFIFO), "")], "'pipe', which is neither a file nor a directory"),
        ([("SKILL.md", SKILL), ("a\x1b[2Jb", "x")], "a file with the name 'a\\\\x1b"),
        ([("SKILL.md", SKILL), ("/".join("abcdefghijk"), "x")], "a file with the name"),
        ([("SKILL.md", SKILL), ("a", "x"), ("a/b", "y")], "'a' as a file and as a directory"),
        ([("a/SKILL.md", SKILL), ("b/SKILL.md", SKILL)], "several skills; add each in a ZIP of its own"),
        (
            [("a/SKILL.md", SKILL), ("b/c.md", "x")],
            "'b/c.md' beside the skill a; pack the directory of the skill alone",
        ),
        ([("README.md", "x")], "there is no SKILL.md in the ZIP; pack the directory of a skill"),
        ([("SKILL.md", SKILL), *((f"a/{n}", "x") for n in range(MAX_FILES))], "has 501 files, and 500 are the most"),
        ([("SKILL.md", SKILL), *((f"a/{n}", "") for n in range(2_000))], "the ZIP has 2001 entries"),
        ([("SKILL.md", SKILL), *((f"{n}/a", "x") for n in range(250))], "more than 500 files and directories, or is"),
        ([("SKILL.md", SKILL), ("1/2/3/4/5/6/7/8/a", "x")], "or is deeper than 8; take some out"),
    ],
)
def test_what_is_not_taken_is_refused_with_why(entries: list[tuple[str, str]], why: str) -> None:
    with pytest.raises(BadArchive, match=why):
        unpacked(zipped(*entries))


@pytest.mark.parametrize("names", [["1/2/3/4/5/6/7/a"], [f"{n}/a" for n in range(249)]], ids=["deep", "many"])
def test_what_is_taken_can_be_read_where_it_is_put(tmp_path: Path, names: list[str]) -> None:
    _, files = unpacked(zipped(("SKILL.md", SKILL), *((name, "x") for name in names)))
    put(tmp_path, "packing", files, replaces=False)
    assert read_files(tmp_path / "packing") == files


def test_the_same_name_twice_is_refused() -> None:
    with pytest.warns(UserWarning, match="Duplicate"):
        data = zipped(("SKILL.md", SKILL), ("SKILL.md", "another"))
    with pytest.raises(BadArchive, match=r"holds 'SKILL\.md' twice"):
        unpacked(data)


def test_a_bomb_is_refused_whatever_it_says_of_its_size() -> None:
    bomb = zipped(("SKILL.md", SKILL), ("bomb", bytes(300 << 20)))
    assert len(bomb) < 1 << 20
    with pytest.raises(BadArchive, match="'bomb' makes the skill too large: 5 MB for a file"):
        unpacked(bomb)
    many = zipped(("SKILL.md", SKILL), *((f"a{n}", bytes(4 << 20)) for n in range(8)))
    with pytest.raises(BadArchive, match="20 MB for all of them are the most, unpacked"):
        unpacked(many)
    lying = bytearray(zipped(("SKILL.md", SKILL), ("bomb", bytes(100 << 20))))
    at = lying.rindex((100 << 20).to_bytes(4, "little"))
    lying[at : at + 4] = (10).to_bytes(4, "little")
    with pytest.raises(BadArchive):
        unpacked(bytes(lying))


def test_a_file_of_others_is_refused_and_one_with_a_password() -> None:
    with pytest.raises(BadArchive, match="this is no whole ZIP file"):
        unpacked(b"PK\x03\x04 and so on")
    with pytest.raises(BadArchive, match="10 MB are the most"):
        unpacked(bytes((20 << 20) + 1))
    locked = bytearray(zipped(("SKILL.md", SKILL)))
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        locked[locked.index(mark) + at] |= 1
    with pytest.raises(BadArchive, match="the ZIP is encrypted; pack the skill without a password"):
        unpacked(bytes(locked))
    with zipfile.ZipFile(out := io.BytesIO(), "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("SKILL.md", SKILL)
    with pytest.raises(BadArchive, match="packed in a way that is not read here"):
        unpacked(out.getvalue())


WHOLE = zipped(("packing/SKILL.md", SKILL), ("packing/scripts/a.py", "print(7)" * 50))


@settings(deadline=None, max_examples=300)
@for_any(st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), min_size=1, max_size=6))
def test_whatever_bytes_are_changed_it_is_refused_or_taken_and_never_a_fault(changes: list[tuple[int, int]]) -> None:
    data = bytearray(WHOLE)
    for at, byte in changes:
        data[at] = byte
    files: Mapping[str, bytes] = {}
    with contextlib.suppress(BadArchive):
        _, files = unpacked(bytes(data))
    assert all(".." not in name.split("/") and not name.startswith("/") for name in files)


def test_a_person_names_a_directory_or_a_zip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write(tmp_path, scripts__a_dot_py="print(7)")
    (tmp_path / "other.zip").write_bytes(zipped(("SKILL.md", SKILL)))
    assert given(root)[0] == "packing"
    assert list(given(root)[1]) == ["SKILL.md", "scripts/a.py"]
    assert given(tmp_path / "other.zip") == ("other", {"SKILL.md": SKILL.encode()})
    monkeypatch.chdir(root)
    assert given(Path())[0] == "packing"
