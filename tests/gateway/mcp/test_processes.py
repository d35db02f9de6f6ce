"""Servers that are processes of ours: whatever one does, its call has an outcome, and nothing else is touched."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.mcp.groups import end_left_over, members, note_group
from gateway.mcp.server import Times
from gateway.sandbox.tiers import Landlock, bubblewrap
from tests.gateway.mcp.conftest import HERE, SCRIPT, Room, command, is_running
from tests.mcp_servers import modern


async def test_a_server_that_dies_in_a_call_is_uncertain_and_the_next_call_reconnects(room: Room) -> None:
    async with room.servers(s=command()) as servers:
        await servers.connect()
        died = await servers.call("s__die")
        assert died.outcome == "uncertain"
        assert "the connection to its server broke" in died.text
        await servers.until("idle")
        standing = servers.view("s").standing
        assert standing.error is not None
        assert standing.error.startswith("it ended with the exit code 4: I am dying.")
        again = await servers.call("s__post", text="tea")
        assert (again.outcome, again.text) == ("done", "tea")
        assert servers.view("s").standing.error is None


async def test_what_only_looks_and_breaks_was_not_done(room: Room) -> None:
    async with room.servers(s=command(effects={"die": "read"})) as servers:
        await servers.connect()
        died = await servers.call("s__die")
        assert (died.outcome, died.is_fault) == ("failed", True)
        assert "this was not done" in died.text


async def test_a_server_that_exits_at_once_shows_its_words_and_rests(room: Room) -> None:
    server = command("exits", env={"TOKEN": "canary-secret"})
    async with room.servers(s=server) as servers:
        await servers.until("resting")
        standing = servers.view("s").standing
        assert standing.error == (
            "it ended with the exit code 3: No such account: ***; `ethos mcp` shows more of what it said"
        )
        [problem] = servers.problems
        assert problem.startswith("the server s (mcp) is not reachable since ")
        assert "No such account: ***" in problem


async def test_standard_error_is_kept_by_fifty_lines_without_secrets_and_controls(
    room: Room, capfd: pytest.CaptureFixture[str]
) -> None:
    async with room.servers(s=command("talkative", env={"TOKEN": "canary-secret"})) as servers:
        await servers.connect()
        await servers.call("s__noise")
        await servers.call("s__die")
        await servers.until("idle")
        said = list(servers.view("s").standing.said)
        assert len(said) == 50
        assert said[0] == "line 32 [31m***"
        assert said[-2:] == ["Welcome to this server!", "I am dying."]
    assert "line 32" not in "".join(capfd.readouterr())


async def test_a_program_that_is_not_there_says_what_to_do(room: Room) -> None:
    async with room.servers(s={"command": ["/not/there"]}) as servers:
        await servers.until("resting")
        assert servers.view("s").standing.error == (
            "/not/there cannot be started: No such file or directory; install it, or write its whole path in `command`"
        )


async def test_a_server_that_does_not_start_in_time_cancels_nobody_and_is_tried_for_ever(room: Room) -> None:
    times = Times(connect=0.3, first_rest=0.05, longest_rest=0.1)
    async with room.servers(s=command("silent"), times=times) as servers:
        began = time.monotonic()
        with pytest.raises(Exception, match=r"the server s is not reachable now: it did not start within 0\.3 s"):
            await servers.test("s")
        assert time.monotonic() - began < 5
        current = asyncio.current_task()
        assert current is not None
        assert current.cancelling() == 0
        await servers.until("connecting")
        await servers.until("resting")


async def test_while_it_rests_a_call_is_answered_at_once(room: Room) -> None:
    async with room.servers(s=command()) as servers:
        await servers.connect()
    broken = {"command": ["/not/there"], "start": "eager"}
    async with room.servers(s=broken, times=Times(first_rest=60)) as servers:
        await servers.until("resting")
        began = time.monotonic()
        called = await servers.call("s__post", text="tea")
        assert time.monotonic() - began < 0.5
        assert (called.outcome, called.is_fault) == ("failed", True)
        assert "this was not done: the server s is not reachable now: /not/there cannot be started" in called.text


async def test_whoever_tries_it_need_not_wait_for_the_end_of_its_rest(room: Room) -> None:
    missing = room.home / "server.py"
    server = {"command": [sys.executable, str(missing)]}
    async with room.servers(s=server, times=Times(first_rest=600, longest_rest=600)) as servers:
        await servers.until("resting")
        missing.write_text(Path(SCRIPT).read_text())
        assert (await servers.test("s")).standing.state == "up"


async def test_a_call_that_takes_too_long_is_uncertain_and_the_server_stays(room: Room) -> None:
    async with room.servers(s=command(timeout_s=0.3)) as servers:
        await servers.connect()
        hanging = asyncio.create_task(servers.call("s__hang"))
        assert (await servers.call("s__post", text="meanwhile")).text == "meanwhile"
        assert (await hanging).outcome == "uncertain"
        assert "it took longer than 0.3 s" in (await hanging).text
        assert servers.view("s").standing.state == "up"
        assert (await servers.call("s__post", text="after")).text == "after"


async def test_a_server_of_the_old_era_is_refused_where_the_new_one_is_named(room: Room) -> None:
    async with room.servers(s=command(protocol="2026-07-28")) as servers:
        await servers.until("resting")
        assert servers.view("s").standing.error == "it speaks an older era of the protocol; write `protocol: auto`"


async def test_a_line_of_fifty_megabytes_is_cut_off(room: Room) -> None:
    async with room.servers(s=command()) as servers:
        await servers.connect()
        began = time.monotonic()
        assert (await servers.call("s__huge")).outcome == "uncertain"
        assert time.monotonic() - began < 5
        await servers.until("idle")
        assert servers.view("s").standing.error == "it wrote a line of more than 8 MB"
        assert (await servers.call("s__post", text="after")).text == "after"


async def test_a_server_that_cannot_bear_the_new_era_is_asked_in_the_old_one(room: Room) -> None:
    async with room.servers(s=command("strict")) as servers:
        server = await servers.connect()
        assert (await servers.call("s__post", text="tea")).text == "tea"
        assert server._modes() == ("legacy", "auto")
        await servers.call("s__die")
        assert (await servers.call("s__post", text="tea")).text == "tea"


async def test_the_era_that_worked_is_tried_first_at_the_next_start(room: Room, tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    async with room.servers(s=command("strict", env={"STARTS": str(starts)})) as servers:
        await servers.connect()
        assert starts.read_text() == "xx", "it ended at the question of the new era, and was asked once in the old one"
    async with room.servers(s=command("strict", env={"STARTS": str(starts)})) as servers:
        assert (await servers.call("s__post", text="tea")).text == "tea"
        assert starts.read_text() == "xxx"


async def test_a_server_that_has_moved_to_the_new_era_is_found_there(room: Room) -> None:
    async with room.servers(s=command()) as servers:
        await servers.connect()
    new = {"command": [sys.executable, modern.__file__, "only"]}
    async with room.servers(s=new) as servers:
        connection = await (await servers.connect()).connected()
        assert connection.era == "2026-07-28"


async def test_a_process_that_nobody_calls_is_stopped_and_started_by_the_next_call(room: Room) -> None:
    async with room.servers(s=command(), times=Times(idle=0.2)) as servers:
        await servers.connect()
        await servers.until("idle")
        assert servers.view("s").standing.error is None
        assert (await servers.call("s__post", text="tea")).text == "tea"
        assert servers.view("s").standing.state == "up"


async def test_only_the_variables_that_are_named_reach_it(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETHOS_CANARY", "canary")
    async with room.servers(s=command(env={"TOKEN": "mine"})) as servers:
        await servers.connect()
        seen = json.loads((await servers.call("s__env")).text)
        assert seen["TOKEN"] == "mine"
        assert seen["HOME"] == str(room.home / "mcp" / "s")
        assert set(seen) <= {"PATH", "HOME", "TMPDIR", "LC_ALL", "TOKEN", "LC_CTYPE"}


async def test_all_of_its_group_ends_with_the_gateway(room: Room) -> None:
    async with room.servers(s=command()) as servers:
        await servers.connect()
        child = int((await servers.call("s__child")).text)
        assert is_running(child)
        assert (room.home / "run" / "s.group").exists()
    assert not is_running(child)
    assert not (room.home / "run" / "s.group").exists()


KILLED = """
import asyncio, sys
from pathlib import Path
from gateway.sandbox.tiers import Landlock, bubblewrap
from tests.gateway.mcp.conftest import HERE, Room, command

