"""From `git clone` to an answer on a channel, typed and clicked as a new user would: each step with its seconds.

`python -m benchmarks.stopwatch` clones this repository, installs, starts `make run`, and goes through the set-up in a
real browser, with a model's server and a platform that are played on this machine. `--here` takes this checkout and
this Python, without clone and installation. What people read, think and do at a platform's console is not measured.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import pty
import re
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

from playwright.async_api import async_playwright

from tests.adapters.telegram.fake_telegram import FakeTelegram
from tests.browser.conftest import CHROMIUM, FLAGS
from tests.browser.dashboard.first_visit import FirstVisit
from tests.model_server import ModelServer

ROOT = Path(__file__).parents[1]
TYPING_MS = 60
"""For each key: some 200 characters a minute at a form, which is slow."""
START_S = 120.0
_LINK = re.compile(rb"Web page: (http://\S+\?token=[\w-]+)")


class StopWatch:
    """The steps with their seconds, in order."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, float]] = []

    @contextmanager
    def step(self, words: str) -> Iterator[None]:
        """Measure the block."""
        begun_s = time.monotonic()
        yield
        self.steps.append((words, time.monotonic() - begun_s))
        print(f"{self.steps[-1][1]:8.1f} s  {words}", flush=True)


async def run(*command: str, directory: Path) -> None:
    """A command to its end; its output is shown where it fails."""
    process = await asyncio.create_subprocess_exec(
        *command, cwd=directory, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await process.communicate()
    if process.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{said.decode(errors='replace')}")


@asynccontextmanager
async def started(command: Sequence[str], directory: Path, home: Path) -> AsyncIterator[str]:
    """A gateway in a terminal of its own; the link that it prints."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "ETHOS_HOME": str(home)}
    process = await asyncio.create_subprocess_exec(
        *command, cwd=directory, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    said, link = bytearray(), asyncio.get_running_loop().create_future()

    def read() -> None:
        try:
            said.extend(os.read(ours, 65_536))
        except OSError:  # the other end is closed
            asyncio.get_running_loop().remove_reader(ours)
        found = _LINK.search(said)
        if found is not None and not link.done():
            link.set_result(found[1].decode())

    asyncio.get_running_loop().add_reader(ours, read)
    try:
        try:
            yield await asyncio.wait_for(link, START_S)
        except TimeoutError:
            sys.exit(f"no gateway came up:\n{said.decode(errors='replace')}")
    finally:
        asyncio.get_running_loop().remove_reader(ours)
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGTERM)
            await process.wait()
        os.close(ours)


async def visit(watch: StopWatch, command: Sequence[str], directory: Path, home: Path) -> None:
    """Start the gateway, and go through the set-up."""
    telegram = FakeTelegram()
    await telegram.start()
    async with ModelServer() as model, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = await browser.new_page()
        way = FirstVisit(page=page, model=model, telegram=telegram, typing_ms=TYPING_MS)
        begun_s = time.monotonic()
        async with started(command, directory, home) as link:
            watch.steps.append(("start: until the link is printed", time.monotonic() - begun_s))
            print(f"{watch.steps[-1][1]:8.1f} s  {watch.steps[-1][0]}", flush=True)
            for words, step in (
                ("open the link", partial(way.log_in, link)),
                ("say who you are", way.say_who),
                ("a model: its server, its key, the list, the test call", way.choose_model),
                ("a channel: its token, tried and connected", way.connect_channel),
                ("the first message: known as the owner, and an answer", way.write_first),
                ("a backup", way.back_up),
            ):
                with watch.step(words):
                    await step()
        await browser.close()
    await telegram.stop()


async def main(*, is_here: bool) -> None:
    """Measure, and print the sums."""
    watch = StopWatch()
    with tempfile.TemporaryDirectory(prefix="ethos-stopwatch-") as place:
        directory, home = Path(place) / "ethos", Path(place) / "home"
        if is_here:
            command = [sys.executable, "-m", "gateway.cli", "serve"]
            await visit(watch, command, ROOT, home)
        else:
            with watch.step("git clone"):
                await run("git", "clone", "--quiet", str(ROOT), str(directory), directory=Path(place))
            with watch.step("`make run`: the part that installs"):
                await run("make", ".venv/.installed", directory=directory)
            with watch.step("`make channels`: the libraries of all channels"):
                await run("make", "channels", directory=directory)
            await visit(watch, ["make", "run"], directory, home)
    installing = sum(seconds for words, seconds in watch.steps if "install" in words or "libraries" in words)
    total = sum(seconds for _, seconds in watch.steps)
    print(f"{total:8.1f} s  in all, {total - installing:.1f} s without the installation")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--here", action="store_true", help="this checkout and this Python, nothing is installed")
    asyncio.run(main(is_here=parser.parse_args().here))
