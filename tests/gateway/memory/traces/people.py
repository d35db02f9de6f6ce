"""Two people who must never meet in a trace store, and a clock that the test moves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from gateway.traces.trace import Owner, ScopeKind, Trace, Viewer

ADA = Viewer(user_id="u_ada", personality_id="assistant", session_id="s_ada")
BEN = Viewer(user_id="u_ben", personality_id="assistant", session_id="s_ben")
NOBODY = Viewer(user_id=None, personality_id="assistant", session_id="s_group")


def of(viewer: Viewer, content: str, scope: ScopeKind = "user", **more: object) -> Trace:
    """A trace of the viewer's."""
    return Trace(content=content, owner=viewer.owner(scope), **more)  # type: ignore[arg-type]


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 20, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def move(self, **by: float) -> None:
        """On by so much, as `timedelta` has it."""
        self.now += timedelta(**by)


__all__ = ["ADA", "BEN", "NOBODY", "Clock", "Owner", "of"]