async def main(home, tier):
    async with Room(Path(home)).servers(s=command(sandbox={"read": [HERE]}), tier=tier) as servers:
        await servers.connect()
        await servers.call("s__child")
        print("up", flush=True)
        await asyncio.Event().wait()

asyncio.run(main(sys.argv[1], {"bubblewrap": bubblewrap(), "landlock": Landlock()}[sys.argv[2]]))
"""


@pytest.mark.parametrize("tier", ["bubblewrap", "landlock"])
def test_nothing_is_left_of_a_server_whose_gateway_was_killed(tmp_path: Path, tier: str) -> None:
    gateway = subprocess.Popen(
        [sys.executable, "-c", KILLED, tmp_path, tier], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert gateway.stdout is not None
    with gateway, gateway.stdout:
        assert any(line == b"up\n" for line in gateway.stdout)
        group = json.loads((tmp_path / "run" / "s.group").read_text())["group"]
        assert dict(members(group))
        gateway.kill()
    if tier == "bubblewrap":
        until(lambda: not dict(members(group)))
    end_left_over(tmp_path / "run")
    until(lambda: not dict(members(group)))


async def test_the_next_start_ends_what_a_killed_gateway_left(tmp_path: Path) -> None:
    left = subprocess.Popen(["/bin/sh", "-c", "sleep 600 & wait"], start_new_session=True)
    other = subprocess.Popen(["/bin/sleep", "600"], start_new_session=True)
    try:
        note_group(tmp_path / "left.group", left.pid)
        note_group(tmp_path / "other.group", other.pid)
        noted = json.loads((tmp_path / "other.group").read_text())
        (tmp_path / "other.group").write_text(json.dumps({**noted, "began": noted["began"] - 1}))
        (tmp_path / "broken.group").write_text("?")
        assert end_left_over(tmp_path) == 1
        assert left.wait(10) == -signal.SIGKILL
        assert other.poll() is None, "its number was given to another process since"
        assert not [*tmp_path.glob("*.group")]
    finally:
        for process in (left, other):
            process.kill()
            process.wait()


@pytest.mark.parametrize("tier", [bubblewrap(), Landlock()], ids=["bubblewrap", "landlock"])
async def test_it_runs_shut_in_with_what_the_configuration_opens(room: Room, tier: Landlock) -> None:
    (room.home / "open").mkdir()
    (room.home / "secret").write_text("canary")
    probe = (
        "import pathlib, sys\n"
        f"for name in ({str(room.home / 'open' / 'a')!r}, {str(room.home / 'secret')!r}, 'own'):\n"
        "    try:\n"
        "        pathlib.Path(name).write_text('x')\n"
        "        print('wrote', pathlib.Path(name).name, file=sys.stderr)\n"
        "    except OSError:\n"
        "        print('refused', pathlib.Path(name).name, file=sys.stderr)\n"
        f"sys.argv = [{SCRIPT!r}]\n"
        f"exec(pathlib.Path({SCRIPT!r}).read_text())\n"
    )
    server = command(sandbox={"write": ["open"], "read": [HERE]})
    server["command"][1:] = ["-c", probe]
    async with room.servers(s=server, tier=tier) as servers:
        await servers.connect()
        assert (await servers.call("s__post", text="tea")).text == "tea"
        assert list(servers.view("s").standing.said) == ["wrote a", "refused secret", "wrote own"]
        child = int((await servers.call("s__child")).text) if tier.name == "landlock" else None
    assert (room.home / "open" / "a").exists()
    assert (room.home / "mcp" / "s" / "own").exists()
    assert child is None or not is_running(child)


async def test_a_closed_network_needs_a_sandbox(room: Room) -> None:
    async with room.servers(s=command(sandbox={"network": "none"})) as servers:
        await servers.until("resting")
        assert servers.view("s").standing.error == (
            "no sandbox works here, so its network cannot be closed; `ethos doctor` says what to do"
        )


def until(is_so: Callable[[], bool]) -> None:
    """Wait for what a kill brings about."""
    give_up_at = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < give_up_at
        time.sleep(0.01)
