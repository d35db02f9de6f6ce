"""A change of `config.yaml` that is killed between any two of its steps leaves a file that can be read, and no secret
that nobody hears of."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.config.editing import edit, file_now
from gateway.config.file import check, load_config

SECRET = bytes(range(32)).hex()
WRITTEN = "# mine\nlimits: {steps_per_turn: 3}\n"
PROGRAM = f"""
import sys
from pathlib import Path
from gateway.config.editing import Secret, edit
edit(Path(sys.argv[1]), {{("limits", "steps_per_turn"): 5, ("secret",): Secret({SECRET!r})}})
"""
POINTS = (
    "file.written 1", "file.synced 1", "directory.synced 1", "directory.synced 2", "config.secret_kept 1",
    "file.written 2", "file.synced 2", "file.written 3", "file.synced 3", "directory.synced 3", "config.before_kept 1",
    "config.exchanged 1",
)  # fmt: skip


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_a_step_it_leaves_the_old_file_or_the_new_one_and_tells_of_the_secret(
    point: str, tmp_path: Path
) -> None:
    (tmp_path / "config.yaml").write_text(WRITTEN)
    environment = {**os.environ, "ETHOS_FAILPOINTS": f"kill {point}"}
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL, "it does not come to this point"
    assert load_config(home=tmp_path).config.limits.steps_per_turn in (3, 5)
    text = (tmp_path / "config.yaml").read_text()
    kept = [each for each in (tmp_path / "secrets").glob("*") if SECRET.encode() in each.read_bytes()]
    told = [warning for warning in check(home=tmp_path).warnings if "no key names this file" in warning]
    assert all(any(str(each) in warning for warning in told) for each in kept if f"secrets/{each.name}" not in text)
    edit(tmp_path, {("limits", "tool_calls_per_turn"): 7})
    assert not [each for each in tmp_path.rglob("*.tmp") if "before" not in each.name]
    assert file_now(tmp_path).values["limits"]["tool_calls_per_turn"] == 7
