"""What lies in `deploy/` is sound, as far as that can be told without an engine and without starting a service."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.config import Config
from gateway.config.file import load_config
from gateway.config.secrets import SecretUnavailable, read_secret_file
from gateway.mcp.links import _LIMITS as LIMITS_OF_SERVERS
from gateway.sandbox.running import temporary
from gateway.sandbox.tiers import Landlock, Plan
from tests.deploy.dockerfile import copied, instructions
from tests.faults.traced import strace_missing
from tests.servers import npm

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNITS = ["ethos.service", "ethos-backup.service", "ethos-backup.timer"]
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()


# ---- the image ------------------------------------------------------------------------------------------------------


def last_stage() -> list[tuple[str, str]]:
    found = instructions()
    return found[max(number for number, (name, _) in enumerate(found) if name == "FROM") :]


def test_the_image_runs_as_a_numbered_user_who_is_not_root() -> None:
    [user] = [text for name, text in last_stage() if name == "USER"]
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", user), "a number can be checked by whoever runs it: runAsNonRoot"


def test_the_images_it_is_made_from_have_versions_and_the_last_stage_brings_no_tools_to_build() -> None:
    assert [text.split()[0] for name, text in instructions() if name == "FROM"] == ["python:${PYTHON}"] * 2
    [version] = re.findall(r"^ARG PYTHON=(.*)$", DOCKERFILE, re.MULTILINE)
    assert re.fullmatch(r"3\.\d+-slim-\w+", version)
    minimum = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"].removeprefix(">=")
    assert tuple(map(int, version.split("-")[0].split("."))) >= tuple(map(int, minimum.split(".")))
    copied = [text for name, text in last_stage() if name == "COPY"]
    assert copied == ["--from=build /opt/ethos /opt/ethos"]
    assert not [text for name, text in last_stage() if name == "RUN" and re.search(r"\b(pip|apt|curl|wget)\b", text)]


def test_all_that_is_downloaded_is_checked_against_the_lock() -> None:
    installs = [part for name, text in instructions() if name == "RUN" for part in text.split("&&") if "pip " in part]
    assert len(installs) == 2
    assert all("--require-hashes -r" in part or "--no-index --no-deps" in part for part in installs)
    assert not re.search(r"\bADD\b|https?://", DOCKERFILE)
    for lock in re.findall(r"requirements[\w-]*\.lock", DOCKERFILE):
        assert "--hash=sha256:" in (ROOT / lock).read_text()


def test_signals_reach_the_gateway_its_health_is_asked_and_its_data_is_a_volume() -> None:
    stage = dict(last_stage())
    assert stage["ENTRYPOINT"] == '["ethos"]', "no shell in between"
    assert stage["CMD"] == '["serve", "--no-chat"]'
    assert stage["HEALTHCHECK"].endswith('CMD ["ethos", "status"]')
    assert stage["VOLUME"] == "/data"
    assert "ETHOS_HOME=/data" in stage["ENV"]
    assert stage["STOPSIGNAL"] == "SIGTERM"


def test_no_secret_and_nothing_that_is_not_needed_goes_into_the_image() -> None:
    lines = (ROOT / ".dockerignore").read_text().split()
    assert lines[0] == "*"
    wanted = {line.removeprefix("!") for line in lines if line.startswith("!")}
    assert wanted == copied()
    assert all((ROOT / source).exists() for source in copied())


@pytest.mark.slow
def test_what_the_image_installs_holds_every_file_that_the_gateway_needs(tmp_path: Path) -> None:
    """The build's own step, with the files that the Dockerfile copies, and no others."""
    source = tmp_path / "src"
    source.mkdir()
    for name in copied():
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    options = ["--no-index", "--no-deps", "--no-build-isolation"]
    built = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, "-w", tmp_path, source],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    [wheel] = tmp_path.glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    needed = {
        str(path.relative_to(ROOT)).removeprefix("gateway/sdk/src/")  # `ethos`, beside the other packages
        for package in ("gateway", "adapters")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert needed <= packed


# ---- compose --------------------------------------------------------------------------------------------------------


def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return document


def test_the_compose_file_builds_the_image_and_mounts_what_it_declares() -> None:
    document = compose()
    [service] = document["services"].values()
    root = (DEPLOY / service["build"]["context"]).resolve()
    assert root == ROOT
    assert (root / service["build"]["dockerfile"]).is_file()
    assert (root / service["build"]["args"]["LOCK"]).is_file()
    assert {name.partition(":")[0] for name in service["volumes"]} == set(document["volumes"])


def test_the_container_may_write_its_data_and_nothing_else() -> None:
    [service] = compose()["services"].values()
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["volumes"] == ["data:/data"]
    assert "privileged" not in service
    assert all(port.startswith("127.0.0.1:") for port in service["ports"]), "not open to the world without TLS"


def test_the_container_is_given_time_to_end() -> None:
    [service] = compose()["services"].values()
    assert float(service["stop_grace_period"].removesuffix("s")) > Config().shutdown_s


def test_the_containers_configuration_can_be_used_and_fits_the_port(tmp_path: Path) -> None:
    shutil.copy(DEPLOY / "container.yaml", tmp_path / "config.yaml")
    loaded = load_config(tmp_path / "config.yaml", environment={})
    [service] = compose()["services"].values()
    assert service["ports"] == [f"127.0.0.1:{loaded.config.web.port}:{loaded.config.web.port}"]
    assert f"EXPOSE {loaded.config.web.port}" in DOCKERFILE
    assert loaded.config.web.host == "0.0.0.0"  # noqa: S104 (of the container, not of the machine)


def test_a_secret_that_is_mounted_read_only_may_be_readable_by_others_and_no_other_may(tmp_path: Path) -> None:
    """Docker and Kubernetes mount secrets 0444; whoever is in the container could not change that."""
    secret = tmp_path / "secret"
    secret.write_text("s\n")
    for mode in (0o444, 0o440, 0o644):
        secret.chmod(mode)
        assert read_secret_file(secret, is_mounted_read_only=lambda _path: True) == "s"
        with pytest.raises(SecretUnavailable, match="open to other users"):
            read_secret_file(secret)
    secret.chmod(0o666)
    with pytest.raises(SecretUnavailable, match="open to other users"):
        read_secret_file(secret, is_mounted_read_only=lambda _path: True)


# ---- systemd --------------------------------------------------------------------------------------------------------


@pytest.fixture
def analyze() -> str:
    found = shutil.which("systemd-analyze")
    if found is None:
        pytest.skip("no systemd-analyze here: apt-get update && apt-get install -y systemd")
    return found


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string((DEPLOY / name).read_text())
    return parser


def test_systemd_finds_nothing_wrong_with_the_units(analyze: str, tmp_path: Path) -> None:
    for name in UNITS:
        text = (DEPLOY / name).read_text()
        (tmp_path / name).write_text(text.replace("/opt/ethos/bin/ethos", shutil.which("true") or "/bin/true"))
    done = subprocess.run(
        [analyze, "verify", "--man=no", "--generators=no", *(tmp_path / name for name in UNITS)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    about_ours = [line for line in done.stderr.splitlines() if "ethos" in line]
    assert (done.returncode, about_ours) == (0, [])


@pytest.mark.parametrize(("name", "threshold"), [("ethos.service", 15), ("ethos-backup.service", 10)])
def test_systemd_rates_the_services_as_little_exposed(analyze: str, name: str, threshold: int) -> None:
    """The rate is in tenths; 100 is a service without any limit."""
    done = subprocess.run(
        [analyze, "security", "--offline=true", f"--threshold={threshold}", "--no-pager", DEPLOY / name],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def allowed_calls(analyze: str) -> set[str]:
    """The system calls that the unit lets through, as systemd adds its lines up."""

    def members(name: str) -> set[str]:
        shown = subprocess.run([analyze, "syscall-filter", name], capture_output=True, text=True, check=True).stdout
        words = [line.strip() for line in shown.splitlines() if line.startswith("    ") and "#" not in line]
        return set().union(*(members(word) if word.startswith("@") else {word} for word in words))

    found: set[str] = set()
    for line in re.findall(r"^SystemCallFilter=(.*)$", (DEPLOY / "ethos.service").read_text(), re.MULTILINE):
        named: set[str] = set()
        for word in line.removeprefix("~").split():
            named |= members(word) if word.startswith("@") else {word}
        found = found - named if line.startswith("~") else found | named
    return found


async def calls_in_the_sandbox(
    directory: Path, command: list[str], said: str = "", **more: Any
) -> tuple[set[str], str]:
    """The system calls that the kernel's own sandbox makes, and a program in it; and what the program printed."""
    if (missing := strace_missing()) is not None:
        pytest.skip(missing)
    (workspace := directory / "workspace").mkdir()
    trace = directory / "trace"
    async with temporary() as place:
        plan = Plan(workspace=workspace, temporary=place, **more)
        words = Landlock().command(plan, command)
        traced = ["strace", "-f", "-qq", "-o", trace, "sh", "-c", 'exec "$@" # the parent stays', "sh", *words]
        launched = json.loads(words[4])
        del launched["parent"]
        traced[traced.index(words[4])] = json.dumps(launched)
        done = subprocess.run(
            traced, capture_output=True, text=True, check=False, env=dict(plan.environment), input=said
        )
    assert done.returncode == 0, done.stderr
    made = set(re.findall(r"^\d+ +(\w+)\(", trace.read_text(), re.MULTILINE))
    assert {"landlock_restrict_self", "prctl", "execve"} <= made
    return made, done.stdout


async def test_the_service_lets_a_sandbox_work(analyze: str, tmp_path: Path) -> None:
    program = "import json, subprocess, sys; subprocess.run([sys.executable, '-c', 'print(7)'], check=True)"
    made, printed = await calls_in_the_sandbox(tmp_path, [sys.executable, "-c", program])
    assert printed == "7\n"
    assert made - allowed_calls(analyze) == set()


@pytest.mark.skipif(npm.MISSING is not None, reason=npm.MISSING or "")
async def test_the_service_lets_a_server_in_node_work(analyze: str, tmp_path: Path) -> None:
    """Its calls; the memory that it needs is the matter of the drop-in."""
    (tmp_path / "tea.txt").write_text("green tea")
    client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    reading = {"name": "read_text_file", "arguments": {"path": str(tmp_path / "tea.txt")}}
    asked = [("initialize", client), ("tools/call", reading)]
    said = [
        json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        for number, (method, params) in enumerate(asked)
    ]
    made, printed = await calls_in_the_sandbox(
        tmp_path,
        [*npm.program("server-filesystem"), str(tmp_path)],
        "\n".join([*said, ""]),
        readable=[npm.PROGRAMS, tmp_path],
        network=True,
        limits=LIMITS_OF_SERVERS,
    )
    assert "green tea" in printed
    assert made - allowed_calls(analyze) == set()


def test_the_drop_in_for_node_changes_what_node_needs_and_nothing_else(analyze: str, tmp_path: Path) -> None:
    service, node = unit("ethos.service")["Service"], unit("ethos-node.conf")["Service"]
    assert set(node) == {"MemoryDenyWriteExecute", "MemoryMax", "TasksMax"}
    assert (service["MemoryDenyWriteExecute"], node["MemoryDenyWriteExecute"]) == ("yes", "no")
    (drop_ins := tmp_path / "ethos.service.d").mkdir()
    text = (DEPLOY / "ethos.service").read_text()
    (tmp_path / "ethos.service").write_text(text.replace("/opt/ethos/bin/ethos", shutil.which("true") or "/bin/true"))
    shutil.copy(DEPLOY / "ethos-node.conf", drop_ins)
    done = subprocess.run(
        [analyze, "verify", "--man=no", "--generators=no", tmp_path / "ethos.service"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, [line for line in done.stderr.splitlines() if "ethos" in line]) == (0, [])


@pytest.mark.skipif(npm.MISSING is not None, reason=npm.MISSING or "")
def test_node_ends_where_memory_that_is_written_may_not_be_run() -> None:
    """Why there is the drop-in. PR_SET_MDWE is what systemd sets, from Linux 6.3 on."""
    deny = (
        "import ctypes, os, sys\n"
        "if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0): sys.exit(75)\n"
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    work = ["-e", "for (let i = 0, n = 0; i < 1e6; i++) n += i"]
    assert subprocess.run([npm.NODE, *work], check=False).returncode == 0
    denied = subprocess.run([sys.executable, "-c", deny, npm.NODE, *work], check=False, capture_output=True)
    if denied.returncode == 75:
        pytest.skip("needs Linux 6.3")
    assert denied.returncode != 0


def test_the_service_speaks_the_notify_protocol_and_its_times_fit_the_gateways() -> None:
    service = unit("ethos.service")["Service"]
    assert service["Type"] == "notify"
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert float(service["TimeoutStopSec"]) > Config().shutdown_s
    assert service["RestartPreventExitStatus"] == "78"
    assert service["User"] not in ("root", "")
    home = f"/var/lib/{service['StateDirectory']}"
    assert service["Environment"] == f"ETHOS_HOME={home}"
    backup = unit("ethos-backup.service")["Service"]
    assert backup["Environment"] == service["Environment"]
    assert backup["User"] == service["User"]
    assert home in backup["ReadWritePaths"].split()
    assert backup["ExecStart"].split()[-1] in backup["ReadWritePaths"].split()
