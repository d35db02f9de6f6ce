"""`ethos chat` as a person sees it, through a real terminal device."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import re
import shutil
import signal
import stat
import struct
import sys
import termios
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.output import DummyOutput

from gateway.cli.chat import EXIT_ANSWERED, EXIT_LATER
from gateway.cli.chat_link import ChatLink, sender_to
from gateway.cli.chat_screen import ChatScreen
from gateway.errors import StoreUnavailable
from gateway.files.chat_state import ChatState
from gateway.sdk.models.chat import ChatMessage
from tests.gateway.cli.talking_gateway import TalkingGateway, talking

PATIENCE_S = 60.0
CTRL_C, CTRL_D, UP, ALT_ENTER = b"\x03", b"\x04", b"\x1b[A", b"\x1b\r"
SEQUENCE = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07|[=>])")


class Screen:
    """A terminal device of 80 columns with the chat on it.

    Attributes:
        raw: all that was written to the device, sequences and all.
    """

    def __init__(self) -> None:
        self._master, self._slave = pty.openpty()
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        os.set_blocking(self._master, False)
        self._changed = asyncio.Event()
        self._mark = 0
        self._process: asyncio.subprocess.Process | None = None
        self.raw = ""

    async def start(self, home: Path, *arguments: str, **environment: str) -> None:
        variables = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gateway.cli", "chat", *arguments,
            stdin=self._slave, stdout=self._slave, stderr=self._slave, start_new_session=True,
            env={
                **variables, "ETHOS_HOME": str(home), "PROMPT_TOOLKIT_NO_CPR": "1", "TERM": "xterm-256color",
                "LANG": "C.UTF-8", **environment,
            },
        )  # fmt: skip
        os.close(self._slave)
        asyncio.get_running_loop().add_reader(self._master, self._read)

    def _read(self) -> None:
        try:
            self.raw += os.read(self._master, 65536).decode(errors="replace")
        except OSError:  # EIO: the other end is closed
            asyncio.get_running_loop().remove_reader(self._master)
        self._changed.set()

    def type(self, keys: bytes | str) -> None:
        """Press keys; what `sees` looks for must be written after this."""
        self._mark = len(self.raw)
        os.write(self._master, keys.encode() if isinstance(keys, str) else keys)

    async def sees(self, text: str) -> None:
        """Wait until the text was written since the last keys."""
        await self._until(lambda: text in SEQUENCE.sub("", self.raw[self._mark :]))

    async def gets(self, sequence: str) -> None:
        """Wait until the device got this, ever."""
        await self._until(lambda: sequence in self.raw)

    async def _until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()

    def hang_up(self) -> None:
        """As the end of the terminal does."""
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)

    async def ends(self) -> int:
        assert self._process is not None
        async with asyncio.timeout(PATIENCE_S):
            return await self._process.wait()

    async def close(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        asyncio.get_running_loop().remove_reader(self._master)
        os.close(self._master)


@contextlib.asynccontextmanager
async def chatting(home: Path, *arguments: str, **environment: str) -> AsyncIterator[Screen]:
    screen = Screen()
    try:
        await screen.start(home, *arguments, **environment)
        await screen.gets("\x1b[?2004h")  # asks for bracketed paste: the prompt is there
        yield screen
    finally:
        await screen.close()


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[TalkingGateway]:
    async with talking(tmp_path / "home") as gateway:
        yield gateway


async def test_a_person_writes_and_reads_the_answer_rendered(gateway: TalkingGateway) -> None:
    async with chatting(gateway.home) as screen:
        screen.type("say this is **important** and `code`\r")
        await screen.sees("this is important and code")
        assert "\x1b[1mimportant" in screen.raw
        screen.type(CTRL_D)
        assert await screen.ends() == EXIT_ANSWERED


async def test_an_answer_is_shown_while_it_is_written(gateway: TalkingGateway) -> None:
    async with chatting(gateway.home) as screen:
        screen.type("stream the *first* words\r")
        await screen.sees("the *first* words\r")  # as it comes, Markdown and all
        mark = len(screen.raw)
        gateway.model.go.set()
        await screen.sees("the first words")
        assert "the first words" in SEQUENCE.sub("", screen.raw[mark:])


async def test_it_says_that_it_is_thinking_until_the_answer_comes(gateway: TalkingGateway) -> None:
    async with chatting(gateway.home) as screen:
        screen.type("silence\r")
        await screen.sees("thinking…")


async def test_an_answer_without_text_ends_the_wait_and_shows_nothing(gateway: TalkingGateway) -> None:
    async with chatting(gateway.home) as screen:
        screen.type("silence\r")
        assert await gateway.texts(1) == ["silence"]
        (asked,) = gateway.received.values()
        await gateway.post("", reply_to=asked.id)
        await gateway.post("hello", reply_to=asked.id)
        await screen.sees("\r\nhello")
        screen.type(CTRL_C)
        assert await screen.ends() == EXIT_ANSWERED, "nothing is left to stop"


async def test_ctrl_c_stops_the_answer_and_then_leaves(gateway: TalkingGateway) -> None:
    async with chatting(gateway.home) as screen:
        screen.type("stream the first words\r")
        await screen.sees("the first words\r")
        screen.type(CTRL_C)
        await screen.sees("Stopped.")
        assert await gateway.texts(2) == ["stream the first words", "/stop"]
        screen.type(CTRL_C)
        assert await screen.ends() == EXIT_ANSWERED


async def test_ctrl_c_first_drops_what_was_typed(gateway: TalkingGateway) -> None:
    async with chatting(gateway.home) as screen:
        screen.type("secret draft")
        await screen.sees("secret draft")
        screen.type(CTRL_C)
        screen.type("hello\r")
        await screen.sees("You said: hello")
        assert await gateway.texts(1) == ["hello"]


async def test_a_paste_of_several_lines_is_one_message(gateway: TalkingGateway) -> None:
    async with chatting(gateway.home) as screen:
        screen.type(b"\x1b[200~one\rtwo\rthree\x1b[201~\r")
        assert await gateway.texts(1) == ["one\ntwo\nthree"]


async def test_alt_enter_begins_a_new_line(gateway: TalkingGateway) -> None:
    async with chatting(gateway.home) as screen:
        screen.type(b"one" + ALT_ENTER + b"two\r")
        assert await gateway.texts(1) == ["one\ntwo"]


async def test_commands_are_completed(gateway: TalkingGateway) -> None:
    async with chatting(gateway.home) as screen:
        screen.type("say hello\r")
        await screen.sees("\r\nhello")
        screen.type("/mem")
        await screen.sees("show what I remember")
        screen.type("\t\r")
        assert (await gateway.texts(2))[1] == "/memory"


async def test_what_may_follow_a_command_is_completed(gateway: TalkingGateway) -> None:
    async with chatting(gateway.home) as screen:
        screen.type("say hello\r")
        await screen.sees("\r\nhello")
        screen.type("/personality as\t\r")
        assert (await gateway.texts(2))[1] == "/personality assistant"


async def test_tab_and_enter_typed_at_once_send_the_whole_command(gateway: TalkingGateway) -> None:
    """Nobody waits for the list of what there is."""
    async with chatting(gateway.home) as screen:
        screen.type("say hello\r")
        await screen.sees("\r\nhello")
        screen.type("/mem\t\r")
        assert (await gateway.texts(2))[1] == "/memory"


async def test_the_history_outlives_the_program_and_is_for_its_owner_only(gateway: TalkingGateway) -> None:
    async with chatting(gateway.home) as screen:
        screen.type("remember me\r")
        await screen.sees("You said: remember me")
        screen.type(CTRL_D)
        await screen.ends()
    history = gateway.home / "chat" / "history"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    async with chatting(gateway.home) as screen:
        screen.type(UP)
        await screen.sees("remember me")
        screen.type("\r")
        assert await gateway.texts(2) == ["remember me", "remember me"]


async def test_what_was_said_meanwhile_is_shown_at_the_next_start_and_only_once(gateway: TalkingGateway) -> None:
    async with chatting(gateway.home) as screen:
        screen.type("first words\r")
        await screen.sees("You said: first words")
        screen.type("second words\r")  # so the first answer is shown whole, and not as its preview only
        await screen.sees("You said: second words")
        screen.type(CTRL_D)
        await screen.ends()
    await gateway.post("meanwhile this happened")
    async with chatting(gateway.home) as screen:
        await screen.sees("meanwhile this happened")
        assert "first words" not in screen.raw
        screen.type(CTRL_D)
        await screen.ends()
    async with chatting(gateway.home) as screen:
        screen.type("hello\r")
        await screen.sees("You said: hello")
        assert "meanwhile" not in screen.raw


async def test_choices_are_numbered_and_a_number_or_the_command_takes_one(gateway: TalkingGateway) -> None:
    async with chatting(gateway.home) as screen:
        screen.type("/offer Are you sure?\r")
        await screen.sees("1. Yes (/whoami x-y)")
        await screen.sees("2. No␛[2J way (/usage)")
        screen.type("1\r")
        await screen.sees("> /whoami x-y")
        await gateway.texts(2)
        screen.type("2\r")  # the choice was made; this is a word like any other
        await screen.sees("You said: 2")
        screen.type("/offer And now?\r")
        await screen.sees("2. No")
        screen.type("/usage\r")
        assert await gateway.texts(5) == ["/offer Are you sure?", "/whoami x-y", "2", "/offer And now?", "/usage"]


async def test_a_restored_older_database_begins_at_its_end(gateway: TalkingGateway) -> None:
    """What was said long ago is not shown once more."""
    await gateway.post("long ago")
    state = ChatState(gateway.home, "main")
    state.save_cursor(1_000_000)
    async with chatting(gateway.home) as screen:
        screen.type("say new\r")
        await screen.sees("\r\nnew")
        assert "long ago" not in screen.raw
        screen.type(CTRL_D)
        await screen.ends()
    assert (state.load_cursor() or 0) < 1_000_000


async def test_what_was_handed_out_and_not_shown_is_shown_at_the_next_start(tmp_path: Path) -> None:
    state = ChatState(tmp_path, "main")
    link = ChatLink(sender_to(tmp_path, None), conversation="main", after=9, patience_s=0)
    shown = ChatMessage(id="m_5", sequence=5, author="agent", text="tea", at=datetime.now(UTC), reply_to=None)
    with create_app_session(output=DummyOutput()):
        screen = ChatScreen(link, state)
        screen._show(shown)
    assert state.load_cursor() == 5


async def test_what_another_terminal_writes_is_shown_too(gateway: TalkingGateway) -> None:
    async with chatting(gateway.home) as here, chatting(gateway.home) as there:
        there.type("over here\r")
        await here.sees("> over here")
        await here.sees("You said: over here")
        await there.sees("You said: over here")
        assert SEQUENCE.sub("", there.raw).count("> over here") == 1, "its own words, shown as they were written"


async def test_a_restart_of_the_gateway_is_waited_for_and_nothing_is_lost(gateway: TalkingGateway) -> None:
    async with chatting(gateway.home) as screen:
        await gateway.stop()
        await screen.sees("the gateway is away")
        screen.type("are you there\r")
        await screen.sees("> are you there")
        await gateway.start()
        await screen.sees("You said: are you there")
        assert await gateway.texts(1) == ["are you there"]


async def test_leaving_with_something_unsent_puts_it_away(gateway: TalkingGateway) -> None:
    async with chatting(gateway.home) as screen:
        await gateway.stop()
        await screen.sees("the gateway is away")
        screen.type("important\r")
        await screen.sees("> important")
        screen.type(CTRL_D)
        assert await screen.ends() == EXIT_LATER
        await screen.sees("the text is in")
    kept = [path.read_text() for path in (gateway.home / "chat" / "unsent").iterdir()]
    assert kept == ["important"]


async def test_what_is_written_while_the_gateway_restarts_comes_once_and_in_order(gateway: TalkingGateway) -> None:
    async with chatting(gateway.home) as screen:
        screen.type("say zero\r")
        await screen.sees("\r\nzero")
        await gateway.stop()
        await screen.sees("the gateway is away")
        for number in range(5):
            screen.type(f"say word{number}\r")
        await gateway.start()
        await screen.sees("\r\nword4")
        assert await gateway.texts(6) == ["say zero", *(f"say word{number}" for number in range(5))]


async def test_a_chat_that_is_ended_puts_away_what_was_not_sent(gateway: TalkingGateway) -> None:
    """Its terminal was closed, and the gateway is away."""
    async with chatting(gateway.home) as screen:
        await gateway.stop()
        await screen.sees("the gateway is away")
        screen.type("important\r")
        await screen.sees("> important")
        screen.hang_up()
        await screen.ends()
    kept = [path.read_text() for path in (gateway.home / "chat" / "unsent").iterdir()]
    assert kept == ["important"]


async def test_why_a_message_is_not_taken_is_said_once_however_often_it_is_offered(gateway: TalkingGateway) -> None:
    gateway.failure = StoreUnavailable("the disk is full")
    async with chatting(gateway.home) as screen:
        screen.type("important\r")
        await screen.sees("not taken yet: the disk is full")
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(3):
                await gateway.offered.get()
        gateway.failure = None
        await screen.sees("You said: important")
        assert screen.raw.count("the disk is full") == 1


async def test_what_the_chat_keeps_is_for_its_user_alone(gateway: TalkingGateway) -> None:
    umask = os.umask(0)
    try:
        async with chatting(gateway.home) as screen:
            screen.type("one\r")
            await screen.sees("You said: one")
            screen.type(CTRL_D)
            await screen.ends()
    finally:
        os.umask(umask)
    modes = {path.name.partition("-")[0]: path.stat().st_mode & 0o777 for path in (gateway.home / "chat").iterdir()}
    assert modes == {"cursor": 0o600, "history": 0o600}


async def test_a_state_directory_that_goes_away_stops_no_talk(gateway: TalkingGateway) -> None:
    async with chatting(gateway.home) as screen:
        shutil.rmtree(gateway.home / "chat")
        (gateway.home / "chat").touch()  # nothing can be kept: no history, no cursor, no unsent text
        screen.type("one\r")
        await screen.sees("You said: one")
        await gateway.stop()
        await screen.sees("the gateway is away")
        screen.type("important\r")
        await screen.sees("> important")
        screen.type(CTRL_D)
        assert await screen.ends() == EXIT_LATER
        await screen.sees("not kept in a file either (File exists): important")


async def test_an_escape_sequence_of_the_model_reaches_the_screen_as_text(gateway: TalkingGateway) -> None:
    async with chatting(gateway.home) as screen:
        screen.type("hello\r")
        await screen.sees("You said: hello")
        await gateway.post("evil \x1b]0;owned\x07 \x9b2J")
        await screen.sees("␛]0;owned␇")
        assert "\x1b]0;owned" not in screen.raw


async def test_broken_bytes_at_the_keyboard_do_no_harm(gateway: TalkingGateway) -> None:
    async with chatting(gateway.home) as screen:
        screen.type(b"a\xffb\r")
        text = (await gateway.texts(1))[0]
        assert text.startswith("a")
        assert text.endswith("b")
        await screen.sees("You said:")
        screen.type("still here\r")
        await screen.sees("You said: still here")


async def test_no_color_is_honoured(gateway: TalkingGateway) -> None:
    async with chatting(gateway.home, NO_COLOR="1") as screen:
        screen.type("say # Title\r")
        await screen.sees("Title")
        screen.type("say `code`\r")
        await screen.sees("code")
        assert not re.search(r"\x1b\[[0-9;]*(3|4|9|10)[0-9](;[0-9]+)*m", screen.raw)


@pytest.mark.parametrize("word", ["/exit", "/quit"])
async def test_it_can_be_left_by_a_word(gateway: TalkingGateway, word: str) -> None:
    async with chatting(gateway.home) as screen:
        screen.type(f"{word}\r")
        assert await screen.ends() == EXIT_ANSWERED
    assert gateway.received == {}
