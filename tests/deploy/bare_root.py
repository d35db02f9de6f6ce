"""The steps of the Dockerfile, run in bare roots of Debian where there is no engine for containers.

A root is made by debootstrap, with Debian's Python in the place of the one that the base image has. Each step runs in
namespaces of its own (unshare(1)): no network, no process and no mount of it outlives it. Libraries are downloaded
before, for the hashes of the lock file to be checked in the root.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.deploy.dockerfile import ROOT, copied, instructions

PACKAGES = ("ca-certificates", "python3", "python3-venv")
STEP_S = 600
READY_S = 60
MOST_BYTES = 3 << 30
NEEDED_BYTES = 6 << 30
_TOOLS = ("debootstrap", "unshare", "nsenter", "chroot", "ip")
_INSIDE = """
ip link set lo up && mount -t proc proc "$0/proc" && mount --bind /dev "$0/dev" || exit 125
exec chroot "$@"
"""
# What an engine notes, and a root needs not; `ARG` is read before.
_NOTED = ("ARG", "LABEL", "EXPOSE", "VOLUME", "STOPSIGNAL")


def missing() -> str | None:
    """Why it cannot be done here, with the command that makes it possible."""
    lacking = [tool for tool in _TOOLS if shutil.which(tool, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None]
    if os.geteuid() != 0 or lacking:
        return (
            f"needs root{''.join(f', {tool}' for tool in lacking)}, or an engine for containers: as root, "
            "deploy/install-test-packages && .venv/bin/pytest tests/deploy/test_image.py"
        )
    return None


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A root, and what its steps have set so far."""

    root: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: str = "/"
    user: str = "0:0"
    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()
    health: Sequence[str] = ()

    def words(self, command: Sequence[str]) -> list[str]:
        """The arguments of chroot(8) for a command in this root, as the image would run it."""
        named = [f"{name}={value}" for name, value in self.environment.items()]
        inside = ["sh", "-c", 'cd "$0" && exec "$@"', self.directory, *command]
        return [f"--userspec={self.user}", str(self.root), "env", "-i", *named, *inside]

    def alone(self, command: Sequence[str]) -> list[str]:
        """The command with no network but its own loopback, and with all that it starts ended with it."""
        apart = ["unshare", "--mount", "--pid", "--net", "--fork", "--kill-child"]
        return [*apart, "sh", "-c", _INSIDE, str(self.root), *self.words(command)]


class BareRoots:
    """Builds the last stage of the Dockerfile.

    Attributes:
        place: a directory for the roots, which the caller removes.
    """

    def __init__(self, place: Path) -> None:
        self.place = place
        self.stages: dict[str, Stage] = {}
        given = (text.partition("=") for name, text in instructions() if name == "ARG")
        self._arguments = {name: default for name, _, default in given}

    def build(self) -> Stage:
        """Run every step."""
        steps = instructions()
        last = max(number for number, (name, _) in enumerate(steps) if name == "FROM")
        stage = Stage(root=self.place)
        for number, (name, text) in enumerate(steps):
            if name == "FROM":
                stage = self._begun(text, is_last=number == last)
            elif name not in _NOTED:
                stage = self._step(stage, name, text)
            self.stages[str(stage.root.name)] = stage
        return stage

    def _begun(self, text: str, *, is_last: bool) -> Stage:
        """A root of its own for each stage; the last takes the first one over, which is needed no more."""
        image, _, name = text.partition(" AS ")
        suite = self._filled(image).rpartition("-")[2]
        base, root = self.place / "base", self.place / (name or "last")
        if not base.exists():
            bootstrap(base, suite)
        if is_last:
            base.rename(root)
        else:
            run(["cp", "--archive", "--reflink=auto", base, root])
            self._bring_libraries(root)
        return Stage(root=root, environment={"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"})

    def _step(self, stage: Stage, name: str, text: str) -> Stage:
        match name:
            case "ENV":
                pairs = (pair.partition("=") for pair in shlex.split(text))
                known = stage.environment
                new = {key: value.replace("$PATH", known["PATH"]) for key, _, value in pairs}
                return replace(stage, environment={**known, **new})
            case "WORKDIR":
                (stage.root / text.lstrip("/")).mkdir(parents=True, exist_ok=True)
                return replace(stage, directory=text)
            case "RUN":
                with_arguments = {**self._arguments, **stage.environment, **_LIBRARIES}
                run(replace(stage, environment=with_arguments).alone(["sh", "-c", text]))
            case "COPY":
                self._copy(stage, text.split())
            case "USER":
                return replace(stage, user=text)
            case "ENTRYPOINT" | "CMD":
                words = {"ENTRYPOINT": "entrypoint", "CMD": "command"}[name]
                return replace(stage, **{words: json.loads(text)})
            case "HEALTHCHECK":
                return replace(stage, health=json.loads(text.partition(" CMD ")[2]))
            case _:
                raise AssertionError(f"no step of the Dockerfile that is known here: {name} {text}")
        return stage

    def _copy(self, stage: Stage, words: Sequence[str]) -> None:
        option, *rest = words if words[0].startswith("--from=") else ("", *words)
        *sources, target = rest
        to = stage.root / str(Path(stage.directory, target)).lstrip("/")
        for source in sources:
            path = ROOT / source
            if option:
                path = self.stages[option.removeprefix("--from=")].root / source.lstrip("/")
            else:
                assert source in copied(), source
            if path.is_dir():
                left_out = None if option else shutil.ignore_patterns("__pycache__", "*.pyc")
                shutil.copytree(path, to, symlinks=True, dirs_exist_ok=True, ignore=left_out)
            else:
                shutil.copy(path, to / path.name if to.is_dir() else to)

    def _filled(self, text: str) -> str:
        for name, value in self._arguments.items():
            text = text.replace(f"${{{name}}}", value)
        return text

    def _bring_libraries(self, root: Path) -> None:
        """What pip would download in the root, for the Python that it has."""
        asked = "import sys; print('%d.%d' % sys.version_info[:2])"
        version = subprocess.run(
            ["chroot", root, "python3", "-c", asked], capture_output=True, text=True, check=True
        ).stdout.strip()
        lock = ROOT / self._arguments["LOCK"]
        options = ["--require-hashes", "--only-binary=:all:", "--python-version", version, "-d", root / "libraries"]
        run([sys.executable, "-m", "pip", "download", "--quiet", *options, "-r", lock])


