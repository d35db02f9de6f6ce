from pathlib import Path

import pytest

from gateway.people.identity import IdentityMap
from gateway.people.identity import disk as identity_disk


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "users" / "identity-map.json"


@pytest.fixture
def written(path: Path) -> Path:
    """The path, in a directory that is there."""
    path.parent.mkdir(mode=0o700, parents=True)
    return path


@pytest.fixture
def people(path: Path) -> IdentityMap:
    return IdentityMap(path)


@pytest.fixture
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken file counts as broken at once, as if it had been so for a second."""
    monkeypatch.setattr(identity_disk, "BROKEN_FOR_S", 0.0)
