"""`ethos chat` without a person at the keyboard: words, pipes, lines and exit codes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import stat
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.cli import chat_link
from gateway.cli.chat import EXIT_ANSWERED, EXIT_ERROR, EXIT_LATER, EXIT_UNREACHABLE, chat
from gateway.errors import StoreUnavailable
from gateway.files.unix_socket import SOCKET_NAME
from gateway.messages import InboundMessage
from gateway.sdk.models.chat import MAX_TEXT_CHARS
from gateway.testing.adapters import soon
from tests.gateway.cli.talking_gateway import TalkingGateway, place, talking

ETHOS = (sys.executable, "-m", "gateway.cli", "chat")


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[TalkingGateway]:
    async with talking(tmp_path / "home") as gateway:
        yield gateway


class Printed:
    """What the chat printed, without the log of the gateway in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        printed = capsys.readouterr()
        self.out = printed.out
        self.err = "".join(line for line in printed.err.splitlines(keepends=True) if not line.startswith("{"))


@contextlib.contextmanager
def pipe(data: bytes) -> Iterator[int]:
    """A descriptor to read from, filled by a thread and then ended."""
    reading, writing = os.pipe()

    def fill() -> None:
        with contextlib.suppress(BrokenPipeError), os.fdopen(writing, "wb") as file:
            file.write(data)

    thread = threading.Thread(target=fill)
    thread.start()
    try:
        yield reading
    finally:
        os.close(reading)
        thread.join(10)


async def run(home: Path, stdin: bytes = b"", **options: Any) -> int:
    with pipe(stdin) as fd:
        return await soon(chat(home, stdin_fd=fd, **({"patience_s": 0.0} | options)))


def unsent(home: Path) -> list[str]:
    return [path.read_text(encoding="utf-8") for path in (home / "chat" / "unsent").iterdir()]


