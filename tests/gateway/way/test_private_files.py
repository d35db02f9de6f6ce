"""Row 25: the data directory is 0700 and its files are 0600 from the first start on, and at each start again."""

from __future__ import annotations

import asyncio
import itertools
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gateway.app.gateway import Gateway
from gateway.config.file import load_config
from gateway.errors import FileError, UnsafePath
from gateway.files.home import close_to_others, prepare_home
from gateway.sdk.models.chat import SendMessage
from gateway.services.caller import operator
from tests.fake_channel import FakeChannel
from tests.gateway.way.conftest import House, settled


def open_to_others(home: Path) -> list[str]:
    """What other users could read, write or enter, with its mode; links have none of their own."""
    found = [home, *home.rglob("*")]
    modes = {path: path.lstat().st_mode for path in found}
    return [
        f"{path}: {stat.S_IMODE(mode):04o}" for path, mode in modes.items() if mode & 0o077 and not stat.S_ISLNK(mode)
    ]


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


async def live(house: House, *, first_number: int = 1) -> None:
    """All that makes files: talk, memory, links, a stranger, attachments of the log, the local channel."""
    async with house.served(channels={"fake": {"kind": "tests.fake_channel", "role": "member"}}) as gateway:
        channel = next(one for one in gateway.adapters if isinstance(one, FakeChannel))
        channel._numbers = itertools.count(first_number)  # the platform's ids go on over a restart
        for text in ("remember that my cat is Mia", "/link", "/memory"):
            await channel.ask(text)
        await gateway.chat.send(operator("test"), SendMessage(conversation="main", text="Hello"))
        await settled(gateway)
        assert open_to_others(house.home) == [], "while it runs"


async def test_everything_is_its_owners_alone_from_the_first_start_on_whatever_the_umask(house: House) -> None:
    with umask(0):
        await live(house)
        assert open_to_others(house.home) == []
        await live(house, first_number=100)


async def test_a_start_closes_what_somebody_opened_and_says_so(house: House) -> None:
    await live(house)
    for path in [house.home, *house.home.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    (house.home / "secrets").chmod(0o777)
    assert len(open_to_others(house.home)) > 15
    with capture_logs() as logs:
        async with house.gateway():
            assert open_to_others(house.home) == []
    told = [entry for entry in logs if entry["event"].endswith("now only by you")]
    assert {entry["log_level"] for entry in told} == {"warning"}
    assert told[0]["paths"] == [str(house.home)]
    assert told[1]["amount"] > 15


def test_what_was_made_executable_stays_so_for_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "home" / "personalities" / "mine" / "script"
    path.parent.mkdir(parents=True)
    path.touch()
    path.chmod(0o755)
    (tmp_path / "home" / "users").mkdir()
    close_to_others(tmp_path / "home")
    assert path.stat().st_mode & 0o777 == 0o700


def test_a_directory_that_is_full_of_other_things_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    """Somebody's home directory, given by mistake."""
    home = tmp_path / "somebody"
    (home / "Documents").mkdir(parents=True)
    home.chmod(0o755)
    with pytest.raises(UnsafePath, match=r"open to other users \(0755\).*chmod 700.*ETHOS_HOME"):
        prepare_home(home)
    assert home.stat().st_mode & 0o777 == 0o755
    assert [path.name for path in home.iterdir()] == ["Documents"]


def test_an_empty_directory_that_somebody_made_is_closed(tmp_path: Path) -> None:
    home = tmp_path / "empty"
    home.mkdir(mode=0o755)
    prepare_home(home)
    assert open_to_others(home) == []


def test_a_link_is_neither_followed_nor_changed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o755)
    (outside / "file").touch(mode=0o644)
    home = tmp_path / "home"
    (home / "users").mkdir(parents=True)
    (home / "users" / "elsewhere").symlink_to(outside)
    (home / "secrets").symlink_to(outside)
    close_to_others(home)
    assert outside.stat().st_mode & 0o777 == 0o755
    assert (outside / "file").stat().st_mode & 0o777 == 0o644


def test_another_users_directory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare_home(tmp_path / "home")
    monkeypatch.setattr(os, "geteuid", lambda: 12_345)
    with pytest.raises(UnsafePath, match="run ethos as its owner"):
        prepare_home(tmp_path / "home")


def test_a_directory_that_cannot_be_made_or_written_is_refused_with_a_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match=r"home could not be made: Not a directory\. .*ETHOS_HOME"):
        prepare_home(tmp_path / "file" / "home")
    prepare_home(tmp_path / "home")
    monkeypatch.setattr(os, "access", lambda _path, mode: not mode & os.W_OK)
    with pytest.raises(FileError, match=r"may not write into .*home\. .*ETHOS_HOME"):
        prepare_home(tmp_path / "home")


def test_what_cannot_be_changed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a read-only mount in a container."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "config.yaml").touch(mode=0o444)

    def refuse(path: Path, mode: int) -> None:
        raise PermissionError(1, f"no {mode} of {path}")

    monkeypatch.setattr(Path, "chmod", refuse)
    with capture_logs() as logs:
        close_to_others(home)
    assert [entry["event"] for entry in logs] == ["files are readable by other users and cannot be closed"]
    assert "config.yaml" in logs[0]["paths"][0]


def test_a_gateway_on_another_users_directory_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    prepare_home(home)
    config = load_config(home=home).config
    monkeypatch.setattr(os, "geteuid", lambda: 12_345)

    async def start() -> None:
        async with Gateway(home, config):
            pass

    with pytest.raises(UnsafePath, match="belongs to the user"):
        asyncio.run(start())
