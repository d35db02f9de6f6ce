"""What the build adds to the files of the repository: the page for `man ethos`, made from the commands."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.builders.utils import get_reproducible_timestamp

PAGE = "ethos.1"


class ManPage(BuildHookInterface[Any]):
    """Makes the page; an sdist has it, so that a wheel of that has the same."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the page to the files of the sdist or the wheel. An editable install has none."""
        if version == "editable":
            return
        root = Path(self.root)
        page = root / PAGE
        if not page.exists():
            page = Path(self.directory) / PAGE
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(_written(root), encoding="utf-8")
        if self.target_name == "sdist":
            build_data["force_include"][str(page)] = PAGE
        else:
            build_data["shared_data"][str(page)] = f"share/man/man1/{PAGE}"

    def finalize(self, _version: str, _build_data: dict[str, Any], _artifact_path: str) -> None:
        """Leave nothing but the sdist or the wheel."""
        (Path(self.directory) / PAGE).unlink(missing_ok=True)


def _written(root: Path) -> str:
    """The page of the commands in this very tree, whatever is installed here."""
    day = datetime.fromtimestamp(get_reproducible_timestamp(), UTC).date()
    command = [sys.executable, "-m", "gateway.cli.man_page", day.isoformat()]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(root), *filter(None, sys.path)])}
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=True).stdout  # noqa: S603 (ours)
