"""What is particular to the terminal channel: its socket, its terminals and their cursors."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pydantic import ValidationError

from adapters.cli import ACCESS_DEFAULT, Config, client, socket_path
from adapters.cli import adapter as adapter_module
from adapters.cli.convert import MAX_LINE_BYTES
from gateway.errors import AdapterNotReady, StoreUnavailable
from gateway.messages import OutboundMessage
from gateway.protocols import AuthenticatesOperator, SupportsPreview, SupportsTyping
from tests.adapters.cli.terminal import BareTerminal, conversation, make_adapter
from tests.conformance.adapters import Inbox, soon
from tests.conformance.conversation_log import FakeLog


class Running:
    """The adapter at work, and terminals attached to it."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.log = FakeLog()
        self.inbox = Inbox()
        self.adapter = make_adapter(directory, self.log, **options)
        self.path = socket_path(options.get("config") or Config(), directory / "state")
        self._terminals: list[BareTerminal] = []

    async def terminal(self, name: str = "main", after: int | None = None) -> BareTerminal:
        terminal = await self.stranger()
        welcome = await terminal.hello(name, after)
        assert welcome["type"] == "welcome", welcome
        return terminal

    async def stranger(self) -> BareTerminal:
        """A terminal that has not said hello."""
        terminal = BareTerminal(self.path)
        await terminal.open()
        self._terminals.append(terminal)
        return terminal

    async def answer(self, text: str, *, name: str = "main", reply_to: str | None = None) -> OutboundMessage:
        message = OutboundMessage(id=str(uuid4()), conversation=conversation(name), text=text, reply_to=reply_to)
        self.log.add_out(message)
        await self.adapter.send(message)
        return message

    @contextlib.asynccontextmanager
    async def at_work(self) -> AsyncIterator[Running]:
        async def accept(message: Any) -> None:
            await self.inbox.accept(message)
            self.log.add_in(message)

        await self.adapter.connect()
        task = asyncio.create_task(self.adapter.run(accept))
        try:
            yield self
        finally:
            for terminal in self._terminals:
                await terminal.close()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self.adapter.close()


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    async with Running(tmp_path).at_work() as running:
        yield running


# ---- the socket -----------------------------------------------------------------------------------------------------


async def test_the_socket_is_for_its_owner_only_and_goes_with_the_adapter(running: Running) -> None:
    assert stat.S_IMODE(running.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(running.path.parent.stat().st_mode) == 0o700
    await running.adapter.close()
    assert not running.path.exists()


async def test_the_socket_of_a_dead_process_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "state" / "chat.sock"))
    async with Running(tmp_path).at_work() as running:
        await running.terminal()


async def test_a_socket_that_somebody_listens_on_is_left_alone(running: Running, tmp_path: Path) -> None:
    other = make_adapter(tmp_path, FakeLog())
    with pytest.raises(AdapterNotReady, match=r"another process listens on .*chat\.sock; stop it"):
        await other.connect()
    await other.close()
    await running.terminal()


async def test_a_file_in_the_way_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "state" / "chat.sock"
    path.parent.mkdir()
    path.write_text("precious")
    with pytest.raises(AdapterNotReady, match="is not a socket; move it"):
        await make_adapter(tmp_path, FakeLog()).connect()
    assert path.read_text() == "precious"


async def test_a_directory_deeper_than_an_address_can_name_works(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 100) / ("y" * 100)
    deep.mkdir(parents=True)
    async with Running(deep).at_work() as running:
        terminal = await running.terminal()
        await running.answer("from the deep")
        await terminal.until(lambda: len(terminal.shown()) == 1)


async def test_a_socket_elsewhere_is_made_there_and_the_directory_kept_as_it_is(tmp_path: Path) -> None:
    place = tmp_path / "run"
    place.mkdir(mode=0o755)
    async with Running(tmp_path, config=Config(socket=place / "ethos.sock")).at_work() as running:
        await running.terminal()
        assert (place / "ethos.sock").is_socket()
        assert stat.S_IMODE(place.stat().st_mode) == 0o755


async def test_a_directory_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(AdapterNotReady, match="No such file or directory"):
        await make_adapter(tmp_path, FakeLog(), config=Config(socket=tmp_path / "none" / "ethos.sock")).connect()


