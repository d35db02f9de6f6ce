"""Shared by the tests of the configuration."""

from collections.abc import Callable
from pathlib import Path

import pytest

WriteConfig = Callable[[str | bytes], Path]


@pytest.fixture
def write_config(tmp_path: Path) -> WriteConfig:
    """Write `config.yaml` into a fresh data directory."""

    def write(text: str | bytes) -> Path:
        path = tmp_path / "config.yaml"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        path.chmod(0o600)
        return path

    return write
