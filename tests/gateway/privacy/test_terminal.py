"""What the terminal keeps goes with the operator, and with nobody else."""

from __future__ import annotations

from pathlib import Path

from gateway.files.chat_state import ChatState
from gateway.ops.privacy.files import remove_traces_of_chats


def kept(home: Path) -> list[str]:
    return [path.name for path in (home / "chat").rglob("*") if path.is_file()]


def test_the_terminal_forgets_when_the_operator_is_erased(tmp_path: Path) -> None:
    state = ChatState(tmp_path, "main")
    state.history_file().write_text("+a secret\n")
    state.save_cursor(7)
    state.keep_unsent("another secret")
    remove_traces_of_chats(tmp_path, {"local:user-u_1", "fake:operator"}, [])
    assert len(kept(tmp_path)) == 3
    remove_traces_of_chats(tmp_path, {"local:operator"}, [])
    assert kept(tmp_path) == []