async def test_a_file_name_too_long_for_an_address_is_said(tmp_path: Path) -> None:
    with pytest.raises(AdapterNotReady, match="longer than 80 bytes"):
        await make_adapter(tmp_path, FakeLog(), config=Config(socket=tmp_path / ("s" * 90))).connect()


async def test_closing_it_ends_run_and_lets_the_terminals_go(tmp_path: Path) -> None:
    adapter = make_adapter(tmp_path, FakeLog())
    await adapter.connect()
    task = asyncio.create_task(adapter.run(Inbox().accept))
    terminal = BareTerminal(tmp_path / "state" / "chat.sock")
    await terminal.open()
    await terminal.hello()
    await adapter.close()
    await soon(task)
    await terminal.ended()
    await terminal.close()


async def test_run_before_connect_is_not_ready(tmp_path: Path) -> None:
    with pytest.raises(AdapterNotReady, match="connect first"):
        await make_adapter(tmp_path, FakeLog()).run(Inbox().accept)


# ---- who may come in ------------------------------------------------------------------------------------------------


async def test_the_owner_of_the_gateway_is_its_operator(running: Running) -> None:
    assert isinstance(running.adapter, AuthenticatesOperator)
    (await running.terminal()).say("hello")
    sender = (await running.inbox.has(1))[0].sender
    assert sender.user == running.adapter.operator_account == "operator"
    assert sender.is_verified
    assert ACCESS_DEFAULT == "open"


async def test_root_comes_in_as_itself_and_is_not_the_operator(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "peer_uid", lambda _: 0)
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    (await running.terminal()).say("hello")
    assert (await running.inbox.has(1))[0].sender.user == "uid-0"


async def test_another_user_is_turned_away(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = await client.call(running.path)  # before the wrong id, which `call` would refuse by itself
    monkeypatch.setattr(client, "peer_uid", lambda _: 4711)
    other_reader, other_writer = await asyncio.open_unix_connection(running.path)
    assert b"belongs to another user" in await soon(other_reader.readline())
    assert await soon(other_reader.read()) == b""
    for each in (writer, other_writer):
        each.close()
    assert reader is not None
    assert running.inbox.tries == 0


async def test_a_socket_that_somebody_else_holds_is_not_talked_to(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "peer_uid", lambda _: 4711)
    monkeypatch.setattr(os, "getuid", lambda: 4712)
    with pytest.raises(AdapterNotReady, match="held by user 4711, not by you; nothing was sent"):
        await client.call(running.path)


async def test_the_kernel_names_the_peer(running: Running) -> None:
    _, writer = await client.call(running.path)
    assert client.peer_uid(writer) == os.getuid()
    writer.close()


async def test_terminals_beyond_the_limit_are_told_so(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter_module, "_MAX_TERMINALS", 1)
    first = await running.terminal()
    second = await running.stranger()
    assert "attached already" in (await second.first(lambda frame: frame["type"] == "error"))["reason"]
    await second.ended()
    await running.answer("still here")
    await first.until(lambda: len(first.shown()) == 1)


# ---- lines ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line", [b"hello\n", b"\xff\xfe\n", b"\n", b'{"type":"dance"}\n', b"x" * (3 * MAX_LINE_BYTES) + b"\n"]
)
async def test_a_line_that_cannot_be_read_is_an_error_and_the_next_one_counts(running: Running, line: bytes) -> None:
    terminal = await running.terminal()
    terminal.write(line)
    await terminal.first(lambda frame: frame["type"] == "error")
    terminal.say("still here")
    assert (await running.inbox.has(1))[0].text == "still here"


async def test_a_message_of_five_megabytes_is_refused_with_what_to_do(running: Running) -> None:
    terminal = await running.terminal()
    terminal.say("x" * 5_000_000)
    error = await terminal.first(lambda frame: frame["type"] == "error")
    assert error["reason"] == "a line has at most 1048576 bytes; split the message"
    assert running.inbox.tries == 0


async def test_a_bad_id_or_a_blank_text_is_refused_for_good(running: Running) -> None:
    terminal = await running.terminal()
    terminal.say("hello", "not-a-uuid")
    blank = terminal.say(" \n")
    refused = await terminal.first(lambda frame: frame["type"] == "refused" and frame["id"] == "not-a-uuid")
    assert not refused["is_temporary"]
    await terminal.first(lambda frame: frame["type"] == "refused" and frame["id"] == blank)
    assert running.inbox.tries == 0


