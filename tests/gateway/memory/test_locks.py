"""Locks between tasks and processes."""

import asyncio
import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.errors import DataDirectoryLocked, FileError, LockTimeout, UnsafePath
from gateway.files import locks
from gateway.files.locks import FileLock, hold, refuse_network_file_system
from tests.no_room import no_room

HOLDER = """
import sys
from pathlib import Path
from gateway.files.locks import hold
held = hold(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """A process that holds the lock until it is told otherwise."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.communicate()


async def test_tasks_of_one_process_exclude_each_other_in_order(tmp_path):
    order, inside = [], 0

    async def enter(name):
        nonlocal inside
        async with FileLock(tmp_path / "lock", 5):
            inside += 1
            assert inside == 1
            order.append(name)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(enter(name) for name in range(10)))
    assert order == list(range(10))


async def test_a_lock_is_taken_and_let_go_where_there_is_no_room_for_the_name_of_its_holder(tmp_path):
    with no_room():
        async with FileLock(tmp_path / "lock", 5):
            pass
    async with FileLock(tmp_path / "lock", 5):
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"


async def test_a_lock_that_is_held_elsewhere_times_out_and_names_the_process(tmp_path, holder):
    with pytest.raises(LockTimeout, match=f"process {holder.pid}") as caught:
        async with FileLock(tmp_path / "lock", 0.05):
            pytest.fail("locked")
    assert caught.value.holder == f"process {holder.pid}"


async def test_the_lock_comes_to_the_waiter_when_its_holder_is_killed(tmp_path, holder):
    async def wait():
        async with FileLock(tmp_path / "lock", 10):
            return locks.holder_pid(tmp_path / "lock")

    waiter = asyncio.create_task(wait())
    await asyncio.sleep(0)
    holder.kill()
    assert await waiter == os.getpid()


@pytest.mark.parametrize("count", [1, 3])
async def test_a_waiter_that_gave_up_does_not_keep_the_lock(tmp_path, holder, count):
    async def wait():
        async with FileLock(tmp_path / "lock", 10):
            pytest.fail("locked")

    waiters = [asyncio.create_task(wait()) for _ in range(count)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for waiter in waiters:
        waiter.cancel()
    await asyncio.gather(*waiters, return_exceptions=True)
    holder.kill()
    async with FileLock(tmp_path / "lock", 10):
        pass
    async with asyncio.timeout(10):
        while True:  # the thread of the one that gave up hands it back through the event loop
            try:
                hold(tmp_path / "lock").release()
            except DataDirectoryLocked:
                await asyncio.sleep(0)
            else:
                break
    assert not locks._places.get(asyncio.get_running_loop())


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
async def test_a_place_that_cannot_lock_is_an_error_that_says_so(tmp_path, monkeypatch, number):
    def refuse(_fd, _how):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(locks.fcntl, "flock", refuse)
    with pytest.raises(FileError, match=f"cannot be locked: {os.strerror(number)}"):
        async with FileLock(tmp_path / "lock", 1):
            pytest.fail("locked")
    with pytest.raises(FileError, match="cannot be locked"):
        hold(tmp_path / "lock")


async def test_where_the_system_gives_no_thread_to_wait_in_nothing_stays_open(tmp_path, holder, monkeypatch):
    def refused(_thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", refused)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        with pytest.raises(FileError, match="lock is locked, and cannot be waited for: can't start new thread"):
            async with FileLock(tmp_path / "lock", 5):
                pytest.fail("locked")
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    monkeypatch.undo()
    holder.kill()
    async with FileLock(tmp_path / "lock", 5):
        pass


async def test_an_error_inside_lets_the_lock_go(tmp_path):
    with pytest.raises(KeyError):
        async with FileLock(tmp_path / "lock", 1):
            raise KeyError
    async with FileLock(tmp_path / "lock", 1):
        pass


def test_a_second_holder_is_refused_with_the_pid_of_the_first(tmp_path, holder):
    with pytest.raises(DataDirectoryLocked, match=f"process {holder.pid}") as caught:
        hold(tmp_path / "lock")
    assert caught.value.pid == holder.pid


def test_a_released_lock_can_be_held_again(tmp_path):
    held = hold(tmp_path / "lock")
    with pytest.raises(DataDirectoryLocked):
        hold(tmp_path / "lock")
    held.release()
    held.release()
    hold(tmp_path / "lock").release()


def test_a_lock_file_that_is_a_link_is_refused(tmp_path):
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsafePath, match="symbolic link"):
        hold(tmp_path / "lock")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs"])
def test_a_network_file_system_is_refused_with_the_way_out(tmp_path, monkeypatch, kind):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "1 0 8:1 / / rw - ext4 /dev/sda rw\n"
        f"2 1 0:5 / {str(tmp_path).replace(' ', chr(92) + '040')} rw shared:1 - {kind} host:/x rw\n"
    )
    monkeypatch.setattr(locks, "_MOUNTS", mounts)
    monkeypatch.setattr(locks, "_devices_seen", set())
    with pytest.raises(UnsafePath, match=f"{kind}.*ETHOS_HOME"):
        refuse_network_file_system(tmp_path)
    mounts.write_text("1 0 8:1 / / rw - ext4 /dev/sda rw\n")
    refuse_network_file_system(tmp_path)
