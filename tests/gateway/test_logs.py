"""The log of a gateway: what an adapter says is there, what a library says only where it matters."""

from __future__ import annotations

import io
import logging

import pytest

from gateway.logs import configure_logs


@pytest.mark.parametrize(("level", "heard"), [("info", True), ("warning", False)])
def test_what_adapters_say_follows_the_level_and_libraries_are_heard_from_warning_on(level: str, heard: bool) -> None:
    stream = io.StringIO()
    configure_logs(level, "json", stream=stream)
    logging.getLogger("adapters.some.intake").info("a mail was passed over")
    logging.getLogger("somelibrary").info("chatter")
    logging.getLogger("somelibrary").warning("trouble")
    assert ("a mail was passed over" in stream.getvalue()) is heard
    assert "chatter" not in stream.getvalue()
    assert "trouble" in stream.getvalue()
