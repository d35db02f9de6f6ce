"""The checks of `ethos doctor`, in the order of the report; those of access and of the running gateway stand here."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gateway.cli import (
    doctor_configuration,
    doctor_files,
    doctor_memory,
    doctor_server,
    doctor_skills,
    doctor_speech,
    doctor_stores,
    doctor_tools,
    doctor_web,
)
from gateway.cli.data import opened_store
from gateway.cli.finding import Check, Finding, Ground
from gateway.cli.process import HealthUnknown
from gateway.config import Config
from gateway.config.channel_kinds import load_kind
from gateway.config.file import load_config
from gateway.config.unattended import OWNER
from gateway.errors import ConfigError, EthosError
from gateway.files.home import data_directory
from gateway.files.running_gateway import running_gateway
from gateway.files.unix_socket import SOCKET_NAME
from gateway.runtime.logs import hiding, secrets_in


async def access(ground: Ground) -> AsyncIterator[Finding]:
    """Who owns the gateway where others can reach it, and who waits; `config check` warns of what is open to all."""
    if ground.config is None:
        return
    reachable = _reachable(ground.config)
    if not reachable:
        return
    async with opened_store(ground.home) as store:
        snapshot = None if store is None else await store.people.snapshot()
        requests = [] if store is None else await store.people.requests()
    if snapshot is None or "owner" not in snapshot.ranks.values():
        yield Finding(
            "warning",
            f"There is no owner on {', '.join(reachable)} yet, so requests to talk wait there.",
            "`ethos people owner-code` makes a code; send it to the agent there.",
        )
    waiting = [request for request in requests if request.state == "waiting"]
    if waiting:
        yield Finding("note", f"{len(waiting)} asked to be let in; `ethos people pairing list` shows them.")


async def told_alone(ground: Ground) -> AsyncIterator[Finding]:
    """Whom hooks and the heartbeat tell has written to the agent, so that it knows where."""
    config = ground.config
    if config is None:
        return
    wanted = {f"the hook {name}": hook.to for name, hook in config.hooks.items()}
    wanted |= {} if config.heartbeat.every is None else {"the heartbeat": config.heartbeat.to}
    if not wanted:
        return
    async with opened_store(ground.home) as store:
        has_owner = store is not None and bool((await store.people.snapshot()).chats)
        for what, to in wanted.items():
            channel, _, sender = to.partition(":")
            is_known = has_owner
            if to != OWNER:
                is_known = store is not None and await store.links.direct_conversation([channel], sender) is not None
            if not is_known:
                who = "no owner has" if to == OWNER else f"{to} has not"
                advice = "They must write to it once, in a direct chat."
                yield Finding("warning", f"{what} tells nobody: {who} written to the agent yet.", advice)


def _reachable(config: Config) -> list[str]:
    """The channels that others than the operator can reach."""
    return [
        name
        for name, channel in config.channels.items()
        if channel.enabled and load_kind(channel.kind).access_default != "open"
    ]


# Every connection, file and database takes a descriptor.
FEW_FILES = 1024
_MOST_USED = 0.8

_REFUSED = "Give it a key that is valid, and restart the gateway."
_HALF = "It works, but for that. The page of the channel says more."
_TRYING = "The gateway goes on trying; see its log if this lasts."


def running(ground: Ground) -> Iterator[Finding]:
    """What the running gateway says is wrong."""
    if ground.process is None:
        yield Finding("note", "No gateway runs on it.")
        return
    if ground.process.started_at is None:
        yield Finding(
            "warning",
            f"The process {ground.process.pid} holds the data directory and has not said that it serves.",
            "It may be just starting. If this lasts, it hangs, or is no gateway: look at it with "
            f"`ps -p {ground.process.pid}`, and end it.",
        )
        return
    yield Finding("note", f"A gateway runs on it: process {ground.process.pid}.")
    yield from _about_files(ground.process.pid)
    path = ground.home / SOCKET_NAME
    if not path.is_socket():
        yield Finding(
            "problem",
            f"{path} is not there, so neither commands nor `ethos chat` reach the running gateway.",
            "Restart the gateway: it makes the socket when it starts.",
        )
        return
    health = ground.health
    if isinstance(health, HealthUnknown):
        yield Finding("problem", f"The gateway does not say how it is: {health}.", "Restart it.")
        return
    yield from _about_store(health)
    for channel in health.get("channels", []):
        if channel.get("error"):
            yield _about_channel(channel)
    for model in health.get("models", []):
        yield from _about_model(model)
    if late := health.get("memory_late"):
        yield Finding(
            "warning",
            f"The memory updates of {late} turn{'' if late == 1 else 's'} could not be written yet.",
            "They are kept and tried again; see the log for the reason (a lock that is held, a full disk).",
        )


def told_by_gateway(ground: Ground) -> Iterator[Finding]:
    """What else the running gateway says, such as of a configuration that it did not take over."""
    if ground.process is None or ground.process.started_at is None:
        return
    health = ground.health
    if isinstance(health, HealthUnknown):  # `running` says so
        return
    details = [one.get("error") for one in (*health.get("channels", []), *health.get("models", []))]
    for line in health.get("problems", []):
        if not any(detail and detail in line for detail in details):
            yield Finding(level="warning", what=line, advice="The running gateway says so; its log says more.")


def _about_store(health: Mapping[str, Any]) -> Iterator[Finding]:
    if health.get("store_problem"):
        yield Finding(
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
        "warning",
        f"The gateway has {used} files and connections open, and may have {most}.",
        f"At the limit it takes no more connections. Raise it: `LimitNOFILE={4 * FEW_FILES}` in the unit of the "
        f"service, or `ulimit -n {4 * FEW_FILES}` in the shell that starts it.",
    )


def _about_channel(channel: Mapping[str, Any]) -> Finding:
    state = channel.get("state")
    return Finding(
        "problem" if state in ("down", "auth_failed") else "warning",
        f"The channel {channel['name']} is {state}: {channel['error']}",
        _REFUSED if state == "auth_failed" else _HALF if state == "up" else _TRYING,
    )


def _about_model(model: Mapping[str, Any]) -> Iterator[Finding]:
    if model.get("state") == "down":
        yield Finding(
            "problem",
            f"The model {model['name']} does not answer: {model.get('error')}",
            "Look at its key, its address and its quota. Messages wait, and are answered when it is back; "
            "`fallbacks` name who answers meanwhile.",
        )
    if model.get("unthought"):
        yield Finding(
            "warning",
            f"The model {model['name']} answers, but does not think as it is asked to: {model['unthought']}",
            "It is asked again an hour after the refusal. Set `thinking` of the model, and of its personalities, to "
            "what it takes, or leave it out.",
        )


CHECKS: Sequence[Check] = (
    doctor_configuration.versions,
    doctor_configuration.configuration,
    doctor_configuration.personalities,
    doctor_configuration.models,
    doctor_configuration.answers,
    doctor_configuration.embeddings,
    doctor_tools.packages,
    doctor_tools.sandbox,
    doctor_skills.skills,
    doctor_configuration.telemetry,
    doctor_web.web,
    doctor_speech.speech,
    doctor_files.data_directory_exists,
    doctor_files.modes,
    doctor_files.out_of_reach,
    doctor_files.file_system,
    doctor_files.disk_space,
    doctor_files.web_token,
    doctor_files.left_by_a_dead_gateway,
    doctor_files.port,
    running,
    doctor_server.server,
    doctor_tools.workspaces,
    doctor_stores.database,
    doctor_stores.queues,
    doctor_memory.memory,
    doctor_stores.memory_journal,
    doctor_stores.shared_memory,
    doctor_stores.identity_map,
    access,
    told_alone,
    doctor_stores.clock,
    doctor_stores.backups,
)


async def examine(*, asks_models: bool = False) -> list[Finding]:
    """Run all checks on the data directory, and call the models if wished."""
    home = data_directory()
    if home.is_dir() and not os.access(home, os.R_OK | os.W_OK | os.X_OK):
        return [Finding("problem", f"You may not use {home}.", "Run ethos as the user who owns it.")]
    try:
        config = load_config(home=home).config
    except ConfigError:
        config = None
    ground = Ground(home=home, config=config, process=running_gateway(home), asks_models=asks_models)
    findings: list[Finding] = []
    for check in CHECKS:
        found = check(ground)
        try:
            findings += [finding async for finding in found] if isinstance(found, AsyncIterator) else list(found)
        except (EthosError, OSError) as error:  # what one check is there to find can be in the way of another
            unexpected = Finding("problem", str(error), "Fix this, then run the doctor again.")
            if not any(unexpected.what.startswith(finding.what.rstrip(".")) for finding in findings):
                findings.append(unexpected)
    told = "\n".join(finding.what for finding in findings).casefold()
    findings += [finding for finding in told_by_gateway(ground) if finding.what.casefold() not in told]
    hide = hiding(secrets_in(config))  # an error may quote what a library said, and with it a secret
    return [replace(finding, what=hide(finding.what)) for finding in findings]
