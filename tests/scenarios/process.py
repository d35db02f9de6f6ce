"""The real `ethos` command in processes of its own, on a data directory of the test's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.cli_output import without_waits

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0


class Ethos:
    """Runs commands, and a gateway, on one data directory."""

    def __init__(self, home: Path, environment: Mapping[str, str] | None = None) -> None:
        self.home = home
        self.environment = {
            **{name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")},
            "ETHOS_HOME": str(home),
            "PYTHONPATH": str(ROOT),
            **(environment or {}),
        }
        self._serving: subprocess.Popen[str] | None = None

    def configure(self, text: str) -> None:
        self.home.mkdir(mode=0o700, exist_ok=True)
        (self.home / "config.yaml").write_text(text)

    def run(
        self, *words: str, stdin: str | bytes | None = None, timeout_s: float = PATIENCE_S
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; output and errors as text."""
        done = subprocess.run(
            [sys.executable, "-m", "gateway.cli", *words],
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            env=self.environment,
            timeout=timeout_s,
            check=False,
        )
        return subprocess.CompletedProcess(
            done.args,
            done.returncode,
            done.stdout.decode(errors="replace"),
            without_waits(done.stderr.decode(errors="replace")),
        )

    def serve(self) -> dict[str, Any]:
        """Start a gateway; returns what it says of itself once it serves."""
        assert self._serving is None
        self._serving = subprocess.Popen(
            [sys.executable, "-m", "gateway.cli", "serve", "--no-chat"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environment,
        )
        assert self._serving.stdout is not None
        lines = []
        for line in self._serving.stdout:
            lines.append(line)
            if '"event": "serving"' in line:
                running: dict[str, Any] = json.loads((self.home / "run" / "gateway.json").read_text())
                return running
        raise AssertionError("the gateway ended: " + "".join(lines))

    def kill(self) -> None:
        """End the gateway as a power cut of its process would."""
        self._end(signal.SIGKILL)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask the gateway to end; its exit code."""
        return self._end(number)

    def close(self) -> None:
        if self._serving is not None:
            self.kill()

    def _end(self, number: signal.Signals) -> int:
        assert self._serving is not None
        serving, self._serving = self._serving, None
        serving.send_signal(number)
        try:
            serving.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            serving.kill()
            serving.communicate()
            raise
        return serving.returncode
