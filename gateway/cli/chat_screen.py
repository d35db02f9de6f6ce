"""The chat as a person sees it: a prompt at the bottom, the conversation above it, what is being written between."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterable
from io import StringIO

from prompt_toolkit import PromptSession
from prompt_toolkit.application.current import get_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, get_common_complete_suffix
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import has_focus
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.styles import Style
from rich.cells import chop_cells
from rich.console import Console
from rich.markdown import Markdown
from rich.segment import Segment, Segments

from gateway.cli.chat_link import Attached, ChatLink, Frame, Kept, Lost, Refused, Said, TextTooLong
from gateway.cli.chat_text import chosen, clean, neutralise, numbered
from gateway.files.chat_state import ChatState
from gateway.sdk.errors import APIError
from gateway.sdk.models.chat import ChatMessage, Choice, Command, Live, Preview

_EXIT_LEFT = 0
_EXIT_UNSENT = 75  # EX_TEMPFAIL of sysexits.h
_LEAVE = ("/exit", "/quit")
_HINTS = "/help lists the commands · Alt-Enter: new line · Ctrl-D: leave"
_STYLE = Style.from_dict({"prompt": "bold", "status": "fg:ansibrightblack"})
_DIM, _BOLD, _PLAIN = "\x1b[2m", "\x1b[1m", "\x1b[0m"


class _CleanHistory(FileHistory):
    """A history that neither a paste of broken text nor a full disk can stop."""

    def store_string(self, string: str) -> None:
        with contextlib.suppress(OSError):
            super().store_string(clean(string))

    def load_history_strings(self) -> Iterable[str]:
        try:
            return list(super().load_history_strings())
        except OSError:
            return []


class _CommandCompleter(Completer):
    """Completes `/name` at the start of a message, and what may follow it."""

    def __init__(self) -> None:
        self.commands: tuple[Command, ...] = ()

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:  # noqa: ARG002
        name, space, value = document.text.partition(" ")
        if not name.startswith("/") or any(character.isspace() for character in name + value):
            return
        leave = Command(name="exit", usage="/exit", description="leave the chat")
        for command in (*self.commands, leave):
            if space and name == f"/{command.name}":
                yield from (Completion(each, -len(value)) for each in command.values if each.startswith(value))
            elif not space and f"/{command.name}".startswith(name):
                yield Completion(f"/{command.name}", -len(name), display_meta=neutralise(command.description))


class ChatScreen:
    """Shows one conversation and takes what is typed."""

    def __init__(self, link: ChatLink, state: ChatState) -> None:
        self._link, self._state = link, state
        self._is_styled = os.environ.get("TERM") != "dumb"
        self._is_coloured = self._is_styled and not os.environ.get("NO_COLOR")
        self._completer = _CommandCompleter()
        self._mine: set[str] = set()  # ids of messages that were shown when they were written
        self._waiting: list[Said] = []  # what was asked and not answered yet, oldest first
        self._previews: dict[str, str] = {}
        self._fetching: asyncio.Task[None] | None = None
        self._choices: tuple[Choice, ...] = ()  # of the last answer, until something is written
        self._is_away = False
        self._is_stopping = False
        self._not_taken = ""  # why the gateway does not take what was written, while it does not
        self._session: PromptSession[str] = PromptSession(
            message=self._prompt,
            history=_CleanHistory(str(state.history_file())),
            completer=self._completer,
            key_bindings=self._key_bindings(),
            style=_STYLE,
            reserve_space_for_menu=5,
        )
        self._session.app.min_redraw_interval = 0.03

    async def run(self) -> int:
        """Chat until the person leaves; returns the exit code.

        Raises:
            NotReached: no gateway answered.
            ChatRefused: it will not talk to us.
        """
        ready = asyncio.Event()
        following = asyncio.create_task(self._follow(ready))
        attached = asyncio.create_task(ready.wait())
        talking: asyncio.Task[None] | None = None
        try:
            await asyncio.wait({following, attached}, return_when=asyncio.FIRST_COMPLETED)
            if not following.done():
                talking = asyncio.create_task(self._talk())
                await asyncio.wait({following, talking}, return_when=asyncio.FIRST_COMPLETED)
            for done in (following, talking):
                if done is not None and done.done():
                    done.result()
        finally:
            tasks = [task for task in (following, attached, talking, self._fetching) if task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            code = self._leave()
        return code

    def _leave(self) -> int:
        """Put away what was not sent, however the chat ends."""
        unsent = self._link.unsent
        if not unsent:
            return _EXIT_LEFT
        kept = self._state.keep_unsent("\n\n".join(said.text for said in unsent))
        with contextlib.suppress(OSError):  # the terminal may be gone
            self._say_dim(f"the gateway has not taken your last {len(unsent)} message(s); the text is {kept}")
        return _EXIT_UNSENT

    # ---- what is typed ----------------------------------------------------------------------------------------------

    async def _talk(self) -> None:
        """Take messages until the person leaves.

        The prompt is never taken down between two messages: what is typed then would be lost, and Ctrl-C would kill.
        """
        with patch_stdout(raw=True), contextlib.suppress(EOFError):
            await self._session.prompt_async()

    def _submit(self, text: str) -> None:
        """Show and send what was typed."""
        text, self._choices = chosen(text, self._choices), ()
        self._say(f"> {text}", _BOLD)
        try:
            self._waiting.append(self._link.say(text))
        except TextTooLong as error:
            self._say_dim(f"{error}. The text is {self._state.keep_unsent(clean(text))}")

    def _key_bindings(self) -> KeyBindings:
        bindings = KeyBindings()

        @bindings.add("enter", filter=has_focus(DEFAULT_BUFFER))
        def _(event: KeyPressEvent) -> None:
            """Send the message."""
            text = event.current_buffer.text.strip()
            if text:
                event.current_buffer.append_to_history()
            event.current_buffer.reset()
            if text in _LEAVE:
                event.app.exit(exception=EOFError)
            elif text:
                self._submit(text)

        @bindings.add("escape", "enter")
        def _(event: KeyPressEvent) -> None:
            """A new line in the message."""
            event.current_buffer.insert_text("\n")

        @bindings.add("tab", filter=has_focus(DEFAULT_BUFFER))
        def _(event: KeyPressEvent) -> None:
            """Complete a command, or what may follow it."""
            self._complete(event.current_buffer)

        @bindings.add("c-c")
        @bindings.add(Keys.SIGINT)
        def _(event: KeyPressEvent) -> None:
            """Stop the answer that is being written; without one, drop what was typed; without that, leave."""
            if self._is_answering() and not self._is_stopping:
                self._is_stopping = True
                self._submit("/stop")
            elif event.current_buffer.text:
                event.current_buffer.reset()
            else:
                event.app.exit(exception=EOFError)

        return bindings

    def _complete(self, buffer: Buffer) -> None:
        """Complete what can only be one thing at once; of several, what they have in common, and list them."""
        if buffer.complete_state is not None:
            buffer.complete_next()
            return
        found = list(self._completer.get_completions(buffer.document, CompleteEvent(completion_requested=True)))
        if len(found) == 1:
            buffer.apply_completion(found[0])
        elif found:
            buffer.insert_text(get_common_complete_suffix(buffer.document, found))
            buffer.start_completion()

    # ---- what is shown ----------------------------------------------------------------------------------------------

    async def _follow(self, ready: asyncio.Event) -> None:
        """Show what the gateway says, for ever."""
        async with contextlib.aclosing(self._link.frames()) as frames:
            async for frame in frames:
                if isinstance(frame, Attached):
                    self._is_away = False
                    if self._fetching is not None:
                        self._fetching.cancel()
                    self._fetching = asyncio.create_task(self._fetch_commands())
                    if not ready.is_set():
                        self._say_dim(f"{self._state.conversation} · {_HINTS}")
                    ready.set()
                else:
                    self._show(frame)
                self._session.app.invalidate()

    async def _fetch_commands(self) -> None:
        with contextlib.suppress(APIError):  # nothing is completed then
            self._completer.commands = await self._link.commands()

    def _show(self, frame: Frame) -> None:
        match frame:
            case ChatMessage():
                self._show_message(frame)
                self._state.save_cursor(frame.sequence)  # the link may be ahead of what is shown
            case Live():
                self._state.save_cursor(frame.sequence)
            case Preview():
                text = frame.shown(self._previews.pop(frame.id, ""))  # the latest comes last
                if text:
                    self._previews[frame.id] = text
            case Lost():
                self._is_away = True
                self._previews.clear()
            case Refused():
                self._show_refusal(frame)
            case Kept(said):
                self._not_taken = ""
                if said.message is not None:
                    self._mine.add(said.message)
            case _:  # typing, tools: that an answer is awaited is shown already
                pass

    def _show_message(self, message: ChatMessage) -> None:
        if message.author == "person":
            if message.id not in self._mine:
                self._say_dim(f"> {message.text}")
            self._mine.discard(message.id)
            return
        columns = max(20, min(self._session.app.output.get_size().columns, 100))
        rendered = render_markdown(message.text, columns=columns, is_coloured=self._is_coloured)
        self._previews.pop(message.id, None)
        self._answered(message)
        if not message.text:  # what it answers was stopped
            return
        self._print(f"\n{rendered}\n")
        self._choices = message.choices
        if message.choices:
            self._say(numbered(message.choices), _PLAIN)

    def _answered(self, message: ChatMessage) -> None:
        asked = next((said for said in self._waiting if said.message and said.message == message.reply_to), None)
        if asked is not None:
            self._waiting.remove(asked)
            if asked.text == "/stop":
                self._waiting.clear()
                self._previews.clear()
        if not self._waiting:
            self._is_stopping = False

    def _show_refusal(self, refused: Refused) -> None:
        if refused.is_temporary:
            if refused.reason != self._not_taken:  # it comes again every second
                self._say_dim(f"not taken yet: {refused.reason} (trying again)")
            self._not_taken = refused.reason
            return
        self._not_taken = ""
        self._waiting = [said for said in self._waiting if said is not refused.said]
        self._say_dim(f"not sent: {refused.reason}. The text is {self._state.keep_unsent(refused.said.text)}")

    def _is_answering(self) -> bool:
        return bool(self._waiting or self._previews)

    def _prompt(self) -> StyleAndTextTuples:
        """The prompt with what is being written above it; called for every redraw."""
        fragments: StyleAndTextTuples = [("class:prompt", "> ")]
        app = get_app()
        if app.is_done:
            return fragments
        status = ""
        if self._is_away:
            status = "the gateway is away; waiting for it… (`ethos serve` starts one)"
        elif self._not_taken:
            status = "not taken yet; trying again…"
        elif self._is_stopping:
            status = "stopping…"
        elif self._waiting and not self._previews:
            status = "thinking…"
        if status:
            fragments.insert(0, ("class:status", f"{status}\n"))
        if self._previews:
            size = app.output.get_size()
            text = next(reversed(self._previews.values()))
            shown = tail(text, columns=max(10, size.columns - 1), rows=max(3, size.rows // 2))
            fragments.insert(0, ("", f"\n{shown}\n\n"))
        return fragments

    def _say_dim(self, text: str) -> None:
        self._say(text, _DIM)

    def _say(self, text: str, style: str) -> None:
        plain = neutralise(text)
        self._print(f"{style}{plain}{_PLAIN}\n" if self._is_styled else f"{plain}\n")

    def _print(self, text: str) -> None:
        """Write above the prompt.

        Not with `run_in_terminal`: it takes the terminal out of raw mode for a moment, in which keys are lost.
        """
        app = self._session.app
        is_prompting = app.is_running and not app.is_done
        if is_prompting:
            app.renderer.erase()
        app.output.write_raw(text.replace("\n", "\r\n"))
        app.output.flush()
        if is_prompting:
            app.renderer.reset()
            app.renderer.request_absolute_cursor_position()
            app.invalidate()


# ---- answers as they look in a terminal ------------------------------------------------------------------------------


def render_markdown(text: str, *, columns: int, is_coloured: bool) -> str:
    """Markdown with the terminal's own means; the only escape sequences in it are ours.

    Links are shown with their address, never hidden behind other words.
    """
    markdown = Markdown(neutralise(text), hyperlinks=False, code_theme="ansi_dark")
    console = Console(
        file=StringIO(),
        width=columns,
        force_terminal=True,
        no_color=not is_coloured,
        highlight=False,
        legacy_windows=False,
    )
    # Once more after parsing: an entity such as `&#13;` is a control character only now.
    segments = [
        Segment(neutralise(segment.text), segment.style) for segment in console.render(markdown) if not segment.control
    ]
    with console.capture() as capture:
        console.print(Segments(segments), end="")
    return capture.get().rstrip("\n") + "\n"


def tail(text: str, *, columns: int, rows: int) -> str:
    """The last lines of a text that is still being written, wrapped, without controls."""
    recent = neutralise(text[-columns * rows :]).expandtabs(4)
    lines = [part for line in recent.split("\n") for part in (chop_cells(line, columns) or [""])]
    return "\n".join(lines[-rows:])
