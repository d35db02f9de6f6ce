"""A program that is shut in gets at nothing outside, is held to its limits, and leaves nothing behind; in each tier."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.sandbox import probing
from gateway.sandbox.probing import fault_of, find_sandbox
from gateway.sandbox.running import Ran, SandboxFailed, run, temporary
from gateway.sandbox.tiers import Bubblewrap, Command, Landlock, Limits, Plan, Tier, bubblewrap
from tests.servers import INSTALL, free_port, give, other_user

ROOT = Path(__file__).parents[3]
SHORT = Limits(wall_s=20, cpu_s=10)
TIERS = [
    pytest.param(
        bubblewrap() or Bubblewrap("bwrap"),
        id="bubblewrap",
        marks=pytest.mark.skipif(bubblewrap() is None, reason=f"bubblewrap is missing: {INSTALL}"),
    ),
    pytest.param(Landlock(), id="landlock"),
]
each_tier = pytest.mark.parametrize("tier", TIERS)


@pytest.fixture
async def plan(tmp_path: Path) -> AsyncIterator[Plan]:
    (workspace := tmp_path / "workspace").mkdir()
    async with temporary() as place:
        yield Plan(workspace=workspace, temporary=place, limits=SHORT)


async def python(tier: Tier, plan: Plan, code: str, *words: object) -> Ran:
    return await run(tier, plan, [sys.executable, "-I", "-S", "-c", code, *map(str, words)])


# ---- what is let in -------------------------------------------------------------------------------------------------


@each_tier
async def test_it_works_in_its_workspace_with_a_small_environment(tier: Tier, plan: Plan) -> None:
    code = (
        "import os, pathlib; pathlib.Path('a').write_text('b'); print(os.getcwd(), sorted(os.environ)); print(input())"
    )
    ran = await run(tier, plan, [sys.executable, "-I", "-S", "-c", code], given=b"told\n")
    assert ran.output.decode() == f"{plan.workspace} ['HOME', 'LC_ALL', 'PATH', 'TMPDIR']\ntold\n"
    assert (ran.exit_code, ran.is_cut) == (0, False)
    assert (plan.workspace / "a").read_text() == "b"
    children = (
        "import subprocess, sys; print(subprocess.run([sys.executable, '-c', 'print(7)'], capture_output=True).stdout)"
    )
    assert (await python(tier, plan, children)).output == b"b'7\\n'\n"


@each_tier
async def test_its_temporary_directory_is_removed_with_all_that_is_in_it(tier: Tier, plan: Plan) -> None:
    code = "import os, pathlib; place = pathlib.Path(os.environ['TMPDIR']); (place / 'a').touch(); print(place)"
    async with temporary() as place:
        assert (await python(tier, replace(plan, temporary=place), code)).output.decode().strip() == str(place)
        assert (place / "a").exists()
    assert not place.exists()


# ---- what is kept out -----------------------------------------------------------------------------------------------


@each_tier
async def test_it_reads_no_file_of_the_user_and_no_other_workspace(tier: Tier, plan: Plan, tmp_path: Path) -> None:
    (other := tmp_path / "other").mkdir()
    (other / "secret").write_text("canary")
    (plan.workspace / "link").symlink_to(other / "secret")
    for place in (other / "secret", plan.workspace / "link", "/etc/passwd", f"/proc/{os.getpid()}/environ"):
        ran = await python(tier, plan, "import sys; print(open(sys.argv[1]).read())", place)
        assert ran.exit_code == 1, ran
        assert b"canary" not in ran.output
    ran = await python(tier, plan, "import os, sys; os.link(sys.argv[1], 'here')", other / "secret")
    assert ran.exit_code == 1


@each_tier
@pytest.mark.parametrize("place", ["/usr", "/etc", "/var/tmp", "/root", "/dev"])  # noqa: S108 (is refused)
async def test_it_writes_nowhere_else(tier: Tier, plan: Plan, place: str) -> None:
    ran = await python(tier, plan, "import sys; open(sys.argv[1] + '/.ethos-was-here', 'w')", place)
    assert (ran.exit_code, Path(f"{place}/.ethos-was-here").exists()) == (1, False)


@each_tier
async def test_it_reaches_no_network(tier: Tier, plan: Plan, tmp_path: Path) -> None:
    """The very server that a program beside it reaches."""
    heard: list[bytes] = []

    async def hear(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(b"called")
        writer.close()

    port, path = free_port(), plan.workspace / "socket"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.bind(("127.0.0.1", port))
        datagrams.setblocking(False)
        async with (
            await asyncio.start_server(hear, "127.0.0.1", port),
            await asyncio.start_unix_server(hear, tmp_path / "outside"),
        ):
            for code in (
                f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)",
                f"import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {port}))",
                f"import socket; socket.socket(socket.AF_UNIX).connect({str(tmp_path / 'outside')!r})",
            ):
                await python(tier, plan, code)
            assert heard == []
            with pytest.raises(BlockingIOError):
                datagrams.recv(1)
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
    assert not path.exists()


@each_tier
async def test_the_operator_may_open_the_network(tier: Tier, plan: Plan) -> None:
    async def hear(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    port = free_port()
    async with await asyncio.start_server(hear, "127.0.0.1", port):
        code = f"import socket; print(socket.create_connection(('127.0.0.1', {port}), 10).recv(9))"
        ran = await python(tier, replace(plan, network=True), code)
    assert ran.output == b"b'hello'\n"


@each_tier
async def test_it_signals_and_traces_nobody_and_makes_no_namespace(tier: Tier, plan: Plan) -> None:
    other = subprocess.Popen(["sleep", "600"])
    try:
        ran = await python(tier, plan, "import os, sys; os.kill(int(sys.argv[1]), 9)", other.pid)
        assert ran.exit_code == 1
        assert other.poll() is None
        trace = "import ctypes, sys; sys.exit(ctypes.CDLL(None).ptrace(16, int(sys.argv[1]), 0, 0) == 0)"
        assert (await python(tier, plan, trace, other.pid)).exit_code == 0
    finally:
        other.kill()
        other.wait()
    unshare = "import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare(0x10000000) == 0)"
    assert (await python(tier, plan, unshare)).exit_code == 0


# ---- limits ---------------------------------------------------------------------------------------------------------


@each_tier
async def test_its_time_ends_all_of_it(tier: Tier, plan: Plan) -> None:
    """Children that would go on, too."""
    code = (
        "import os, subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(2); open(\"late\", \"w\")'])\n"
        "print('begun', flush=True); time.sleep(60)"
    )
    ran = await python(tier, replace(plan, limits=replace(SHORT, wall_s=1.0)), code)
    assert (ran.is_timed_out, ran.output) == (True, b"begun\n")
    await asyncio.sleep(2.5)  # for a child that nobody knows of there is no event
    assert not (plan.workspace / "late").exists()


@each_tier
async def test_cpu_memory_files_and_output_are_limited(tier: Tier, plan: Plan) -> None:
    small = replace(plan, limits=replace(SHORT, cpu_s=1, file_bytes=1 << 20, output_bytes=1000, memory_bytes=1 << 28))
    assert (await python(tier, small, "while True: pass")).exit_code in (-9, -24, 137, 152)
    ran = await python(tier, small, "bytearray(1 << 29)")
    assert (ran.exit_code, b"MemoryError" in ran.output) == (1, True)
    assert (await python(tier, small, "open('f', 'wb').truncate(1 << 21)")).exit_code != 0
    ran = await python(tier, small, "print('x' * 5000)")
    assert (ran.exit_code, len(ran.output), ran.is_cut) == (0, 1000, True)


# ---- choosing -------------------------------------------------------------------------------------------------------


@each_tier
async def test_the_probe_finds_no_way_out(tier: Tier) -> None:
    assert await fault_of(tier) is None


async def test_a_command_that_shuts_nothing_in_is_found_out() -> None:
    found = await find_sandbox(["env", "-C", "{workspace}"])
    assert found.tier is None
    assert "a program gets out of it: the environment of other processes, files of the user" in found.remedy
    assert "correct the words of `sandbox.command`" in found.remedy
    missing = await find_sandbox(["/no/such/program"])
    assert "/no/such/program cannot be started: No such file or directory" in missing.remedy


async def test_without_a_tier_the_remedy_of_each_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fault(tier: Tier) -> str:
        return f"{tier.name} was switched off"

    monkeypatch.setattr(probing, "bubblewrap", lambda: None)
    monkeypatch.setattr(probing, "fault_of", fault)
    found = await find_sandbox()
    assert found.tier is None
    assert "bubblewrap: it is not installed; install it with `apt install bubblewrap`" in found.remedy
    assert "landlock: landlock was switched off; use a kernel 5.13" in found.remedy


async def test_what_cannot_be_closed_runs_nothing(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 1)
    with pytest.raises(SandboxFailed, match="the process that started this has ended"):
        await python(Landlock(), plan, "open('ran', 'w')")
    assert not (plan.workspace / "ran").exists()
    assert (await python(Command(["env"]), plan, "print(1)")).output == b"1\n"


def as_ordinary_user(tmp_path: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run with the system's own Python and the standard library alone, as another user where we are root."""
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:3]:
        if parent.owner() == tmp_path.owner():
            parent.chmod(parent.stat().st_mode | 0o011)
    place = tmp_path / "copy"
    shutil.copytree(ROOT / "gateway" / "sandbox", place / "gateway" / "sandbox")
    (place / "gateway" / "__init__.py").touch()
    for path in (place, *place.rglob("*")):
        give(path)
    return subprocess.run(
        ["/usr/bin/python3", "-c", code], user=other_user(), cwd=place, capture_output=True, text=True, check=False,
        env={"PATH": os.defpath, "PYTHONPATH": str(place), "SECRET": "canary"},
    )  # fmt: skip


