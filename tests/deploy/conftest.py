"""The files that people install."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy.installed import ROOT, build


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist and the wheel."""
    return build(ROOT, tmp_path_factory.mktemp("dist"))
