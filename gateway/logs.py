"""Logs: one line per event on standard error, for people on a terminal, JSON elsewhere. Rotation is the platform's."""

from __future__ import annotations

import logging
import sys
from typing import TextIO

import structlog


def configure_logs(level: str = "info", style: str = "auto", *, stream: TextIO | None = None) -> None:
    """Set the log up for the whole process; libraries' own messages from `warning` on go the same way.

    Args:
        level: `debug`, `info`, `warning` or `error`.
        style: `text`, `json`, or `auto`: text where the stream is a terminal.
        stream: standard error when None.
    """
    stream = stream or sys.stderr
    is_text = style == "text" or (style == "auto" and stream.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback)
        if is_text
        else structlog.processors.JSONRenderer(ensure_ascii=False)
    )
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(stream),
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processor=renderer, foreign_pre_chain=shared))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("adapters").setLevel(level.upper())  # not libraries: what they say is ours
    for chatty in ("httpx", "httpcore", "httpx2", "httpcore2"):  # they log whole addresses, tokens in them, at INFO
        logging.getLogger(chatty).setLevel(logging.WARNING)