async def test_a_store_that_is_full_refuses_for_now_and_says_why(running: Running) -> None:
    terminal = await running.terminal()
    running.inbox.failure = StoreUnavailable("the disk is full")
    message_id = terminal.say("hello")
    refused = await terminal.first(lambda frame: frame["type"] == "refused")
    assert refused == {"type": "refused", "id": message_id, "reason": "the disk is full", "is_temporary": True}


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        ({"type": "message", "id": str(uuid4()), "text": "hello"}, "say hello first"),
        ({"type": "hello", "version": 2, "conversation": "main"}, "version 1"),
        ({"type": "hello", "version": 1, "conversation": "\n"}, "printable"),
        (b"x" * 2 * MAX_LINE_BYTES + b"\n", "at most"),
    ],
)
async def test_without_a_proper_hello_the_connection_is_closed_with_a_reason(
    running: Running, frame: Any, reason: str
) -> None:
    terminal = await running.stranger()
    terminal.write(frame)
    assert reason in (await terminal.first(lambda frame: frame["type"] == "error"))["reason"]
    await terminal.ended()
    assert running.inbox.tries == 0


async def test_hello_is_said_once(running: Running) -> None:
    terminal = await running.terminal()
    terminal.write({"type": "hello", "version": 1, "conversation": "other"})
    assert "new connection" in (await terminal.first(lambda frame: frame["type"] == "error"))["reason"]


# ---- the conversation -----------------------------------------------------------------------------------------------


async def test_the_welcome_names_the_commands_and_where_the_conversation_is(running: Running) -> None:
    await running.answer("one")
    await running.answer("two")
    welcome = await (await running.stranger()).hello()
    assert welcome["cursor"] == 2
    assert [command["name"] for command in welcome["commands"]] == ["help", "memory"]


async def test_a_terminal_without_a_cursor_sees_only_what_is_said_from_now_on(running: Running) -> None:
    await running.answer("before")
    terminal = await running.terminal()
    await running.answer("after")
    await terminal.until(lambda: bool(terminal.shown()))
    assert [each["text"] for each in terminal.shown()] == ["after"]


async def test_a_terminal_that_comes_back_sees_what_it_missed_once_and_in_order(running: Running) -> None:
    for number in range(50):
        await running.answer(f"answer {number}")
    terminal = await running.terminal(after=10)
    await running.answer("the end")
    await terminal.until(lambda: len(terminal.shown()) >= 41)
    assert [each["text"] for each in terminal.shown()] == [*(f"answer {n}" for n in range(10, 50)), "the end"]
    assert [each["cursor"] for each in terminal.shown()] == list(range(11, 52))


async def test_a_cursor_from_another_database_begins_at_the_end_of_this_one(running: Running) -> None:
    await running.answer("old")
    terminal = await running.terminal(after=1_000_000)
    await running.answer("new")
    await terminal.until(lambda: bool(terminal.shown()))
    assert [each["text"] for each in terminal.shown()] == ["new"]


async def test_answers_that_were_given_up_are_passed_over(running: Running) -> None:
    for number, state in enumerate(["dead", "dropped", "ready"]):
        message = OutboundMessage(id=f"out-{number}", conversation=conversation(), text=state)
        running.log.add_out(message, state=state)
    terminal = await running.terminal(after=0)
    await terminal.until(lambda: bool(terminal.shown()))
    assert [each["text"] for each in terminal.shown()] == ["ready"]


async def test_an_answer_names_the_message_that_it_answers(running: Running) -> None:
    terminal = await running.terminal()
    message_id = terminal.say("question")
    await running.inbox.has(1)
    await running.answer("answer", reply_to=message_id)
    await terminal.until(lambda: bool(terminal.shown()))
    assert terminal.shown()[0]["reply_to"] == message_id


async def test_two_terminals_see_one_conversation_and_a_third_does_not(running: Running) -> None:
    here, there = await running.terminal(), await running.terminal()
    elsewhere = await running.terminal("other")
    message_id = here.say("hello")
    await there.until(lambda: bool(there.shown("in")))
    assert there.shown("in")[0]["id"] == message_id
    await running.answer("both of you")
    await running.answer("only you", name="other")
    await here.until(lambda: bool(here.shown()))
    await there.until(lambda: bool(there.shown()))
    await elsewhere.until(lambda: bool(elsewhere.shown()))
    assert [each["text"] for each in elsewhere.shown()] == ["only you"]
    assert elsewhere.shown("in") == []


