"""`ethos chat`: the person's side of a conversation in the terminal, for people and for pipes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import TextIO

from adapters.cli.convert import LogMessage, Refused, Welcome, conversation_problem
from gateway.cli.chat_choices import listed
from gateway.cli.chat_input import lines_of_input, one_message, whole_input
from gateway.cli.chat_link import ChatLink, ChatRefused, TextTooLong
from gateway.cli.chat_text import neutralise
from gateway.errors import AdapterNotReady
from gateway.files.chat_state import ChatState

EXIT_ANSWERED = 0
EXIT_ERROR = 1
EXIT_UNREACHABLE = 69  # EX_UNAVAILABLE of sysexits.h
EXIT_LATER = 75  # EX_TEMPFAIL: nothing is lost, the answer is not here yet


async def chat(
    socket_path: Path,
    *,
    state_dir: Path,
    conversation: str = "main",
    words: str | None = None,
    is_interactive: bool = False,
    is_by_lines: bool = False,
    timeout_s: float = 600.0,
    patience_s: float = 5.0,
    stdin_fd: int = 0,
    advice: str = "Start one with `ethos serve`.",
) -> int:
    """Talk to the gateway that listens on the socket; returns the exit code.

    Args:
        socket_path: of the terminal channel.
        state_dir: where history, cursor and unsent texts are kept.
        conversation: its name.
        words: one message to ask; None for what is typed, or comes through the pipe.
        is_interactive: stdin and stdout are a person's terminal.
        is_by_lines: each line of stdin is a message, instead of all of it one.
        timeout_s: how long to wait for each answer, when not interactive.
        patience_s: how long a gateway may take to open its socket.
        stdin_fd: what is read when there are no words and nobody at a keyboard.
        advice: what to do when no gateway answers.
    """
    if problem := conversation_problem(conversation):
        _complain(f"{conversation!r}: {problem}")
        return EXIT_ERROR
    state = ChatState(state_dir, conversation)
    is_talk = is_interactive and words is None
    after = state.load_cursor() if is_talk else None
    link = ChatLink(socket_path, conversation=conversation, after=after, patience_s=patience_s)
    try:
        if is_talk:
            from gateway.cli.chat_screen import ChatScreen  # 0.1 s that a pipe need not wait

            return await ChatScreen(link, state).run()
        return await _ask(link, state, _messages(words, stdin_fd, is_by_lines=is_by_lines), timeout_s)
    except AdapterNotReady as error:
        _complain(f"{error}. {advice}")
        return EXIT_UNREACHABLE
    except ChatRefused as error:
        _complain(f"the gateway refused: {error}")
    except BrokenPipeError:  # whoever read our answers has gone; there is nobody to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        _complain(str(error))
    return EXIT_ERROR


def _messages(words: str | None, stdin_fd: int, *, is_by_lines: bool) -> AsyncGenerator[str, None]:
    if words is not None:
        return one_message(words)
    return lines_of_input(stdin_fd) if is_by_lines else whole_input(stdin_fd)


async def _ask(link: ChatLink, state: ChatState, messages: AsyncGenerator[str, None], timeout_s: float) -> int:
    """Send each message, print its answer, and go on with the next one."""
    asked = 0
    async with contextlib.aclosing(link.frames()) as frames, contextlib.aclosing(messages):
        async for frame in frames:  # attach before anything is read from the pipe
            if isinstance(frame, Welcome):
                break
        async for text in messages:
            asked += 1
            try:
                message_id = link.say(text)
                async with asyncio.timeout(timeout_s):
                    answer = await _answer_to(message_id, frames)
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


async def _answer_to(message_id: str, frames: AsyncIterator[object]) -> LogMessage | Refused:
    """The first message that replies to it, or a refusal for good. The frames never end."""
    not_taken = ""
    async for frame in frames:
        if isinstance(frame, LogMessage) and frame.direction == "out" and frame.reply_to == message_id:
            return frame
        if isinstance(frame, Refused) and frame.id == message_id:
            if not frame.is_temporary:
                return frame
            if frame.reason != not_taken:  # it comes again every second
                _complain(f"not taken yet: {frame.reason} (trying again)")
            not_taken = frame.reason
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
