"""An installation of ours outside the repository, as its user has it: programs, a data directory, nothing else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0
_ADDRESS = re.compile(r"https?://127\.0\.0\.1:\d+/")
_LOADED = re.compile(r"""\b(?:href|src)="(/static/[^"#?]+)""")


def without_ours() -> dict[str, str]:
    """The environment, without a word of the Python that runs the tests."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}


def documented(title: str) -> list[str]:
    """The commands in one section of docs/install.md, in their order, without comments."""
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    [section] = [part for part in re.split(r"^## ", page, flags=re.MULTILINE) if part.startswith(f"{title}\n")]
    blocks = re.findall(r"^```sh\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    return [re.sub(r"\s{2,}#.*", "", line) for block in blocks for line in block.splitlines()]


def build(source: Path, target: Path) -> tuple[Path, Path]:
    """The sdist and the wheel, as `make dist` builds them."""
    recipe = subprocess.run(["make", "-n", "dist"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "python -m hatchling build -d dist" in recipe
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", target], cwd=source,
        env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [sdist], [wheel] = target.glob("*.tar.gz"), target.glob("*.whl")
    assert set(target.iterdir()) == {sdist, wheel}
    return sdist, wheel


class Installed:
    """The commands of one installation, run with a data directory from a directory that is not ours.

    Attributes:
        programs: the directory that `ethos` is in.
    """

    def __init__(self, programs: Path, place: Path) -> None:
        self.programs = programs
        self.place = place
        self.home = place / "home"
        self.home.mkdir(mode=0o700)
        (self.home / "config.yaml").touch(0o600)
        (self.home / "config.yaml").write_text("web: {port: 0}\n")

    @property
    def environment(self) -> Mapping[str, str]:
        """Without a word of the repository, and of the Python that runs the tests."""
        return without_ours() | {"ETHOS_HOME": str(self.home), "PATH": f"{self.programs}:/usr/local/bin:/usr/bin:/bin"}

    def run(self, *command: str, code: int = 0) -> str:
        """What a command prints; the test fails where it ends with another code."""
        done = subprocess.run(
            command, cwd=self.place, env=self.environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False, timeout=PATIENCE_S,
        )  # fmt: skip
        assert done.returncode == code, f"{command} ended with {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout

    @contextmanager
    def served(self) -> Iterator[str]:
        """`ethos serve`; the address of its page."""
        command = [str(self.programs / "ethos"), "serve", "--no-chat", "--log-format", "json"]
        log = self.place / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(command, cwd=self.place, env=self.environment, stdin=subprocess.DEVNULL,
                                       stdout=output, stderr=output)  # fmt: skip
        try:
            yield self._address(process, log)
        finally:
            process.terminate()
            code = process.wait(PATIENCE_S)
        assert code == 0, log.read_text()

    def _address(self, process: subprocess.Popen[bytes], log: Path) -> str:
        until_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < until_s:
            if found := _ADDRESS.search(text := log.read_text()):
                return found[0]
            assert process.poll() is None, f"the gateway ended: {text}"
            time.sleep(0.05)  # nothing tells when a foreign process has written a line
        raise AssertionError(f"no address of a page came: {log.read_text()}")

    def pages(self, url: str, paths: Iterable[str]) -> set[str]:
        """Open pages as a browser that has logged in; the static files that they load, each of which is there."""
        token = (self.home / "web-token").read_text().strip()
        loaded: set[str] = set()
        with httpx.Client(base_url=url, follow_redirects=True, trust_env=False) as browser:
            assert browser.get("/", params={"token": token}).status_code == 200
            for path in paths:
                page = browser.get(path)
                assert page.status_code == 200, f"{path}: {page.status_code}"
                loaded |= set(_LOADED.findall(page.text))
            for path in loaded:
                assert browser.get(path).status_code == 200, path
        return loaded
