"""The files of a skill are read whole and once, without a link, and what cannot be read is named with a remedy."""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.errors import FileError
from gateway.skills.folder import MAX_FILE_BYTES, MAX_FILES, read_file, read_files, stamp
from tests.gateway.skills.conftest import write
from tests.servers import directory, other_user


def test_all_files_are_read_by_name_without_what_is_no_part_of_a_skill(tmp_path: Path) -> None:
    root = write(tmp_path, scripts__weigh_dot_py="print(7)", references__deep__a_dot_md="a", _dot_git__config="x")
    (root / "__pycache__").mkdir()
    (root / "__pycache__" / "weigh.pyc").write_bytes(b"x")
    found = read_files(root)
    assert list(found) == ["SKILL.md", "references/deep/a.md", "scripts/weigh.py"]
    assert read_file(root, "scripts/weigh.py") == found["scripts/weigh.py"] == b"print(7)"


@pytest.mark.parametrize("leads", ["/etc/passwd", "SKILL.md", "..", "."])
def test_a_link_is_refused_wherever_it_leads(tmp_path: Path, leads: str) -> None:
    root = write(tmp_path)
    (root / "link").symlink_to(leads)
    for read in (read_files, stamp):
        with pytest.raises(FileError, match=r"packing/link is a link, which a skill may not have; put the file itself"):
            read(root)
    with pytest.raises(FileError, match="is a link"):
        read_file(root, "link")
    with pytest.raises(FileError, match="is a link"):
        read_file(root, "link/passwd")


def test_a_skill_that_is_a_link_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(write(tmp_path / "elsewhere"))
    with pytest.raises(FileError, match="link is a link"):
        read_files(tmp_path / "link")


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    root = write(tmp_path)
    os.mkfifo(root / "pipe")
    with pytest.raises(FileError, match="packing/pipe is neither a file nor a directory; take it out"):
        read_files(root)


def test_a_name_that_cannot_be_shown_is_refused(tmp_path: Path) -> None:
    root = write(tmp_path)
    (root / "a\nb").write_text("")
    with pytest.raises(FileError, match=r"holds a file with the name 'a\\nb'; rename it"):
        read_files(root)


def test_too_much_is_refused_before_it_is_read(tmp_path: Path) -> None:
    root = write(tmp_path)
    with (root / "large").open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    with pytest.raises(FileError, match="packing/large makes it too large: 5 MB for a file and 20 MB for a skill are"):
        read_files(root)
    os.truncate(root / "large", MAX_FILE_BYTES)
    for number in range(4):
        with (root / f"large{number}").open("wb") as file:
            file.truncate(MAX_FILE_BYTES)
    with pytest.raises(FileError, match="20 MB for a skill"):
        read_files(root)
    other = write(tmp_path / "other")
    for number in range(MAX_FILES):
        (other / f"{number}").touch()
    with pytest.raises(FileError, match="has more than 500 files"):
        read_files(other)
    deep = write(tmp_path / "deep")
    (deep / "/".join("abcdefghi")).mkdir(parents=True)
    with pytest.raises(FileError, match="is deeper than 8 directories"):
        read_files(deep)


@contextlib.contextmanager
def nobody_special() -> Iterator[None]:
    """As a user whom the rights of files hold off."""
    name, before = other_user(), os.geteuid()
    if name is not None:
        os.seteuid(pwd.getpwnam(name).pw_uid)
    try:
        yield
    finally:
        os.seteuid(before)


def test_what_may_not_be_read_is_named_with_what_to_do() -> None:
    with directory() as place:
        root = write(place, references__secret_dot_md="x")
        (root / "references" / "secret.md").chmod(0)
        with nobody_special(), pytest.raises(FileError) as error:
            read_files(root)
    assert str(error.value).startswith(f"{root / 'references' / 'secret.md'} cannot be read (Permission denied); let")
    assert "let the user of the gateway read it: `chmod u+rX`" in str(error.value)


def test_each_change_gives_another_stamp(tmp_path: Path) -> None:
    root = write(tmp_path, scripts__a_dot_py="1")
    seen = [stamp(root)]
    for change in (
        lambda: (root / "scripts" / "b.py").write_text("2"),
        lambda: (root / "scripts" / "a.py").write_text("22"),
        (root / "scripts" / "b.py").unlink,
        lambda: (root / "scripts" / "a.py").rename(root / "scripts" / "c.py"),
        lambda: (root / "scripts" / "c.py").chmod(0o755),
    ):
        change()
        seen.append(stamp(root))
    assert len(set(seen)) == len(seen)


def test_no_file_stays_open(tmp_path: Path) -> None:
    root = write(tmp_path, scripts__a_dot_py="1")
    (root / "scripts" / "link").symlink_to("a.py")
    before = len([*Path("/proc/self/fd").iterdir()])
    for _ in range(5):
        with pytest.raises(FileError):
            read_files(root)
        read_file(root, "scripts/a.py")
        with pytest.raises(FileError):
            read_file(root, "scripts/none.py")
    assert len([*Path("/proc/self/fd").iterdir()]) == before
