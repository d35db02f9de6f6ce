"""The sdist and the wheel: what is in them, and that each is a whole gateway where there is nothing else of ours."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from gateway import __version__
from gateway.web.dashboard.page import all_pages
from tests.deploy.installed import ROOT, Installed, build, documented, without_ours

pytestmark = pytest.mark.slow

FIRST_ANSWER = """
from ethos import Ethos
with Ethos() as client:
    client.chat.ask("remember that my name is Ada", conversation="first")
    print(client.chat.ask("what is my name?", conversation="first"))
"""
WITH_PIP = documented("pip, with the checked libraries")
EXAMPLE = """
from importlib.resources import files
print(files("gateway.config").joinpath("config.example.yaml").read_text(), end="")
"""


def files_below(*names: str) -> set[str]:
    found = (path for name in names for path in (ROOT / name).rglob("*"))
    return {str(path.relative_to(ROOT)) for path in found if path.is_file() and "__pycache__" not in path.parts}


def test_the_wheel_holds_all_that_a_gateway_needs_and_nothing_else(built: tuple[Path, Path]) -> None:
    packed = set(zipfile.ZipFile(built[1]).namelist())
    described = {name for name in packed if name.startswith("ethos_gateway-") and ".dist-info/" in name}
    ours = {name.removeprefix("gateway/sdk/src/") for name in files_below("gateway", "adapters")}
    page = f"ethos_gateway-{__version__}.data/data/share/man/man1/ethos.1"
    assert packed - described == {*ours, page}
    assert "gateway/config/config.example.yaml" in ours, "a link here, a file in the wheel"
    assert any(name.endswith("/licenses/LICENSE") for name in described)


def test_the_sdist_holds_what_one_installs_runs_and_reads_and_neither_tests_nor_benchmarks(
    built: tuple[Path, Path],
) -> None:
    with tarfile.open(built[0]) as archive:
        members = [member for member in archive.getmembers() if not member.isdir()]
    names = {name.partition("/")[2] for name in (member.name for member in members)}
    assert files_below("gateway", "adapters", "deploy/kubernetes") <= names
    units = {f"deploy/{name}" for name in ("Dockerfile", "compose.yaml", "ethos.service")}
    locks = {"requirements.lock", "requirements-channels.lock"}
    assert units | locks | {"ethos.1", "LICENSE", "Makefile", "docs/quickstart.md", "config.example.yaml"} <= names
    strange = {name for name in names if re.match(r"tests|benchmarks|.*node_modules|.*\.pyc|\.\w+/", name)}
    assert strange == set()
    assert {member.uid for member in members} == {0}


def test_the_same_commit_gives_the_same_bytes_anywhere_and_from_the_sdist_too(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    sdist, wheel = built
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    [source] = tmp_path.iterdir()
    again = build(source, tmp_path / "dist")
    assert again[1].read_bytes() == wheel.read_bytes()
    assert again[0].read_bytes() == sdist.read_bytes()


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python of its own, with the locked libraries and without us."""
    place = tmp_path_factory.mktemp("environment") / "ethos-environment"
    make, libraries, _, _ = WITH_PIP
    for command in (make, libraries):
        run(command, place)
    return place


def run(command: str, place: Path) -> None:
    """A line of the page, with our environment in the place of the one in it."""
    line = command.replace("~/ethos-environment", str(place)).replace("python3 ", f"{sys.executable} ")
    done = subprocess.run(shlex.split(line), cwd=ROOT, capture_output=True, text=True, check=False, env=without_ours())
    assert done.returncode == 0, done.stderr


@pytest.fixture(params=[0, 1], ids=["sdist", "wheel"])
def installed(request: pytest.FixtureRequest, built: tuple[Path, Path], environment: Path, tmp_path: Path) -> Installed:
    assert WITH_PIP[2].endswith(" .")
    run(f"{WITH_PIP[2].removesuffix('.')} --no-index --force-reinstall {built[request.param]}", environment)
    return Installed(environment / "bin", tmp_path)


def test_what_was_installed_from_a_file_is_a_whole_gateway(installed: Installed) -> None:
    """From another directory, with the libraries of the lock and no others."""
    python = str(installed.programs / "python")
    assert installed.run(python, "-m", "pip", "check") == "No broken requirements found.\n"
    assert installed.run("ethos", "--version") == f"ethos {__version__}\n"
    assert installed.run("ethos", "config", "check").endswith("config.yaml: good.\n")
    with installed.served() as url:
        assert "Ada" in installed.run(python, "-c", FIRST_ANSWER)
        loaded = installed.pages(url, (page.path for page in all_pages()))
        assert "no problems" in installed.run("ethos", "doctor")
    static = ROOT / "gateway" / "web" / "static"
    assert {f"/static/{path.relative_to(static)}" for path in static.rglob("*.css")} <= loaded
    assert installed.run(python, "-c", EXAMPLE) == (ROOT / "config.example.yaml").read_text()
    assert (installed.programs.parent / "share" / "man" / "man1" / "ethos.1").read_text().startswith(".TH ETHOS 1")
