"""Files that a model names stay in their workspace, and it is known which of them hold words of others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.sandbox.workspace import MAX_FILE_BYTES, MAX_LISTED, NoSuchFile, Workspace, Workspaces


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "workspaces" / "u_ada", quota_bytes=10_000)


def test_a_workspace_is_made_with_its_first_file(workspace: Workspace) -> None:
    assert workspace.files() == []
    assert not workspace.root.exists()
    workspace.write("notes/tea.md", b"green", is_own=True)
    assert workspace.read("notes/tea.md") == (b"green", True)
    assert workspace.read("./notes//tea.md") == (b"green", True)
    [file] = workspace.files()
    assert (file.name, file.size_bytes, file.is_own) == ("notes/tea.md", 5, True)
    assert oct(workspace.root.stat().st_mode)[-3:] == "700"
    workspace.write("notes/tea.md", b"black", is_own=True)
    assert workspace.read("notes/tea.md") == (b"black", True)
    workspace.delete("notes/tea.md")
    assert workspace.files() == []


@pytest.mark.parametrize(
    "name", ["", "/", ".", "..", "../x", "a/../../x", "a/..", "a\0b", "a\nb", "x" * 201, "a/" * 17 + "b", "\ud800\n"]
)
def test_a_name_that_leads_out_or_is_none_is_refused(workspace: Workspace, name: str) -> None:
    workspace.write("a/b", b"", is_own=True)
    for use in (workspace.read, workspace.delete, lambda name: workspace.write(name, b"x", is_own=True)):
        with pytest.raises(NoSuchFile):
            use(name)
    names = sorted(path.name for path in workspace.root.parent.rglob("*"))
    assert names == [
        ".u_ada.lock",
        "a",
        "b",
        "u_ada",
        "u_ada.own.json",
    ]


def test_an_absolute_name_is_beneath_the_workspace(workspace: Workspace) -> None:
    workspace.write("/etc/passwd", b"mine", is_own=True)
    assert (workspace.root / "etc" / "passwd").read_bytes() == b"mine"


def test_no_link_is_followed_whatever_a_program_has_made(workspace: Workspace, tmp_path: Path) -> None:
    (outside := tmp_path / "outside").mkdir()
    (outside / "secret").write_text("canary")
    workspace.make()
    (workspace.root / "file").symlink_to(outside / "secret")
    (workspace.root / "directory").symlink_to(outside)
    os.mkfifo(workspace.root / "pipe")
    for name in ("file", "directory/secret", "pipe"):
        with pytest.raises(NoSuchFile, match="there is no file"):
            workspace.read(name)
    assert workspace.files() == []
    with pytest.raises(NoSuchFile):
        workspace.write("directory/new", b"x", is_own=True)
    workspace.write("file", b"x", is_own=True)  # in the place of the link
    assert (outside / "secret").read_text() == "canary"
    assert [path.name for path in outside.iterdir()] == ["secret"]


def test_what_others_wrote_or_a_program_changed_is_not_own(workspace: Workspace) -> None:
    workspace.write("page.md", b"from a page", is_own=False)
    workspace.write("mine.md", b"mine", is_own=True)
    workspace.write("changed.md", b"mine", is_own=True)
    (workspace.root / "changed.md").write_bytes(b"evil")
    (workspace.root / "made.md").write_bytes(b"by a program")
    assert {file.name: file.is_own for file in workspace.files()} == {
        "page.md": False, "mine.md": True, "changed.md": False, "made.md": False,
    }  # fmt: skip
    workspace.write("mine.md", b"from a page", is_own=False)
    assert workspace.read("mine.md") == (b"from a page", False)
    workspace._record.write_text("[")
    assert not any(file.is_own for file in workspace.files())


def test_a_file_and_a_workspace_are_limited(workspace: Workspace) -> None:
    workspace.write("a", b"x" * 9_000, is_own=True)
    with pytest.raises(NoSuchFile, match="the workspace is full"):
        workspace.write("b", b"x" * 1_001, is_own=True)
    with pytest.raises(NoSuchFile, match="can be written"):
        workspace.write("b", b"x" * (MAX_FILE_BYTES + 1), is_own=True)
    with (workspace.root / "large").open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    with pytest.raises(NoSuchFile, match="can be read"):
        workspace.read("large")
    (workspace.root / "large").unlink()
    (workspace.root / "a").unlink()
    (workspace.root / "a").mkdir()
    with pytest.raises(NoSuchFile, match="a is a directory"):
        workspace.write("a", b"x", is_own=True)
    assert [path.name for path in workspace.root.iterdir()] == ["a"]


def test_persons_and_groups_have_workspaces_of_their_own(tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path)
    assert workspaces.of_person("u_ada").root == tmp_path / "users" / "u_ada" / "files"
    roots = {workspaces.of_group(*place).root for place in (("slack", "C1"), ("slackC", "1"), ("slack", "../.."))}
    assert len(roots) == 3
    assert {root.parents[1] for root in roots} == {tmp_path / "groups"}


def test_files_of_linked_people_come_together_and_apart_again(tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path)
    ada, desk, phone = map(workspaces.of_person, ("u_ada", "u_desk", "u_phone"))
    ada.write("tea.md", b"green", is_own=True)
    desk.write("tea.md", b"black", is_own=True)
    desk.write("mail.txt", b"words of others", is_own=False)
    for _ in range(2):  # a crash may come between any two steps
        workspaces.unite("u_ada", "u_desk")
    assert {one.name: one.is_own for one in ada.files()} == {
        "of-u_desk/mail.txt": False,
        "of-u_desk/tea.md": True,
        "tea.md": True,
    }
    assert [path.name for path in (tmp_path / "users" / "u_desk").iterdir()] == [".files.lock"]
    workspaces.unite("u_phone", "u_ada")
    nested = {"of-u_ada/tea.md", "of-u_ada/of-u_desk/mail.txt", "of-u_ada/of-u_desk/tea.md"}
    assert {one.name for one in phone.files()} == nested
    desk.write("tea.md", b"written while it was parted", is_own=True)
    for _ in range(2):
        workspaces.part("u_phone", "u_desk")
    assert desk.read("tea.md")[0] == b"written while it was parted"
    assert desk.read("earlier/tea.md") == (b"black", True)
    assert desk.read("earlier/mail.txt") == (b"words of others", False)
    assert [one.name for one in phone.files()] == ["of-u_ada/tea.md"]
    workspaces.unite("u_phone", "u_nobody")
    workspaces.part("u_phone", "u_nobody")
    assert [one.name for one in phone.files()] == ["of-u_ada/tea.md"]


@pytest.mark.slow
def test_one_file_of_others_among_very_many_is_not_overlooked(workspace: Workspace) -> None:
    for number in range(MAX_LISTED):
        workspace.write(f"a{number}", b"", is_own=True)
    assert workspace.is_own
    workspace.write("z", b"words of others", is_own=False)
    assert all(file.is_own for file in workspace.files())
    assert not workspace.is_own
