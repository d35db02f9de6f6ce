"""What the running gateway says of itself: its channels, models, memory and files, and a reload that failed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gateway.config.file import CONFIG_NAME
from gateway.errors import EthosError
from gateway.files.unix_socket import SOCKET_NAME
from gateway.ops.doctor.finding import Finding, Ground, named

# Every connection, file and database takes a descriptor.
FEW_FILES = 1024
_MOST_USED = 0.8

_REFUSED = "Give it a key that is valid, and connect it again: here, or with `ethos reload`."
_HALF = "It works, but for that. The page of the channel says more."
_TRYING = "The gateway goes on trying; see its log if this lasts."


def running(ground: Ground) -> Iterator[Finding]:
    """What the running gateway says is wrong."""
    if ground.process is None:
        yield Finding("running", "note", "No gateway runs on it.")
        return
    if ground.process.started_at is None:
        yield Finding(
            "silent-process",
            "warning",
            f"The process {ground.process.pid} holds the data directory and has not said that it serves.",
            "It may be just starting. If this lasts, it hangs, or is no gateway: look at it with "
            f"`ps -p {ground.process.pid}`, and end it.",
        )
        return
    yield Finding("running", "note", f"A gateway runs on it: process {ground.process.pid}.")
    yield from _about_files(ground.process.pid)
    path = ground.home / SOCKET_NAME
    if not path.is_socket():
        yield Finding(
            "socket",
            "problem",
            f"{path} is not there, so neither commands nor `ethos chat` reach the running gateway.",
            "Restart the gateway: it makes the socket when it starts.",
        )
        return
    health = ground.health
    if isinstance(health, EthosError):
        yield Finding("health", "problem", f"The gateway does not say how it is: {health}.", "Restart it.")
        return
    yield from _about_store(health)
    for channel in health.get("channels", []):
        if channel.get("error"):
            yield _about_channel(ground, channel)
    for model in health.get("models", []):
        yield from _about_model(model)
    if late := health.get("memory_late"):
        yield Finding(
            "memory-late",
            "warning",
            f"The memory updates of {late} turn{'' if late == 1 else 's'} could not be written yet.",
            "They are kept and tried again; see the log for the reason (a lock that is held, a full disk).",
            repair=ground.by_hands(
                "Try again now",
                "Brings them into the memory, as the gateway tries regularly. Each is written once, whoever does it.",
                lambda hands: hands.bring_in_memory(),
            ),
            page="memory",
        )


def configuration(ground: Ground) -> Iterator[Finding]:
    """A `config.yaml` that was changed and does not serve yet."""
    if ground.hands is not None and ground.hands.is_changed():
        yield Finding(
            "config-changed",
            "warning",
            f"{CONFIG_NAME} was changed, and the gateway still works with what it read before.",
            "Take it over: here, or with `ethos reload`.",
            repair=ground.by_hands(
                "Take it over",
                "Reads the configuration again. Where something in it is wrong, nothing changes.",
                lambda hands: hands.reload(),
            ),
        )


def servers(ground: Ground) -> Iterator[Finding]:
    """Servers of tools, some of whose tools wait for a person to accept them."""
    for name, tools in {} if ground.hands is None else ground.hands.withheld().items():
        yield Finding(
            f"server-{name}",
            "warning",
            f"{tools} tool{'' if tools == 1 else 's'} of the server {name} wait{'s' if tools == 1 else ''} to be "
            "accepted, so the agent does not have them.",
            "Look at what they say of themselves, and accept them.",
            page=f"servers/of/{quote(name, safe='')}",
        )


def told_by_gateway(ground: Ground) -> Iterator[Finding]:
    """What else the running gateway says, such as of a configuration that it did not take over."""
    if ground.process is None or ground.process.started_at is None:
        return
    health = ground.health
    if isinstance(health, EthosError):  # `running` says so
        return
    details = [one.get("error") for one in (*health.get("channels", []), *health.get("models", []))]
    for line in health.get("problems", []):
        if not any(detail and detail in line for detail in details):
            yield Finding(
                named("gateway", line),
                level="warning",
                what=line,
                advice="The running gateway says so; its log says more.",
            )


def _about_store(health: Mapping[str, Any]) -> Iterator[Finding]:
    if health.get("store_problem"):
        yield Finding(
            "store",
            "problem",
            f"The gateway takes no messages, because it cannot write: {health['store_problem']}",
            "Make room, or repair the disk. It then continues automatically, and nothing is lost.",
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
        "open-files-limit",
        "warning",
        f"The gateway has {used} files and connections open, and may have {most}.",
        f"At the limit it takes no more connections. Raise it: `LimitNOFILE={4 * FEW_FILES}` in the unit of the "
        f"service, or `ulimit -n {4 * FEW_FILES}` in the shell that starts it.",
    )


def _about_channel(ground: Ground, channel: Mapping[str, Any]) -> Finding:
    state, name = channel.get("state"), channel["name"]
    return Finding(
        f"channel-{name}",
        "problem" if state in ("down", "auth_failed") else "warning",
        f"The channel {name} is {state}: {channel['error']}",
        _REFUSED if state == "auth_failed" else _HALF if state == "up" else _TRYING,
        repair=None
        if state not in ("down", "auth_failed")
        else ground.by_hands(
            "Connect now",
            f"Reads the configuration and its secrets again, and connects {name} with them.",
            lambda hands: hands.connect(name),
        ),
    )


def _about_model(model: Mapping[str, Any]) -> Iterator[Finding]:
    if model.get("state") == "down":
        yield Finding(
            f"model-{model['name']}",
            "problem",
            f"The model {model['name']} does not answer: {model.get('error')}",
            "Look at its key, its address and its quota. Messages wait, and are answered when it is back; "
            "`fallbacks` name who answers meanwhile.",
        )
    if model.get("unthought"):
        yield Finding(
            f"thinking-{model['name']}",
            "warning",
            f"The model {model['name']} answers, but does not think as it is asked to: {model['unthought']}",
            "It is asked again an hour after the refusal. Set `thinking` of the model, and of its personalities, to "
            "what it takes, or leave it out.",
        )
