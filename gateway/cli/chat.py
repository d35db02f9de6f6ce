"""`ethos chat`: the person's side of a conversation in the terminal, for people and for pipes."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path
from typing import TextIO

from gateway.cli.chat_link import (
    Attached,
    ChatLink,
    ChatRefused,
    Frame,
    Lost,
    NotReached,
    Refused,
    Said,
    TextTooLong,
    sender_to,
)
from gateway.cli.chat_text import clean, listed, neutralise
from gateway.files.chat_state import ChatState
from gateway.sdk.in_process import App
from gateway.sdk.models.chat import ChatMessage

EXIT_ANSWERED = 0
EXIT_ERROR = 1
EXIT_UNREACHABLE = 69  # EX_UNAVAILABLE of sysexits.h
EXIT_LATER = 75  # EX_TEMPFAIL: nothing is lost, the answer is not here yet

_MAX_NAME_CHARS = 100
_CHUNK_BYTES = 64 * 1024
_MAX_TEXT_BYTES = 64 * 1024 * 1024  # more than can be sent, so that what is too long is put away whole


async def chat(
    home: Path,
    *,
    app: App | None = None,
    conversation: str = "main",
    words: str | None = None,
    is_interactive: bool = False,
    is_by_lines: bool = False,
    timeout_s: float = 600.0,
    patience_s: float = 5.0,
    stdin_fd: int = 0,
    advice: str = "See `ethos status`, or restart it.",
) -> int:
    """Talk to the gateway that runs on the data directory; returns the exit code.

    Args:
        home: the data directory.
        app: of the gateway, where it runs in this process.
        conversation: its name.
        words: one message to ask; None for what is typed, or comes through the pipe.
        is_interactive: stdin and stdout are a person's terminal.
        is_by_lines: each line of stdin is a message, instead of all of it one.
        timeout_s: how long to wait for each answer, when not interactive.
        patience_s: how long a gateway may take to open its socket.
        stdin_fd: what is read when there are no words and no keyboard.
        advice: what to do when the gateway does not answer.
    """
    if problem := _problem_of_name(conversation):
        _complain(f"{conversation!r}: {problem}")
        return EXIT_ERROR
    state = ChatState(home, conversation)
    is_talk = is_interactive and words is None
    after = state.load_cursor() if is_talk else None
    link = ChatLink(sender_to(home, app), conversation=conversation, after=after, patience_s=patience_s)
    try:
        if is_talk:
            from gateway.cli.chat_screen import ChatScreen  # 0.1 s that a pipe need not wait

            return await ChatScreen(link, state).run()
        return await _ask(link, state, _messages(words, stdin_fd, is_by_lines=is_by_lines), timeout_s)
    except NotReached as error:
        _complain(f"{error}. {advice}")
        return EXIT_UNREACHABLE
    except ChatRefused as error:
        _complain(f"the gateway refused: {error}")
    except BrokenPipeError:  # the reader of our output is gone, so no one can be told
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        _complain(str(error))
    return EXIT_ERROR


def _problem_of_name(name: str) -> str | None:
    """Say why this cannot be a conversation's name, None if it can."""
    if not name or len(name) > _MAX_NAME_CHARS or name != name.strip() or not name.isprintable():
        return f"a conversation's name has 1 to {_MAX_NAME_CHARS} printable characters, no space at its ends"
    return None


async def _ask(link: ChatLink, state: ChatState, messages: AsyncGenerator[str, None], timeout_s: float) -> int:
    """Send each message, print its answer, and go on with the next one."""
    asked = 0
    async with contextlib.aclosing(link.frames()) as frames, contextlib.aclosing(messages):
        async for frame in frames:  # attach before anything is read from the pipe
            if isinstance(frame, Attached):
                break
        async for text in messages:
            asked += 1
            try:
                said = link.say(text)
                async with asyncio.timeout(timeout_s):
                    answer = await _answer_to(said, frames)
            except TextTooLong as error:
                _complain(f"{error}. Nothing was sent; the text is {state.keep_unsent(text)}")
                return EXIT_ERROR
            except TimeoutError:
                _complain(_too_late(link, state, timeout_s))
                return EXIT_LATER
            if isinstance(answer, Refused):
                _complain(f"not sent: {answer.reason}. The text is {state.keep_unsent(text)}")
                return EXIT_ERROR
            if answer.text:
                _print(answer.text, sys.stdout)
            if answer.choices:
                _print(listed(answer.choices), sys.stdout)
    if not asked:
        _complain("there is nothing to send: the input is empty")
        return EXIT_ERROR
    return EXIT_ANSWERED


