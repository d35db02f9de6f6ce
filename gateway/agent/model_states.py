"""Which models answer: noted at every call, told once when one falls silent and once when it is back."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime

import structlog

from gateway.errors import ModelUnavailable
from gateway.sdk.models.system import ModelHealth

_log = structlog.get_logger(__name__)


class ModelStates:
    """Knows how the models are, by what became of the calls; nothing is asked for its sake."""

    def __init__(self) -> None:
        self._states: dict[str, ModelHealth] = {}

    @property
    def statuses(self) -> Sequence[ModelHealth]:
        """Of every model that was asked since the start, by name."""
        return [self._states[name] for name in sorted(self._states)]

    def forget(self, names: Collection[str]) -> None:
        """They are configured no more."""
        for name in names:
            self._states.pop(name, None)

    def answered(self, name: str, unthought: str | None = None) -> None:
        """It is up.

        Args:
            unthought: why it did not think as it was to; empty where it did, None for work that is not thought about.
        """
        now, before = datetime.now(UTC), self._states.get(name)
        if before is not None and before.state == "down":
            _log.info("model_up", model=name, was_down_s=round((now - before.since).total_seconds()))
        since = before.since if before is not None and before.state == "up" else now
        if unthought is None and before is not None:
            unthought = before.unthought
        self._states[name] = ModelHealth(
            name=name, state="up", since=since, last_answer_at=now, unthought=unthought or None
        )

    def failed(self, name: str, error: ModelUnavailable) -> None:
        """It is down."""
        before = self._states.get(name)
        if before is None or before.state == "up":
            _log.error("model_down", model=name, error=str(error))
        self._states[name] = ModelHealth(
            name=name,
            state="down",
            since=before.since if before is not None and before.state == "down" else datetime.now(UTC),
            last_answer_at=None if before is None else before.last_answer_at,
            error=str(error),
            unthought=None if before is None else before.unthought,
        )
