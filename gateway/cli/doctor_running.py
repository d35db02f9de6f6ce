"""Checks of the gateway that runs: what it says of itself, and whether it can be found."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gateway.cli.finding import Finding, Ground
from gateway.cli.process import HealthUnknown, ask_health

# Every connection, file and database takes a descriptor.
FEW_FILES = 1024
_MOST_USED = 0.8

_REFUSED = "Give it a key that is valid, and restart the gateway."
_HALF = "It works, but for that. The page of the channel says more."
_TRYING = "The gateway goes on trying; see its log if this lasts."


def running(ground: Ground) -> Iterator[Finding]:
    """What the running gateway says is wrong."""
    if ground.process is None:
        yield Finding(level="note", what="No gateway runs on it.")
        return
    if ground.process.started_at is None:
        yield Finding(
            level="warning",
            what=f"The process {ground.process.pid} holds the data directory and has not said that it serves.",
            advice="It may be just starting. If this lasts, it hangs, or is no gateway: look at it with "
            f"`ps -p {ground.process.pid}`, and end it.",
        )
        return
    yield Finding(level="note", what=f"A gateway runs on it: process {ground.process.pid}.")
    yield from _about_files(ground.process.pid)
    if ground.process.url is None:
        return
    try:
        health = ask_health(ground.home, ground.process)
    except HealthUnknown as unknown:
        yield Finding(level="problem", what=f"The gateway does not say how it is: {unknown}.", advice="Restart it.")
        return
    yield from _about_store(health)
    for channel in health.get("channels", []):
        if channel.get("error"):
            yield _about_channel(channel)
    for model in health.get("models", []):
        if model.get("state") == "down":
            yield _about_model(model)
    if late := health.get("memory_late"):
        yield Finding(
            level="warning",
            what=f"The memory updates of {late} turn{'' if late == 1 else 's'} could not be written yet.",
            advice="They are kept and tried again; see the log for the reason (a lock that is held, a full disk).",
        )


def _about_store(health: Mapping[str, Any]) -> Iterator[Finding]:
    if health.get("store_problem"):
        yield Finding(
            level="problem",
            what=f"The gateway takes no messages, because it cannot write: {health['store_problem']}",
            advice="Make room, or repair the disk. It then continues automatically, and nothing is lost.",
        )


def _about_files(pid: int | None, proc: Path = Path("/proc")) -> Iterator[Finding]:
    """How many files the gateway may open, and has; nothing where the system does not tell."""
    try:
        limits = (proc / str(pid) / "limits").read_text()
        used = len(list((proc / str(pid) / "fd").iterdir()))
    except OSError:
        return
    found = re.search(r"^Max open files +(\d+)", limits, re.MULTILINE)
    if found is None:
        return
    most = int(found[1])
    if most >= FEW_FILES and used < _MOST_USED * most:
        return
    yield Finding(
        level="warning",
        what=f"The gateway has {used} files and connections open, and may have {most}.",
        advice=f"At the limit it takes no more connections. Raise it: `LimitNOFILE={4 * FEW_FILES}` in the unit of the "
        f"service, or `ulimit -n {4 * FEW_FILES}` in the shell that starts it.",
    )


def _about_channel(channel: Mapping[str, Any]) -> Finding:
    state = channel.get("state")
    return Finding(
        level="problem" if state in ("down", "auth_failed") else "warning",
        what=f"The channel {channel['name']} is {state}: {channel['error']}",
        advice=_REFUSED if state == "auth_failed" else _HALF if state == "up" else _TRYING,
    )


def _about_model(model: Mapping[str, Any]) -> Finding:
    return Finding(
        level="problem",
        what=f"The model {model['name']} does not answer: {model.get('error')}",
        advice="Look at its key, its address and its quota. Messages wait, and are answered when it is back; "
        "`fallbacks` name who answers meanwhile.",
    )


def terminal(ground: Ground) -> Iterator[Finding]:
    """`ethos chat` finds the gateway by a socket, whose file somebody may have deleted."""
    if ground.process is None or ground.process.started_at is None or ground.config is None:
        return
    from adapters.cli import socket_path

    for name, channel in ground.config.channels.items():
        if channel.kind == "cli" and channel.enabled:
            path = socket_path(channel.settings, ground.home / "channels" / name)
            if not path.is_socket():
                yield Finding(
                    level="warning",
                    what=f"{path} is not there, so `ethos chat` does not find the running gateway.",
                    advice="The gateway makes it again within some seconds. If not, restart it; its log says why.",
                )
