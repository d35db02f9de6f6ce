"""A directory that is not ours to read is an error that says so, and costs a turn its memory and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.errors import FileError
from gateway.memory import paths
from gateway.protocols import MemoryScope


def test_a_directory_that_cannot_be_looked_into_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Played, because a test that runs as root may look everywhere."""

    def refused(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_symlink", refused)
    scope = MemoryScope(personality_id="p", user_id="u_1", session_id=None, turn_id="t")
    with pytest.raises(FileError, match="cannot be read: Permission denied; make it yours again"):
        paths.locate(tmp_path, scope, "memory")
