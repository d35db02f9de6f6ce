"""pipx and uv install a gateway as docs/install.md says, and what the gateway says is missing is installed by them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway import __version__
from tests.deploy.installed import ROOT, Installed, documented, without_ours

pytestmark = pytest.mark.slow

PROGRAMS = Path(sys.executable).parent
TELEGRAM = "channels: {bot: {kind: telegram, token: '1:t', access: open}}\n"

Run = Callable[[str], None]


@pytest.fixture(params=["pipx", "uv"])
def tool(request: pytest.FixtureRequest) -> str:
    if shutil.which(request.param, path=str(PROGRAMS)) is None:
        pytest.skip(f"{request.param} is not installed: make test")
    return str(request.param)


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    return Installed(tmp_path / "bin", tmp_path)


@pytest.fixture
def run(installed: Installed) -> Run:
    """Run a command of a page in the clone, with all that the tools make in a directory of the test."""
    place = installed.place
    own = {
        "PIPX_HOME": place / "pipx", "PIPX_BIN_DIR": place / "bin", "PIPX_MAN_DIR": place / "man",
        "PIPX_COMPLETION_DIR": place / "completion", "PIPX_DEFAULT_PYTHON": sys.executable,
        "UV_TOOL_DIR": place / "uv", "UV_TOOL_BIN_DIR": place / "bin", "UV_CACHE_DIR": place / "cache",
        "UV_PYTHON": sys.executable, "UV_PYTHON_DOWNLOADS": "never",
    }  # fmt: skip
    path = f"{place / 'bin'}:{PROGRAMS}:{os.environ['PATH']}"
    environment = without_ours() | {name: str(value) for name, value in own.items()} | {"PATH": path}

    def work(command: str) -> None:
        done = subprocess.run(
            shlex.split(command), cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"

    return work


def test_the_page_says_how_it_is_installed_upgraded_and_removed(tool: str, installed: Installed, run: Run) -> None:
    install, show, upgrade, remove = documented(tool)
    for command in (install, upgrade):
        assert command.startswith(tool), command
        assert command.endswith(" '.[telegram]'"), command
        run(command)
        run(show)
        (installed.home / "config.yaml").write_text(TELEGRAM)
        assert installed.run("ethos", "--version") == f"ethos {__version__}\n"
        assert "good" in installed.run("ethos", "config", "check"), "the libraries of the extra are there"
    (installed.home / "config.yaml").unlink()
    assert "Ada" in installed.run("ethos", "chat", "remember that my name is Ada")
    run(remove)
    assert not (installed.programs / "ethos").exists()


def test_the_library_that_a_channel_lacks_is_installed_by_the_command_that_the_gateway_says(
    tool: str, installed: Installed, run: Run, built: tuple[Path, Path]
) -> None:
    """From a wheel; and what had been asked for before is there afterwards, too."""
    install, *_ = documented(tool)
    run(install.replace("'.[telegram]'", f"'{built[1]}[keyring]'"))
    (installed.home / "config.yaml").write_text(TELEGRAM)
    said = installed.run("ethos", "config", "check", code=78)
    [command] = re.findall(r"expected `([^`]+)`", said)
    assert command.startswith({"pipx": "pipx inject ethos-gateway ", "uv": "uv tool install "}[tool])
    run(command)
    key = "models: {m: {provider: openai, model: x, api_key: {keyring: k}}}\n"
    (installed.home / "config.yaml").write_text(TELEGRAM + key)
    assert "not installed" not in installed.run("ethos", "config", "check", code=78), "there is no such key"
