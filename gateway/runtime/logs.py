"""Logs: one line per event on standard error, for people on a terminal, JSON elsewhere. Rotation is the platform's.

Every line that belongs to a message carries its turn's id, from accept to receipt (`observe.stage`), those of libraries
too. Three things keep private what is private: what people write has a key of its own, `text`, which is taken out;
libraries are heard from `warning` on, since below that some log whole requests with the token in the address; and
every secret of the configuration is cut out of every line, no matter which module wrote it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TextIO
from urllib.parse import parse_qs, quote, unquote, urlsplit

import structlog
from pydantic import BaseModel, SecretStr

# A failure that goes on is told again after this time, with how often it came meanwhile.
REPEAT_S = 300.0
MAX_REMEMBERED = 512
HIDDEN = "***"
# A shorter one would be cut out of words that have nothing to do with it.
MIN_SECRET_CHARS = 6
# Our own packages, whose `logging` loggers follow the level; all others are libraries.
OURS = ("gateway", "adapters")
_OUR_FILES = tuple(f"{Path(__file__).parents[2] / package}{os.sep}" for package in OURS)
# What makes two lines the same: what went wrong, where, and why. Counters and waits differ from time to time.
_SAMENESS = ("event", "turn_id", "channel", "model", "message_id", "session_id", "error", "reason", "problem",
             "connection")  # fmt: skip

_stream: TextIO | None = None  # where the log goes; None is standard error


def adjust_logs(level: str, style: str, *, secrets: Iterable[str], is_text_shown: bool) -> None:
    """Change all but where the log goes; `configure_logs` has been called."""
    configure_logs(level, style, stream=_stream, secrets=secrets, is_text_shown=is_text_shown)


def configure_logs(
    level: str = "info",
    style: str = "auto",
    *,
    stream: TextIO | None = None,
    secrets: Iterable[str] = (),
    is_text_shown: bool = False,
) -> None:
    """Set the log up for the whole process.

    Args:
        level: `debug`, `info`, `warning` or `error`; for libraries it is `warning` at least.
        style: `text`, `json`, or `auto`: text where the stream is a terminal.
        stream: standard error when None.
        secrets: never shown; see `secrets_in`.
        is_text_shown: show what people and the agent write, at `debug`.
    """
    global _stream  # noqa: PLW0603 (the log is the process's, and has one place)
    _stream = stream
    stream = stream or sys.stderr
    is_text = style == "text" or (style == "auto" and stream.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        *([] if is_text_shown else [_without_text]),
        structlog.processors.format_exc_info,
    ]
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback)
        if is_text
        else structlog.processors.JSONRenderer(ensure_ascii=False)
    )
    hide = _hiding(secrets)
    repeats = Repeats()
    structlog.configure(
        processors=[repeats.processor, *shared, renderer, hide],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=lambda *_: _Lines(stream),
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer, hide],
        foreign_pre_chain=shared,
    )
    _listen_to_logging(stream, formatter, repeats, level)


class _Lines(structlog.PrintLogger):
    """Writes each line at once. One that cannot be written is lost, and the work that it tells of goes on.

    Handlers of `logging` do the same: a full disk, or a terminal that was closed, stops the log and nothing else.
    """

    def msg(self, message: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # ValueError: the stream is closed
            super().msg(message)

    debug = info = warning = error = critical = exception = msg


def _listen_to_logging(stream: TextIO, formatter: logging.Formatter, repeats: Repeats, level: str) -> None:
    """Take in what libraries and adapters say by the standard library's `logging`."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    handler.addFilter(_is_ours_or_loud)
    handler.addFilter(repeats.filter)
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    for package in OURS:
        logging.getLogger(package).setLevel(level.upper())


def secrets_in(part: object) -> Iterator[str]:
    """Every secret of a configuration, wherever in it it stands."""
    if isinstance(part, SecretStr):
        yield from secrets_of(part.get_secret_value())
    elif isinstance(part, BaseModel):
        for name in type(part).model_fields:
            yield from secrets_in(getattr(part, name))
    elif isinstance(part, Mapping):
        for inner in part.values():
            yield from secrets_in(inner)
    elif isinstance(part, (list, tuple, set, frozenset)):
        for inner in part:
            yield from secrets_in(inner)


def secrets_of(text: str) -> Iterator[str]:
    """A secret; of an address also its password, since an error may show that alone.

    The address of a server that holds no user and no password is none. That of a web page may be one by its path.
    """
    try:
        parts = urlsplit(text)
    except ValueError:
        yield text
        return
    is_web = parts.scheme in ("", "http", "https")
    if is_web or "://" not in text or "@" in text or "password" in text:
        yield text
    for password in (parts.password, *parse_qs(parts.query).get("password", ())):
        if parts.scheme and password:
            yield from (password, unquote(password))


class Repeats:
    """Lets a failure that goes on through once, then every `REPEAT_S` with the number of those that were left out.

    Only warnings and errors are looked at. Lines that name different messages are never the same.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told: OrderedDict[Hashable, tuple[float, int]] = OrderedDict()

    def count(self, line: Hashable) -> int | None:
        """How many of the line were left out since it was last told; None: leave this one out too."""
        now_s = self._clock()
        told_s, left_out = self._told.get(line, (None, 0))
        if told_s is not None and now_s - told_s < REPEAT_S:
            self._told[line] = (told_s, left_out + 1)
            return None
        self._told[line] = (now_s, 0)
        self._told.move_to_end(line)
        if len(self._told) > MAX_REMEMBERED:
            self._told.popitem(last=False)
        return left_out

    def processor(self, _logger: object, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        """For structlog's chain."""
        if method not in ("warning", "error", "exception", "critical"):
            return event
        left_out = self.count((method, *(str(event.get(key)) for key in _SAMENESS), _raised(event.get("exc_info"))))
        if left_out is None:
            raise structlog.DropEvent
        return {**event, "repeated": left_out} if left_out else event

    def filter(self, record: logging.LogRecord) -> bool:
        """For the handler of `logging`."""
        return record.levelno < logging.WARNING or self.count((record.name, record.getMessage())) is not None


def _raised(exc_info: object) -> str:
    """Which exception a line is about, in each of the forms in which it may be given."""
    if exc_info is True:
        return repr(sys.exc_info()[1])
    return repr(exc_info[1] if isinstance(exc_info, tuple) else exc_info)


def _without_text(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    event.pop("text", None)
    return event


def _is_ours_or_loud(record: logging.LogRecord) -> bool:
    """Whatever level a library gives its loggers, and even if it writes to ours, it is heard from `warning` on only."""
    return record.levelno >= logging.WARNING or record.pathname.startswith(_OUR_FILES)


def hiding(secrets: Iterable[str]) -> Callable[[str], str]:
    """A function that cuts secrets out of a text, also as they stand in an address or in JSON."""
    known = {secret for secret in secrets if len(secret) >= MIN_SECRET_CHARS}
    forms = known | {quote(secret, safe="") for secret in known} | {json.dumps(secret)[1:-1] for secret in known}
    pattern = re.compile("|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True))) if forms else None
    return lambda text: text if pattern is None else pattern.sub(HIDDEN, text)


def _hiding(secrets: Iterable[str]) -> structlog.typing.Processor:
    """The last processor: what it makes is written as it is."""
    hide = hiding(secrets)
    return lambda _logger, _method, line: hide(str(line))
