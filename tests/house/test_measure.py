"""The numbers of a tree that is small enough to count by hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.house.measure import Checkout, cycles, report

FILES: Mapping[str, str] = {
    "gateway/__init__.py": "",
    "gateway/DESIGN.md": "| room | what |\n|---|---|\n| `inbox.py`, `errors.py` | whoever writes; nobody waits |\n",
    "gateway/errors.py": "class Trouble(Exception): ...\n",
    "gateway/inbox.py": "import gateway.store.tables\nfrom gateway import errors\n",
    "gateway/store/__init__.py": "",
    "gateway/store/tables.py": "from gateway.store.rows import Row\n\ndef late():\n    from gateway import inbox\n",
    "gateway/store/rows.py": (
        "from collections.abc import Callable\n\n"
        "class Row:\n"
        "    seen: Callable[[], None] | None = None\n"
        "    length: int = 0\n\n"
        "    def __init__(self, tell: Callable[[str], None], *, count: int) -> None: ...\n\n"
        "    def each(self, do: Callable[[str], None]) -> None: ...\n"
    ),
    "gateway/store/session_rows.py": "class Sessions:\n    async def fork(self, session_id): return session_id\n",
    "gateway/sessions.py": "class SessionStore:\n    async def fork(self, session_id):\n        ...\n",
    "gateway/cli/sessions.py": "def fork(session_id):\n    opened_store(session_id)\n",
    "gateway/services/sessions.py": "class Sessions:\n    async def fork(self, caller): await self._store.fork()\n",
    "gateway/web/api/sessions.py": "async def fork(caller, services): return await services.sessions.fork(caller)\n",
    "adapters/__init__.py": "",
    "adapters/telex/__init__.py": "from gateway.errors import Trouble\n",
    "tests/test_rows.py": "def test_a_row(): ...\n",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name in ("README.md", "CHANGELOG.md"):
        (tmp_path / name).write_text("Nobody reads this.\n")
    return Checkout(tmp_path)


def test_arrows_run_between_rooms_and_a_circle_names_its_members(checkout: Checkout) -> None:
    arrows = checkout.arrows()
    assert {room: others for room, others in arrows.items() if others} == {
        "inbox": {"store", "errors"},
        "store": {"inbox"},
        "adapters": {"errors"},
    }
    assert cycles(arrows) == [["inbox", "store"]]


def test_a_module_with_one_importer_in_its_folder_is_found(checkout: Checkout) -> None:
    pairs = [(one.name, by.name) for one, by in checkout.single_importer()]
    assert pairs == [("gateway.store.rows", "gateway.store.tables")]  # inbox is imported from another folder


def test_callables_are_counted_where_they_are_handed_in(checkout: Checkout) -> None:
    assert checkout.callables() == {"fields": 1, "of constructors": 1, "of other functions": 1}


def test_an_operation_has_a_place_wherever_a_function_states_it(checkout: Checkout) -> None:
    """The protocol in `sessions.py` is none; the command opens the store, the route only asks."""
    assert checkout.places("fork a session") == {
        "command line": ["cli/sessions.py:fork*"],
        "service": ["services/sessions.py:fork"],
        "core": ["store/session_rows.py:fork"],
        "route": ["web/api/sessions.py:fork"],
    }


def test_the_way_of_a_message_is_the_table_of_the_design_or_the_pipeline(checkout: Checkout) -> None:
    assert [path.name for path in checkout.way()] == ["inbox.py", "errors.py"]
    pipeline = checkout.root / "gateway" / "pipeline"
    pipeline.mkdir()
    (pipeline / "outbox.py").touch()
    (pipeline / "inbox.py").touch()
    assert [path.name for path in checkout.way()] == ["inbox.py", "outbox.py"]


def test_the_report_says_it_all(checkout: Checkout) -> None:
    text = "\n".join(report(checkout))
    assert "at the top of gateway/: 3 modules (1 contract) + 4 folders" in text
    assert "rooms: 8, arrows: 4, cycles: 1\n  cycle of 2: inbox store" in text
    assert "test lines: 1 Python" in text
    assert "the way of a message: 2 files, 3 lines" in text
    assert "whoever 1, nobody 3, anew 0" in text
    assert "fork a session: 4, of which 3 decide" in text