async def _answer_to(said: Said, frames: AsyncIterator[Frame]) -> ChatMessage | Refused:
    """The first message that replies to it, or a refusal for good. The frames never end."""
    told = ""
    async for frame in frames:
        if isinstance(frame, ChatMessage) and frame.reply_to is not None and frame.reply_to == said.message:
            return frame
        if isinstance(frame, Refused):
            if not frame.is_temporary:
                return frame
            if frame.reason != told:  # it comes again every second
                _complain(f"not taken yet: {frame.reason} (trying again)")
            told = frame.reason
        elif isinstance(frame, Lost):
            _complain("the gateway is away; waiting for it. `ethos serve` starts one")
    raise AssertionError("the link's frames ended")  # they end by raising only


def _too_late(link: ChatLink, state: ChatState, timeout_s: float) -> str:
    if link.unsent:
        kept = state.keep_unsent(link.unsent[0].text)
        return f"the gateway did not take the message within {timeout_s:g} s; the text is {kept}"
    return f"no answer within {timeout_s:g} s; the answer will be in the conversation"


def _print(text: str, stream: TextIO) -> None:
    """One message of plain text, whatever the stream can encode."""
    encoding = stream.encoding or "utf-8"
    stream.write(neutralise(text).encode(encoding, "replace").decode(encoding) + "\n")
    stream.flush()


def _complain(text: str) -> None:
    _print(f"ethos chat: {text}", sys.stderr)


# ---- what comes through a pipe, or as words of the command ----------------------------------------------------------


def _messages(words: str | None, stdin_fd: int, *, is_by_lines: bool) -> AsyncGenerator[str, None]:
    if words is not None:
        return _one_message(words)
    return lines_of_input(stdin_fd) if is_by_lines else _whole_input(stdin_fd)


async def _one_message(words: str) -> AsyncGenerator[str, None]:
    """The words themselves."""
    if words.strip():
        yield clean(words)


async def _whole_input(fd: int) -> AsyncGenerator[str, None]:
    """All of the input as one message, if there is any.

    Raises:
        OSError: it cannot be read, or does not end within 64 MiB.
    """
    raw = bytearray()
    while chunk := await _read(fd):
        raw += chunk
        _check_size(raw)
    text = _text(raw).strip("\r\n")
    if text.strip():
        yield text


async def lines_of_input(fd: int) -> AsyncGenerator[str, None]:
    """Each line as soon as it is there, without the blank ones.

    Raises:
        OSError: as `_whole_input`.
    """
    raw = bytearray()
    is_ended = False
    while not is_ended:
        chunk = await _read(fd)
        is_ended = not chunk
        raw += chunk or b"\n"
        _check_size(raw)
        *lines, raw = raw.split(b"\n")
        for line in lines:
            if text := _text(line).strip():
                yield text


def _check_size(raw: bytearray) -> None:
    if len(raw) > _MAX_TEXT_BYTES:
        raise OSError(f"the input has more than {_MAX_TEXT_BYTES} bytes for one message; nothing of it was sent")


def _text(raw: bytearray) -> str:
    """What is not UTF-8, and NULs, become U+FFFD."""
    return clean(raw.decode("utf-8", errors="replace"))


async def _read(fd: int) -> bytes:
    """Read what is there, waiting for it if need be.

    In a thread of its own, since a file cannot be polled and a pipe may never end: the loop's own threads are waited
    for when the program is interrupted, and a buffered reader would hold a lock that its end needs.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[bytes] = loop.create_future()

    def settle(action: Callable[[], None]) -> None:
        if not result.done():
            action()

    def work() -> None:
        try:
            action = functools.partial(result.set_result, os.read(fd, _CHUNK_BYTES))
        except OSError as error:
            action = functools.partial(result.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile; nothing waits
            loop.call_soon_threadsafe(settle, action)

    threading.Thread(target=work, name="stdin", daemon=True).start()
    return await result
