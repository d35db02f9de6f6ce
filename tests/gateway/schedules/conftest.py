"""The stores of each engine, for what is asked of schedules."""

from tests.gateway.store.conftest import path, stores

__all__ = ["path", "stores"]
