"""The image is built as the Dockerfile says, and answers: by an engine, or in bare roots where there is none."""

from __future__ import annotations

import shutil
import subprocess
import uuid
from collections.abc import Iterator
from typing import Protocol

import pytest

from tests.deploy import bare_root
from tests.deploy.dockerfile import PATH, ROOT

pytestmark = pytest.mark.slow

BUILD_S = 900
CHECK_PAGE = """
import urllib.request
page = urllib.request.urlopen("http://127.0.0.1:8420/health/ready")
print(page.status)
"""


class Container(Protocol):
    """What an image started."""

    def execute(self, *command: str, user: str | None = None) -> tuple[int, str]: ...
    def wait_until_healthy(self) -> None: ...
    def stop(self) -> int: ...


def engine() -> str | None:
    """An engine that runs here."""
    for name in ("docker", "podman"):
        if shutil.which(name) and subprocess.run([name, "info"], capture_output=True, check=False).returncode == 0:
            return name
    return None


class Engine:
    """A container of an engine, with the limits of deploy/compose.yaml."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._name = f"ethos-test-{uuid.uuid4().hex[:12]}"
        self._do("build", "--quiet", "--file", str(PATH), "--tag", self._name, str(ROOT))
        limits = ["--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--network=none"]
        self._do("run", "--detach", "--name", self._name, *limits, self._name)

    def execute(self, *command: str, user: str | None = None) -> tuple[int, str]:
        options = [] if user is None else ["--user", user]
        done = subprocess.run(
            [self._program, "exec", *options, self._name, *command], capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr

    def wait_until_healthy(self) -> None:
        self._do("exec", self._name, "sh", "-c", "until ethos status; do sleep 0.2; done")

    def stop(self) -> int:
        self._do("stop", self._name)
        return int(self._do("inspect", "--format", "{{.State.ExitCode}}", self._name))

    def end(self) -> None:
        for command in (["rm", "--force", "--volumes"], ["rmi", "--force"]):
            subprocess.run([self._program, *command, self._name], capture_output=True, check=False)

    def _do(self, *words: str) -> str:
        done = subprocess.run([self._program, *words], capture_output=True, text=True, check=False, timeout=BUILD_S)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@pytest.fixture(scope="module")
def container(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    program, reason = engine(), bare_root.missing()
    if program is not None:
        made = Engine(program)
        try:
            yield made
        finally:
            made.end()
        return
    if reason is not None:
        pytest.skip(reason)
    place = tmp_path_factory.mktemp("image")
    with bare_root.place_for_roots(place) as roots:
        running = bare_root.Running(bare_root.BareRoots(roots).build(), place / "log")
        try:
            yield running
        finally:
            running.end()


def test_the_image_answers_is_healthy_and_ends_when_it_is_told(container: Container) -> None:
    container.wait_until_healthy()
    assert container.execute("ethos", "chat", "remember that my name is Ada")[0] == 0
    code, said = container.execute("ethos", "chat", "what is my name?")
    assert code == 0
    assert "Ada" in said
    assert container.execute("python", "-c", CHECK_PAGE) == (0, "200\n")
    code, owner = container.execute("stat", "--format=%u:%g %a", "/data", "/data/ethos.sqlite")
    assert (code, owner.splitlines()) == (0, ["10001:10001 700", "10001:10001 600"])
    assert container.execute("sh", "-c", "echo x >/opt/ethos/x")[0] != 0, "only its data can be changed"
    assert container.execute("python", "-m", "pip", "check")[0] == 0
    assert container.stop() == 0