async def test_words_are_one_message_and_only_the_answer_is_printed(
    gateway: TalkingGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(gateway.home, words="say **hello** there") == EXIT_ANSWERED
    printed = Printed(capsys)
    assert (printed.out, printed.err) == ("**hello** there\n", "")


async def test_an_answer_without_text_ends_the_wait_and_prints_nothing(
    gateway: TalkingGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was stopped before anything was written."""
    task = asyncio.create_task(run(gateway.home, words="silence"))
    await gateway.texts(1)
    (asked,) = gateway.received.values()
    await gateway.post("", reply_to=asked.id)
    assert await soon(task) == EXIT_ANSWERED
    assert Printed(capsys).out == ""


async def test_choices_are_listed_with_the_commands_that_take_them(
    gateway: TalkingGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(gateway.home, words="/offer Are you sure?") == EXIT_ANSWERED
    assert Printed(capsys).out == "Are you sure?\n- Yes (/whoami x-y)\n- No␛[2J way (/usage)\n"


async def test_with_words_stdin_is_left_alone(gateway: TalkingGateway) -> None:
    assert await run(gateway.home, b"not for the agent", words="hello") == EXIT_ANSWERED
    assert await gateway.texts(1) == ["hello"]


async def test_the_whole_input_is_one_message(gateway: TalkingGateway, capsys: pytest.CaptureFixture[str]) -> None:
    assert await run(gateway.home, b"one\ntwo\n\nthree\n") == EXIT_ANSWERED
    assert await gateway.texts(1) == ["one\ntwo\n\nthree"]
    assert Printed(capsys).out == "You said: one\ntwo\n\nthree\n"


async def test_by_lines_each_line_is_a_message_that_waits_for_the_answer_before(
    gateway: TalkingGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(gateway.home, b"one\n\n  \ntwo\nthree", is_by_lines=True) == EXIT_ANSWERED
    assert await gateway.texts(3) == ["one", "two", "three"]
    assert Printed(capsys).out == "You said: one\nYou said: two\nYou said: three\n"


async def test_by_lines_the_first_is_answered_before_the_input_ends(
    gateway: TalkingGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"first\nunfinished")
    task = asyncio.create_task(chat(gateway.home, is_by_lines=True, stdin_fd=reading))
    assert await gateway.texts(1) == ["first"]
    os.close(writing)
    assert await soon(task) == EXIT_ANSWERED
    assert await gateway.texts(2) == ["first", "unfinished"]
    os.close(reading)


@pytest.mark.parametrize("stdin", [b"", b"\n\n", b"  \n"])
async def test_an_empty_input_is_an_error(
    gateway: TalkingGateway, capsys: pytest.CaptureFixture[str], stdin: bytes
) -> None:
    assert await run(gateway.home, stdin) == EXIT_ERROR
    assert "the input is empty" in Printed(capsys).err
    assert gateway.received == {}


async def test_broken_utf8_and_nuls_are_replaced(gateway: TalkingGateway) -> None:
    assert await run(gateway.home, b"a\xffb\x00c \xed\xa0\x80") == EXIT_ANSWERED
    assert (await gateway.texts(1))[0].startswith("a\ufffdb\ufffdc ")


async def test_a_message_of_five_megabytes_is_an_error_and_is_put_away(
    gateway: TalkingGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "x" * 5_000_000
    assert await run(gateway.home, text.encode()) == EXIT_ERROR
    error = Printed(capsys).err
    assert f"at most {MAX_TEXT_CHARS} can be sent; split it into several messages" in error
    assert unsent(gateway.home) == [text]
    path = next((gateway.home / "chat" / "unsent").iterdir())
    assert str(path) in error
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert gateway.received == {}


async def test_without_a_gateway_the_pipe_is_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"precious")
    code = await soon(chat(tmp_path, stdin_fd=reading, patience_s=0.0))
    assert code == EXIT_UNREACHABLE
    assert f"no gateway runs on {tmp_path}" in Printed(capsys).err
    assert os.read(reading, 100) == b"precious"
    os.close(reading)
    os.close(writing)


async def test_a_gateway_that_is_just_starting_is_waited_for(tmp_path: Path) -> None:
    task = asyncio.create_task(run(tmp_path, words="hello", patience_s=60.0))
    await asyncio.sleep(0)
    async with talking(tmp_path):
        assert await soon(task) == EXIT_ANSWERED


async def test_no_answer_in_time_is_temporary_and_says_where_it_will_be(
    gateway: TalkingGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(gateway.home, words="silence", timeout_s=1.0) == EXIT_LATER
    captured = Printed(capsys)
    assert captured.out == ""
    assert "no answer within 1 s; the answer will be in the conversation" in captured.err


async def test_a_message_that_is_not_taken_in_time_is_put_away(
    gateway: TalkingGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway.failure = StoreUnavailable("the disk is full")
    assert await run(gateway.home, words="hello", timeout_s=0.2) == EXIT_LATER
    assert "did not take the message" in Printed(capsys).err
    assert unsent(gateway.home) == ["hello"]


async def test_a_message_that_can_be_kept_nowhere_is_shown(
    gateway: TalkingGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway.failure = StoreUnavailable("the disk is full")
    (gateway.home / "chat").touch()
    assert await run(gateway.home, words="precious", timeout_s=0.2) == EXIT_LATER
    assert "the text is not kept in a file either (File exists): precious\n" in Printed(capsys).err


async def test_a_message_refused_for_now_is_offered_again(
    gateway: TalkingGateway, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(chat_link, "_REFUSED_DELAY_S", 0.01)

    async def fail_twice(_message: InboundMessage) -> None:
        gateway.failure = StoreUnavailable("the disk is full") if gateway.offered.qsize() <= 2 else None

    gateway.before_keeping = fail_twice  # type: ignore[method-assign]
    assert await run(gateway.home, words="hello") == EXIT_ANSWERED
    assert gateway.offered.qsize() == 3
    assert await gateway.texts(1) == ["hello"]
    assert Printed(capsys).err == "ethos chat: not taken yet: the disk is full (trying again)\n"


async def test_another_conversation_is_another_conversation(gateway: TalkingGateway) -> None:
    assert await run(gateway.home, words="hello", conversation="trip to Rome") == EXIT_ANSWERED
    message = next(iter(gateway.received.values()))
    assert message.conversation == place("trip to Rome")


async def test_a_name_that_cannot_be_one_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert await run(tmp_path, words="hello", conversation="\x1b[2J") == EXIT_ERROR
    error = Printed(capsys).err
    assert "printable characters" in error
    assert "\x1b" not in error


async def test_the_answer_survives_a_restart_of_the_gateway(
    gateway: TalkingGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    task = asyncio.create_task(run(gateway.home, words="silence"))
    await gateway.texts(1)
    await gateway.stop()
    await gateway.start()
    gateway.model.words.set_result("better late")
    assert await soon(task) == EXIT_ANSWERED
    printed = Printed(capsys)
    assert printed.out == "better late\n"
    assert "the gateway is away; waiting for it" in printed.err
    assert len(gateway.received) == 1


async def test_a_message_whose_receipt_was_lost_is_sent_again_and_kept_once(
    gateway: TalkingGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = asyncio.Event()

    async def say_nothing(_message: InboundMessage) -> None:
        if not kept.is_set():
            kept.set()
            await asyncio.Event().wait()

    gateway.after_keeping = say_nothing  # type: ignore[method-assign]
    task = asyncio.create_task(run(gateway.home, words="hello"))
    await soon(kept.wait())
    await gateway.stop()
    await gateway.start()
    assert await soon(task) == EXIT_ANSWERED
    assert Printed(capsys).out == "You said: hello\n"
    assert len(gateway.received) == 1
    assert gateway.offered.get_nowait() == gateway.offered.get_nowait(), "it came twice, and is the same one"


async def test_a_message_that_the_gateway_died_on_is_sent_again(gateway: TalkingGateway) -> None:
    began = asyncio.Event()

    async def die_once(_message: InboundMessage) -> None:
        if not began.is_set():
            began.set()
            await asyncio.Event().wait()

    gateway.before_keeping = die_once  # type: ignore[method-assign]
    task = asyncio.create_task(run(gateway.home, words="hello"))
    await soon(began.wait())
    await gateway.stop()
    await gateway.start()
    assert await soon(task) == EXIT_ANSWERED
    assert await gateway.texts(1) == ["hello"]


async def test_an_answer_that_nobody_asked_for_here_is_not_taken_for_ours(
    gateway: TalkingGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    task = asyncio.create_task(run(gateway.home, words="silence"))
    await gateway.texts(1)
    await gateway.post("for another terminal")
    gateway.model.words.set_result("for you")
    assert await soon(task) == EXIT_ANSWERED
    assert Printed(capsys).out == "for you\n"


async def test_a_conversation_with_a_past_begins_at_its_end(
    gateway: TalkingGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(3):
        await gateway.post(f"old {number}")
    assert await run(gateway.home, words="say new") == EXIT_ANSWERED
    assert Printed(capsys).out == "new\n"


async def test_two_terminals_on_one_conversation_each_get_the_answer_to_their_own_message(
    gateway: TalkingGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    codes = await asyncio.gather(*(run(gateway.home, words=f"say {word}") for word in ("one", "two")))
    assert codes == [EXIT_ANSWERED, EXIT_ANSWERED]
    assert sorted(Printed(capsys).out.splitlines()) == ["one", "two"]


async def test_a_socket_of_another_user_is_not_talked_to(
    gateway: TalkingGateway, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    if (gateway.home / SOCKET_NAME).stat().st_uid == 0:  # root may hold a socket for all
        owner = Path.lstat

        def of_another(path: Path) -> os.stat_result:
            return os.stat_result([*owner(path)[:4], 4712, *owner(path)[5:]])

        monkeypatch.setattr(Path, "lstat", of_another)
    assert await run(gateway.home, words="hello") == EXIT_UNREACHABLE
    assert "belongs to another user; nothing was sent" in Printed(capsys).err
    assert gateway.received == {}


async def test_escape_sequences_in_an_answer_are_harmless(
    gateway: TalkingGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(gateway.home, words="say \x1b[2J\x1b]0;evil\x07") == EXIT_ANSWERED
    assert Printed(capsys).out == "␛[2J␛]0;evil␇\n"


async def _program(gateway: TalkingGateway, *arguments: str, stdout: int = -1) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *ETHOS, *arguments, stdin=asyncio.subprocess.PIPE, stdout=stdout, stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONIOENCODING": "ascii", "ETHOS_HOME": str(gateway.home)},
    )  # fmt: skip


async def test_as_a_program_it_reads_its_stdin_and_writes_what_the_locale_can(gateway: TalkingGateway) -> None:
    process = await _program(gateway)
    out, err = await soon(process.communicate("grüße".encode()))
    assert (out, err, process.returncode) == (b"You said: gr??e\n", b"", EXIT_ANSWERED)


async def test_interrupted_while_it_waits_for_input_the_program_ends_at_once(gateway: TalkingGateway) -> None:
    process = await _program(gateway, "--lines")
    assert process.stdin is not None
    process.stdin.write(b"one\n")
    await gateway.texts(1)
    assert process.stdout is not None
    assert await soon(process.stdout.readline()) == b"You said: one\n"
    process.send_signal(signal.SIGINT)
    _, err = await soon(process.communicate())
    assert process.returncode != -signal.SIGABRT
    assert b"Fatal" not in err


async def test_a_reader_of_the_answers_that_goes_away_is_no_crash(gateway: TalkingGateway) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = await _program(gateway, "hello", stdout=writing)
    os.close(writing)
    _, err = await soon(process.communicate())
    assert (err, process.returncode) == (b"", EXIT_ERROR)
