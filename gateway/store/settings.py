"""What all workers of one database must have in common, and how far the set-up in the browser has come."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from gateway.domain.root_secret import HOW_TO_MAKE_ONE, fingerprint
from gateway.errors import ForeignSecret
from gateway.store.copy_state import ask_whether_moved
from gateway.store.engine import Connection, Engine

_SECRET = "secret"  # noqa: S105 (a name)
_WORKSPACES = "workspaces"
_ASIDE = "aside:"
_SETUP = "setup"
_PUT = "INSERT INTO settings (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
_CLAIM = "INSERT INTO settings (name, value) VALUES (?, ?) ON CONFLICT (name) DO NOTHING"
_FORGET = f"DELETE FROM settings WHERE name = '{_SECRET}'"  # noqa: S608 (a constant)
FORGET_WORKSPACES = f"DELETE FROM settings WHERE name = '{_WORKSPACES}'"  # noqa: S608 (a constant)


async def check_secret(engine: Engine, secret: bytes | None) -> None:
    """See to it that all workers of a database have the same secret; to be called before anything is served.

    The first worker writes the fingerprint of its secret down. It is compared, and never shown whole.

    Args:
        secret: its 32 bytes; None where none is configured.

    Raises:
        ForeignSecret: says what to do; nothing was changed.
        StoreUnavailable: the database cannot be used now.
    """
    if secret is None:
        raise ForeignSecret(
            "workers that share a database need one secret, of which their keys are made: set `secret` in config.yaml "
            f"({HOW_TO_MAKE_ONE})"
        )
    own = fingerprint(secret)

    def work(connection: Connection) -> str:
        connection.execute(_CLAIM, (_SECRET, own))
        return str(connection.execute("SELECT value FROM settings WHERE name = ?", (_SECRET,)).fetchone()["value"])

    _compare(await engine.write(work, alone=()), own)


async def known_workspaces(engine: Engine) -> str | None:
    """The id of the directory of workspaces that all workers share, once one has been used; raises as `Engine`."""
    row = await engine.row("SELECT value FROM settings WHERE name = ?", (_WORKSPACES,))
    return None if row is None else str(row["value"])


async def settle_workspaces(engine: Engine, directory: str) -> str:
    """Make it the one of all workers, unless there is one; the id of that. Raises as `Engine`."""

    def work(connection: Connection) -> str:
        connection.execute(_CLAIM, (_WORKSPACES, directory))
        return str(connection.execute("SELECT value FROM settings WHERE name = ?", (_WORKSPACES,)).fetchone()["value"])

    return await engine.write(work, alone=())


async def setup_state(engine: Engine) -> str | None:
    """What was kept of the set-up in the browser; None where nothing was. Raises as `Engine`."""
    row = await engine.row("SELECT value FROM settings WHERE name = ?", (_SETUP,))
    return None if row is None else str(row["value"])


async def keep_setup_state(engine: Engine, state: str) -> None:
    """Keep it in place of what was kept before; raises as `Engine`."""

    def work(connection: Connection) -> None:
        connection.execute(_PUT, (_SETUP, state))

    await engine.write(work)


async def check_still(engine: Engine, place: str, secret: bytes | None) -> None:
    """See that this worker may still use the database, which others use, too.

    Raises:
        StoreMoved: `place` has been moved elsewhere, or is being moved.
        ForeignSecret: the others have another secret by now.
        StoreUnavailable: the database cannot be used now.
    """

    def asking(connection: Connection) -> Callable[[], str | None]:
        refuse_moved = ask_whether_moved(connection, place)
        asked = connection.execute("SELECT value FROM settings WHERE name = ?", (_SECRET,))

        def known() -> str | None:
            refuse_moved()
            row = asked.fetchone()
            return None if row is None else str(row["value"])

        return known

    known = await engine.ask(asking)
    if known is not None and secret is not None:
        _compare(known, fingerprint(secret))


def _compare(known: str, own: str) -> None:
    if known != own:
        raise ForeignSecret(
            f"the secret of this worker (fingerprint {own[:8]}…) is another one than that of the workers that use this "
            f"database (fingerprint {known[:8]}…). Give it theirs: `secret` in config.yaml. If theirs was exchanged on "
            f"purpose, stop all workers and run `{_FORGET}` in the database. Then "
            "browsers must sign in again, and codes that wait are void"
        )


class FindingsAside:
    """Findings of the doctor that an operator put aside, by their ids, with what tells whether they have changed."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def all(self) -> Mapping[str, str]:
        """Those that are put aside; raises as `Engine`."""
        rows = await self._engine.rows("SELECT name, value FROM settings WHERE name LIKE ?", (f"{_ASIDE}%",))
        return {str(row["name"]).removeprefix(_ASIDE): str(row["value"]) for row in rows}

    async def put(self, finding: str, mark: str) -> None:
        """Put one aside for as long as its mark is this; raises as `Engine`."""
        await self._engine.write(lambda connection: connection.execute(_PUT, (_ASIDE + finding, mark)), alone=())

    async def take_back(self, findings: Collection[str]) -> None:
        """Let these count again; raises as `Engine`."""

        def work(connection: Connection) -> None:
            for finding in findings:
                connection.execute("DELETE FROM settings WHERE name = ?", (_ASIDE + finding,))

        await self._engine.write(work, alone=())