_LIBRARIES = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/libraries"}


def bootstrap(root: Path, suite: str) -> None:
    """A small Debian, from the mirror that this machine has its packages from."""
    wanted = ["--format", "$(CODENAME) $(REPO_URI)", "Created-By: Packages", "Component: main"]
    targets = subprocess.run(["apt-get", "indextargets", *wanted], capture_output=True, text=True, check=True).stdout
    mirrors = dict(line.split() for line in reversed(targets.splitlines()))
    here = next(line.partition("=")[2] for line in Path("/etc/os-release").read_text().splitlines()
                if line.startswith("VERSION_CODENAME="))  # fmt: skip
    asked = "eval $(apt-config shell proxy Acquire::http::Proxy); echo $proxy"
    proxy = subprocess.run(["sh", "-c", asked], capture_output=True, text=True, check=True).stdout.strip()
    made = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", suite, str(root)]
    run(["unshare", "--mount", *made, mirrors.get(suite, mirrors[here])], {"http_proxy": proxy} if proxy else {})
    (root / "usr" / "local" / "bin" / "python").symlink_to("/usr/bin/python3")  # as the base image has it


def run(command: Sequence[str | Path], more: Mapping[str, str] | None = None) -> None:
    """Run a command that must succeed."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        command, env={**environment, "PATH": path, **(more or {})}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False, timeout=STEP_S,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"


class Running:
    """What the image starts, with commands in the same namespaces, as an engine has them."""

    def __init__(self, stage: Stage, log: Path) -> None:
        self._stage = stage
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                stage.alone([*stage.entrypoint, *stage.command]), stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def execute(self, *command: str, user: str | None = None) -> tuple[int, str]:
        """The exit code of a command, and what it says."""
        stage = self._stage if user is None else replace(self._stage, user=user)
        enter = ["nsenter", "--target", self._first(), "--mount", "--pid", "--net", "chroot"]
        done = subprocess.run(
            [*enter, *stage.words(command)], stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False, timeout=READY_S,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    def wait_until_healthy(self) -> None:
        """Ask as often as it takes; an engine does that, too."""
        until_s = time.monotonic() + READY_S
        while self.execute(*self._stage.health)[0] != 0:
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < until_s, self._log.read_text()
            time.sleep(0.2)  # as `--interval` of the health check

    def stop(self) -> int:
        """Its exit code, after the signal that ends it."""
        os.kill(int(self._first()), signal.SIGTERM)
        return self._process.wait(READY_S)

    def end(self) -> None:
        """End whatever still runs."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(READY_S)

    def _first(self) -> str:
        """The process with the number 1 inside, as it is numbered here."""
        path = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        return path.read_text().split()[0]


@contextmanager
def place_for_roots(parent: Path) -> Iterator[Path]:
    """A directory that is removed in any case, and only while nothing is mounted in it.

    It is in memory where there is enough: dpkg waits for the disk after each file.
    """
    place = parent / "roots"
    place.mkdir()
    is_in_memory = _available_bytes() > NEEDED_BYTES
    if is_in_memory:
        run(["mount", "-t", "tmpfs", "-o", f"size={MOST_BYTES}", "ethos-test", place])
    try:
        yield place
    finally:
        mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
        assert not [mount for mount in mounts if mount.startswith(f"{place}/")], "nothing is removed that is mounted"
        if is_in_memory:
            run(["umount", "--lazy", place])
        shutil.rmtree(place)


def _available_bytes() -> int:
    known = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(known["MemAvailable"].split()[0]) * 1024