@pytest.mark.skipif(bubblewrap() is None, reason=f"bubblewrap is missing: {INSTALL}")
def test_both_tiers_work_for_an_ordinary_user(tmp_path: Path) -> None:
    code = (
        "import asyncio\nfrom gateway.sandbox.probing import fault_of\n"
        "from gateway.sandbox.tiers import Landlock, bubblewrap\n"
        "print([asyncio.run(fault_of(tier)) for tier in (bubblewrap(), Landlock())])"
    )
    done = as_ordinary_user(tmp_path, code)
    assert (done.stdout, done.stderr) == ("[None, None]\n", "")


@pytest.mark.parametrize("is_private", [True, False])
def test_no_process_of_the_same_user_reads_the_memory_of_the_gateway(tmp_path: Path, is_private: bool) -> None:
    code = (
        "import os, subprocess\nfrom gateway.sandbox.probing import keep_memory_private\n"
        f"{'keep_memory_private()' if is_private else 'pass'}\n"
        "read = subprocess.run(['cat', f'/proc/{os.getpid()}/environ'], env={}, capture_output=True, check=False)\n"
        "print(b'canary' in read.stdout, read.returncode)"
    )
    assert as_ordinary_user(tmp_path, code).stdout == ("False 1\n" if is_private else "True 0\n")
