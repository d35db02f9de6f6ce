"""The houses of the stores: one of each engine."""

from __future__ import annotations

from tests.gateway.store.conftest import house, path, postgres_house, sqlite_house

__all__ = ["house", "path", "postgres_house", "sqlite_house"]