async def test_typing_is_shown(running: Running) -> None:
    assert isinstance(running.adapter, SupportsTyping)
    terminal = await running.terminal()
    await running.adapter.show_typing(conversation())
    await terminal.first(lambda frame: frame["type"] == "typing")


async def test_of_many_previews_the_latest_comes_and_none_after_the_answer(running: Running) -> None:
    assert isinstance(running.adapter, SupportsPreview)
    terminal = await running.terminal()
    message = OutboundMessage(id="out", conversation=conversation(), text="x" * 200)
    for length in range(1, 200):  # nothing is written in between: the terminal's task gets no turn
        shorter = OutboundMessage(id="out", conversation=conversation(), text="x" * length)
        await running.adapter.preview(shorter)
    running.log.add_out(message)
    await running.adapter.send(message)
    await terminal.until(lambda: bool(terminal.shown()))
    assert [frame["type"] for frame in terminal.frames] == ["welcome", "message"]


# ---- trouble --------------------------------------------------------------------------------------------------------


async def test_a_terminal_that_does_not_read_is_dropped_and_the_others_are_served(tmp_path: Path) -> None:
    async with Running(tmp_path, stalled_s=0.2).at_work() as running:
        terminal = await running.terminal()
        stalled_reader, stalled_writer = await asyncio.open_unix_connection(running.path, limit=1024)
        stalled_writer.write(b'{"type":"hello","version":1,"conversation":"main"}\n')
        await soon(stalled_reader.readline())
        for _ in range(8):
            await running.answer("x" * 500_000)
        await terminal.until(lambda: len(terminal.shown()) == 8)
        tasks = running.adapter._tasks
        await soon(asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED))
        assert len(tasks) == 1
        await running.answer("still here")
        await terminal.until(lambda: len(terminal.shown()) == 9)
        stalled_writer.close()
        again = await running.terminal(after=0)
        await again.until(lambda: len(again.shown()) == 9)


async def test_a_log_that_cannot_be_read_drops_the_terminal_which_may_come_back(running: Running) -> None:
    terminal = await running.terminal()
    running.log.error = StoreUnavailable("the disk is broken")
    await running.answer("unseen")
    await terminal.ended()
    running.log.error = None
    again = await running.terminal(after=0)
    await again.until(lambda: [each["text"] for each in again.shown()] == ["unseen"])


async def test_a_connection_that_breaks_in_the_middle_of_a_line_leaves_no_trace(running: Running) -> None:
    terminal = await running.terminal()
    terminal.write(b'{"type":"message","id":"')
    await terminal.close()
    other = await running.terminal()
    other.say("hello")
    assert [message.text for message in await running.inbox.has(1)] == ["hello"]


async def test_an_idle_terminal_costs_no_reading_of_the_log(running: Running) -> None:
    await running.terminal()
    await running.terminal("other")
    reads = running.log.reads
    await running.adapter.preview(OutboundMessage(id="x", conversation=conversation("nobody"), text="hi"))
    for _ in range(20):
        await asyncio.sleep(0)
    assert running.log.reads == reads


def test_an_unknown_key_in_the_configuration_is_refused() -> None:
    with pytest.raises(ValidationError):
        Config.model_validate({"sockett": "/tmp/x"})  # noqa: S108 (never made)


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_a_socket_whose_file_was_deleted_is_told_and_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_replaced: bool
) -> None:
    """Nobody would find us any more; the supervisor connects anew after such an end."""
    monkeypatch.setattr(adapter_module, "_LOOK_S", 0.01)
    running = Running(tmp_path)
    await running.adapter.connect()
    running.path.unlink()
    if is_replaced:
        running.path.write_text("something else")
    with pytest.raises(AdapterNotReady, match="was removed; it is made again"):
        await asyncio.wait_for(running.adapter.run(running.inbox.accept), 60)
    if is_replaced:
        await running.adapter.close()
        assert running.path.read_text() == "something else"
        running.path.unlink()
    async with running.at_work():
        await running.terminal()
