"""Files that people edit while we write them."""

import os
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import FileError, InvalidId, UnsafePath
from gateway.files.atomic import check_id, inside, make_private_directory, read_settled, sign, write_atomically


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_is_replaced_as_a_whole_and_is_private(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o644)
    signature = write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert mode(path) == 0o600
    assert signature == sign(path)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "directory"
    path.mkdir()
    (path / "child").touch()
    with pytest.raises(FileError, match="could not be written"):
        write_atomically(path, b"new")
    assert [each.name for each in tmp_path.iterdir()] == ["directory"]


def test_directories_are_private_with_their_parents(tmp_path):
    make_private_directory(tmp_path / "a" / "b")
    assert (mode(tmp_path / "a"), mode(tmp_path / "a" / "b")) == (0o700, 0o700)
    make_private_directory(tmp_path / "a" / "b")


def test_a_file_that_an_editor_has_just_emptied_is_read_again(tmp_path):
    path = tmp_path / "file"
    path.write_text("")
    waits = []

    def editor_goes_on(seconds):
        waits.append(seconds)
        if len(waits) == 1:
            path.write_text("half")
        elif len(waits) == 2:
            path.write_text("half and whole")

    assert read_settled(path, wait=editor_goes_on).data == b"half and whole"
    assert len(waits) >= 3


def test_a_file_that_is_old_enough_is_read_once(tmp_path):
    path = tmp_path / "file"
    path.write_text("text")
    os.utime(path, (1, 1))
    snapshot = read_settled(path, wait=lambda _: pytest.fail("waited"))
    assert (snapshot.data, snapshot.signature) == (b"text", sign(path))
    assert read_settled(tmp_path / "missing") is None


def test_our_own_write_needs_no_second_reading(tmp_path):
    signature = write_atomically(tmp_path / "file", b"x")
    assert read_settled(tmp_path / "file", trusted=signature, wait=lambda _: pytest.fail("waited")).data == b"x"


def test_a_directory_and_a_pipe_are_no_files(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name in (".", "pipe"):
        with pytest.raises(FileError):
            read_settled(tmp_path / name)


def test_links_that_lead_out_are_refused_and_those_inside_are_followed(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    (root / "real").mkdir()
    (root / "link").symlink_to("real")
    (root / "out").symlink_to(tmp_path)
    (root / "loop").symlink_to("loop")
    assert inside(root, "link", "new.md") == root / "link" / "new.md"
    for parts in (("out", "x"), ("..", "x"), ("out",)):
        with pytest.raises(UnsafePath, match="leads out"):
            inside(root, *parts)
    (tmp_path / "alias").symlink_to(root)
    assert inside(tmp_path / "alias", "real")


@given(st.text(max_size=70))
def test_an_id_is_letters_digits_and_two_signs_or_it_is_refused(value):
    allowed = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
    if 1 <= len(value) <= 64 and set(value) <= allowed:
        assert check_id("user", value) == value
    else:
        with pytest.raises(InvalidId, match="user id"):
            check_id("user", value)
