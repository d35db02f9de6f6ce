"""Each operation is stated once, in a service; the surfaces that offer it to people or programs only ask that service.

The table names, for each operation, the method that decides it and the functions that offer it. What this file reads is
the code: where a function neither reaches the method nor stays away from what lies below the services, a test fails.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pytest
import typer.main

from gateway.cli import app

ROOT = Path(__file__).parents[2]
GATEWAY = ROOT / "gateway"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation.

    Attributes:
        decides: the method that states it, `namespace.method`.
        through: methods of the same service that end in it; where there are some, the surfaces ask these.
        chat: a function below `services/commands/`; None where it is not offered there, as with all that follow.
        route: a function below `web/api/`.
        page: a function below `web/dashboard/pages/`.
        tool: a function below `web/mcp/`.
        sdk: a function below `sdk/`.
        command: the words behind `ethos`.
        asks: what the command asks of the client, where the SDK has a method for it besides `sdk`.
    """

    decides: str
    through: Sequence[str] = ()
    chat: str | None = None
    route: str | None = None
    page: str | None = None
    tool: str | None = None
    sdk: str | None = None
    command: str | None = None
    asks: str | None = None

    @property
    def asked(self) -> set[tuple[str, str]]:
        """Namespace and method of what a surface may ask."""
        return {(name.partition(".")[0], name.partition(".")[2]) for name in (self.decides, *self.through)}


OPERATIONS: Mapping[str, Operation] = {
    "list models": Operation(
        decides="models.listed",
        route="models.py:list_",
        page="models.py:show",
        sdk="language_models.py:Models.list",
        command="models list",
    ),
    "list what a server offers": Operation(
        decides="models.offered",
        route="models.py:offers",
        page="models.py:add",
        sdk="language_models.py:Models.offers",
        command="models add",
    ),
    "try a model": Operation(
        decides="models.tried",
        route="models.py:try_out",
        page="models.py:add",
        sdk="language_models.py:Models.try_out",
        command="models add",
    ),
    "test a model": Operation(
        decides="models.tested",
        route="models.py:test",
        page="models.py:test",
        sdk="language_models.py:Models.test",
        command="models test",
    ),
    "add a model": Operation(
        decides="models.added",
        route="models.py:add",
        page="models.py:add",
        sdk="language_models.py:Models.add",
        command="models add",
    ),
    "change a model": Operation(
        decides="models.changed",
        route="models.py:change",
        page="models.py:change",
        sdk="language_models.py:Models.change",
    ),
    "choose the default model": Operation(
        decides="models.used",
        route="models.py:use",
        page="models.py:use",
        sdk="language_models.py:Models.use",
        command="models use",
    ),
    "remove a model": Operation(
        decides="models.removed",
        route="models.py:remove",
        page="models.py:remove",
        sdk="language_models.py:Models.remove",
        command="models remove",
    ),
    "list backups": Operation(decides="backups.show", page="backups.py:show"),
    "make a backup": Operation(decides="backups.begin", page="backups.py:make"),
    "download a backup": Operation(decides="backups.find", page="backups.py:file"),
    "name the operator": Operation(decides="people.name_operator", page="setup.py:be"),
    "link the operator": Operation(decides="people.link_operator", page="setup.py:link"),
    "show the set-up": Operation(decides="setup.show", page="setup.py:show"),
    "skip a step of the set-up": Operation(decides="setup.skip", page="setup.py:skip"),
    "end the set-up": Operation(decides="setup.end", page="setup.py:end"),
    "show the time zone": Operation(decides="zones.show", chat="timezone.py:timezone_text"),
    "choose a time zone": Operation(decides="zones.choose", chat="timezone.py:timezone_text"),
    "show the memory": Operation(
        decides="memory.get",
        chat="memory.py:_show",
        route="memory.py:get",
        page="memory.py:_card",
        tool="tools.py:_read_memory",
        sdk="memory.py:Memory.get",
        command="memory show",
    ),
    "say what the memory can do": Operation(
        decides="memory.provider",
        chat="memory.py:memory_command",
        route="memory.py:provider",
        page="memory.py:show",
        sdk="memory.py:Memory.provider",
        command="memory provider",
    ),
    "search the memory": Operation(
        decides="memory.search",
        route="memory.py:search",
        sdk="memory.py:Memory.search",
        command="memory search",
    ),
    "find paragraphs of the memory": Operation(decides="memory.find", tool="tools.py:_search_memory"),
    "propose a change": Operation(decides="memory.propose", tool="tools.py:_propose_memory"),
    "write a document": Operation(
        decides="memory.write",
        route="memory.py:write",
        page="memory.py:save",
        sdk="memory.py:Memory.write",
        command="memory edit",
    ),
    "list changes": Operation(
        decides="memory.history",
        chat="memory.py:_log",
        route="memory.py:history",
        page="memory.py:history",
        sdk="memory.py:Memory.history",
        command="memory log",
    ),
    "say where a line comes from": Operation(
        decides="memory.why",
        chat="memory.py:_why",
        route="memory.py:why",
        sdk="memory.py:Memory.why",
        command="memory why",
    ),
    "undo a memory change": Operation(
        decides="memory._taken_back",
        through=("memory.undo", "memory.take_back"),
        chat="memory.py:_undo",
        route="memory.py:undo",
        page="memory.py:undo",
        sdk="memory.py:Memory.undo",
        command="memory undo",
    ),
    "list proposals": Operation(
        decides="memory.proposals",
        chat="memory.py:_proposals",
        route="memory.py:list_proposals",
        page="proposals.py:show",
        sdk="memory.py:Proposals.list",
        command="memory proposals list",
    ),
    "approve a proposal": Operation(
        decides="memory.approve",
        chat="memory.py:_approve",
        route="memory.py:approve_proposal",
        page="proposals.py:decide",
        tool="tools.py:_propose_memory",
        sdk="memory.py:Proposals.approve",
        command="memory proposals approve",
    ),
    "refuse a proposal": Operation(
        decides="memory.refuse",
        chat="memory.py:_refuse",
        route="memory.py:refuse_proposal",
        page="proposals.py:decide",
        sdk="memory.py:Proposals.refuse",
        command="memory proposals refuse",
    ),
    "edit a proposal": Operation(
        decides="memory.edit",
        chat="memory.py:_edit",
        route="memory.py:edit_proposal",
        page="proposals.py:decide",
        sdk="memory.py:Proposals.edit",
        command="memory proposals edit",
    ),
    "search sessions": Operation(
        decides="sessions._hits",
        through=("sessions.search",),
        route="sessions.py:list_",
        page="sessions.py:show",
        sdk="sessions.py:Sessions.list",
    ),
    "search messages": Operation(
        decides="sessions._hits",
        through=("sessions.passages",),
        chat="__init__.py:Commands._search",
        route="sessions.py:search",
        tool="tools.py:_search_sessions",
        sdk="sessions.py:Sessions.search",
        command="sessions search",
    ),
    "list sessions": Operation(decides="sessions.find", route="sessions.py:list_", tool="tools.py:_list_sessions"),
    "read a session": Operation(decides="sessions.transcript", route="sessions.py:get", tool="tools.py:_read_session"),
    "talk to the agent": Operation(decides="chat.send", route="chat.py:send", tool="chat.py:_chat"),
    "stop an answer": Operation(decides="chat.stop", route="chat.py:stop", tool="chat.py:_chat"),
    "send a message": Operation(decides="deliveries.send", tool="tools.py:_send_message"),
    "fork a session": Operation(
        decides="sessions.fork",
        route="sessions.py:fork",
        page="sessions.py:fork",
        sdk="sessions.py:Sessions.fork",
    ),
    "list personalities": Operation(
        decides="personalities.all",
        chat="__init__.py:Commands._personality",
        route="personalities.py:list_",
        page="personalities.py:show",
        sdk="personalities.py:Personalities.list",
        command="personalities list",
    ),
    "show usage": Operation(
        decides="system.usage",
        chat="__init__.py:Commands._usage",
        route="system.py:usage",
        sdk="system.py:System.usage",
        command="usage",
    ),
    "reload the configuration": Operation(
        decides="system.reload",
        route="system.py:reload",
        page="settings.py:reload",
        sdk="system.py:System.reload",
        command="reload",
    ),
    "list settings": Operation(
        decides="settings.listed",
        route="settings.py:list_",
        page="settings.py:show",
        sdk="settings.py:Settings.list",
        command="config get",
    ),
    "preview changes of settings": Operation(
        decides="settings.proposed",
        route="settings.py:propose",
        page="settings.py:change",
        sdk="settings.py:Settings.propose",
        command="config set",
    ),
    "change settings": Operation(
        decides="settings.saved",
        route="settings.py:save",
        page="settings.py:save",
        sdk="settings.py:Settings.save",
        command="config unset",
    ),
    "preview an undo of settings": Operation(
        decides="settings.proposed_undo",
        route="settings.py:propose_undo",
        page="settings.py:undo",
        sdk="settings.py:Settings.propose_undo",
        command="config diff",
    ),
    "undo a change of settings": Operation(
        decides="settings.undone",
        route="settings.py:undo",
        page="settings.py:undo",
        sdk="settings.py:Settings.undo",
        command="config undo",
    ),
    "restart the gateway": Operation(
        decides="settings.restarted",
        route="settings.py:restart",
        page="settings.py:restart",
        sdk="settings.py:Settings.restart",
        command="restart",
    ),
    "list workers": Operation(
        decides="system.workers",
        route="system.py:workers",
        sdk="system.py:System.workers",
        command="workers",
    ),
    "release a channel": Operation(
        decides="system.release",
        route="system.py:release",
        sdk="system.py:System.release",
        command="channels release",
    ),
    "show a person": Operation(
        decides="people.show",
        chat="__init__.py:Commands._whoami",
        route="people.py:get",
        page="people.py:person",
        sdk="people.py:People.get",
        command="people show",
    ),
    "list pairing requests": Operation(
        decides="pairing.waiting",
        chat="pairing.py:_list",
        route="people.py:list_pairing",
        page="people.py:show",
        sdk="people.py:Pairing.list",
        command="people pairing list",
    ),
    "let a stranger in": Operation(
        decides="pairing.decision",
        through=("pairing.approve",),
        chat="pairing.py:_let_in",
        route="people.py:approve",
        page="people.py:decide",
        sdk="people.py:Pairing.approve",
        command="people pairing approve",
    ),
    "refuse a stranger": Operation(
        decides="pairing.decision",
        through=("pairing.refuse",),
        chat="pairing.py:pair_command",
        route="people.py:refuse",
        page="people.py:decide",
        sdk="people.py:Pairing.refuse",
        command="people pairing refuse",
    ),
    "give a role": Operation(
        decides="people.rank_change",
        through=("people.set_role",),
        route="people.py:set_role",
        page="people.py:set_role",
        sdk="people.py:People.set_role",
        command="people role",
    ),
    "revoke access": Operation(
        decides="people.rank_change",
        through=("people.revoke",),
        chat="pairing.py:_revoke",
        route="people.py:revoke",
        page="people.py:revoke",
        sdk="people.py:People.revoke",
        command="people revoke",
    ),
    "link two people": Operation(
        decides="people.link",
        route="people.py:link",
        page="people.py:link",
        sdk="people.py:People.link",
        command="people link",
    ),
    "end a link": Operation(
        decides="people.unlink",
        route="people.py:unlink",
        page="people.py:unlink",
        sdk="people.py:People.unlink",
        command="people unlink",
    ),
    "export the identity map": Operation(
        decides="identity_map.export",
        route="people.py:export_map",
        sdk="people.py:People.export_map",
        command="people export-map",
    ),
    "import an identity map": Operation(
        decides="identity_map.take_in",
        route="people.py:import_map",
        sdk="people.py:People.import_map",
        command="people import-map",
    ),
    "export a person's data": Operation(
        decides="personal._written",
        through=("personal.export", "personal.export_to"),
        chat="__init__.py:Commands._export",
        route="people.py:export",
        page="people.py:export",
        sdk="people.py:People.export",
        asks="people.export_file",
        command="people export",
    ),
    "choose when answers are said aloud": Operation(decides="personal.choose_voice", chat="personal.py:voice_text"),
    "erase a person": Operation(
        decides="personal.schedule_erasure",
        through=("personal.erase",),
        chat="personal.py:ForgetMe.run",
        route="people.py:erase",
        page="people.py:erase",
        sdk="people.py:People.erase",
        command="people erase",
    ),
    "search traces": Operation(
        decides="traces.search",
        route="traces.py:search",
        page="traces.py:show",
        sdk="traces.py:Traces.search",
    ),
    "recall traces": Operation(
        decides="traces.recall",
        route="traces.py:recall",
        tool="tools.py:_search_memory",
        sdk="traces.py:Traces.recall",
        command="traces search",
    ),
    "list files": Operation(
        decides="files.list",
        route="files.py:list_",
        sdk="files.py:Files.list",
        command="files pull",
    ),
    "read a file": Operation(
        decides="files.get",
        route="files.py:get",
        sdk="files.py:Files.get",
        command="files pull",
    ),
    "watch files": Operation(
        decides="files.revision",
        route="files.py:revision",
        sdk="files.py:Files.revision",
        command="files pull",
    ),
    "put a file": Operation(
        decides="files.put",
        route="files.py:put",
        sdk="files.py:Files.put",
        command="files push",
    ),
    "list deliveries": Operation(
        decides="deliveries.list",
        route="deliveries.py:list_",
        page="deliveries.py:show",
        sdk="deliveries.py:Deliveries.list",
        command="deliveries list",
    ),
    "retry a delivery": Operation(
        decides="deliveries.retry",
        route="deliveries.py:retry",
        page="deliveries.py:change",
        sdk="deliveries.py:Deliveries.retry",
        command="deliveries retry",
    ),
    "drop a delivery": Operation(
        decides="deliveries.drop",
        route="deliveries.py:drop",
        page="deliveries.py:change",
        sdk="deliveries.py:Deliveries.drop",
        command="deliveries drop",
    ),
    "list servers of tools": Operation(
        decides="mcp.listed",
        route="mcp.py:list_",
        page="servers.py:show",
        sdk="mcp.py:Mcp.list",
        command="mcp",
    ),
    "try a server of tools": Operation(
        decides="mcp.tested",
        route="mcp.py:test",
        page="servers.py:test",
        sdk="mcp.py:Mcp.test",
        command="mcp test",
    ),
    "accept tools of a server": Operation(
        decides="mcp.accepted",
        route="mcp.py:accept",
        page="servers.py:accept",
        sdk="mcp.py:Mcp.accept",
        command="mcp accept",
    ),
    "sign in to a server of tools": Operation(
        decides="mcp.login",
        route="mcp.py:login",
        sdk="mcp.py:Mcp.login",
        command="mcp login",
    ),
    "sign out of a server of tools": Operation(
        decides="mcp.logout",
        route="mcp.py:logout",
        page="servers.py:logout",
        sdk="mcp.py:Mcp.logout",
        command="mcp logout",
    ),
    "add a server of tools": Operation(
        decides="mcp.added",
        route="mcp.py:add",
        page="servers.py:add",
        sdk="mcp.py:Mcp.add",
        command="mcp add",
    ),
    "remove a server of tools": Operation(
        decides="mcp.removed",
        route="mcp.py:remove",
        page="servers.py:remove",
        sdk="mcp.py:Mcp.remove",
        command="mcp remove",
    ),
    "list kinds of channels": Operation(
        decides="channels.kinds",
        route="channels.py:kinds",
        page="channels.py:choose",
        sdk="channels.py:Channels.kinds",
        command="channels kinds",
    ),
    "show a kind of channel": Operation(
        decides="channels.kind",
        route="channels.py:kind",
        page="channels.py:new",
        sdk="channels.py:Channels.kind",
    ),
    "list configured channels": Operation(
        decides="channels.listed",
        route="channels.py:list_",
        page="channels.py:show",
        sdk="channels.py:Channels.list",
        command="channels list",
    ),
    "show a configured channel": Operation(
        decides="channels.get",
        route="channels.py:get",
        page="channels.py:_with_kind",
        sdk="channels.py:Channels.get",
    ),
    "try a login of a channel": Operation(
        decides="channels.tried",
        route="channels.py:try_login",
        page="channels.py:taken",
        sdk="channels.py:Channels.try_login",
    ),
    "test a channel": Operation(
        decides="channels.tested",
        route="channels.py:test",
        page="channels.py:test",
        sdk="channels.py:Channels.test",
        command="channels test",
    ),
    "add a channel": Operation(
        decides="channels.added",
        route="channels.py:add",
        page="channels.py:taken",
        sdk="channels.py:Channels.add",
        command="channels add",
    ),
    "change a channel": Operation(
        decides="channels.changed",
        route="channels.py:change",
        page="channels.py:change",
        sdk="channels.py:Channels.change",
    ),
    "pause a channel": Operation(
        decides="channels.paused",
        route="channels.py:pause",
        page="channels.py:pause",
        sdk="channels.py:Channels.pause",
        command="channels pause",
    ),
    "resume a channel": Operation(
        decides="channels.resumed",
        route="channels.py:resume",
        page="channels.py:resume",
        sdk="channels.py:Channels.resume",
        command="channels resume",
    ),
    "remove a channel": Operation(
        decides="channels.removed",
        route="channels.py:remove",
        page="channels.py:remove",
        sdk="channels.py:Channels.remove",
        command="channels remove",
    ),
    "list skills": Operation(
        decides="skills.listed",
        route="skills.py:list_",
        page="skills.py:show",
        sdk="skills.py:Skills.list",
        command="skills",
    ),
    "show a skill": Operation(
        decides="skills.shown",
        route="skills.py:get",
        page="skills.py:one",
        sdk="skills.py:Skills.get",
        command="skills show",
    ),
    "add a skill": Operation(
        decides="skills.added",
        route="skills.py:add",
        page="skills.py:add",
        sdk="skills.py:Skills.add",
        command="skills add",
    ),
    "trust a skill": Operation(
        decides="skills.trusted",
        route="skills.py:trust",
        page="skills.py:trust",
        sdk="skills.py:Skills.trust",
        command="skills trust",
    ),
    "remove a skill": Operation(
        decides="skills.removed",
        route="skills.py:remove",
        page="skills.py:remove",
        sdk="skills.py:Skills.remove",
        command="skills remove",
    ),
    "load a skill": Operation(decides="skills.loaded", chat="skills.py:skill_command"),
    "list the skills of a personality": Operation(decides="skills.usable", chat="skills.py:_listed"),
    "list hooks": Operation(
        decides="hooks.listed",
        route="hooks.py:list_",
        sdk="hooks.py:Hooks.list",
        command="hooks",
    ),
    "try a hook": Operation(
        decides="hooks.called",
        route="hooks.py:call",
        sdk="hooks.py:Hooks.call",
        command="hooks call",
    ),
    "list schedules": Operation(
        decides="schedules.listed",
        chat="schedules.py:schedules_command",
        route="schedules.py:list_",
        page="schedules.py:show",
        tool="tools.py:_list_schedules",
        sdk="schedules.py:Schedules.list",
        command="schedules list",
    ),
    "show a schedule": Operation(
        decides="schedules.shown",
        chat="schedules.py:schedules_command",
        route="schedules.py:get",
        page="schedules.py:_schedule",
        sdk="schedules.py:Schedules.get",
        command="schedules show",
    ),
    "list occurrences of a schedule": Operation(
        decides="schedules.history",
        chat="schedules.py:schedules_command",
        route="schedules.py:history",
        page="schedules.py:one",
        sdk="schedules.py:Schedules.history",
        command="schedules show",
    ),
    "make a schedule": Operation(
        decides="schedules.created",
        route="schedules.py:create",
        page="schedules.py:create",
        tool="tools.py:_create_schedule",
        sdk="schedules.py:Schedules.create",
        command="schedules add",
    ),
    "change a schedule": Operation(
        decides="schedules.changed",
        route="schedules.py:change",
        page="schedules.py:change",
        sdk="schedules.py:Schedules.change",
        command="schedules change",
    ),
    "pause a schedule": Operation(
        decides="schedules.paused",
        chat="schedules.py:schedules_command",
        route="schedules.py:pause",
        page="schedules.py:pause",
        sdk="schedules.py:Schedules.pause",
        command="schedules pause",
    ),
    "resume a schedule": Operation(
        decides="schedules.resumed",
        chat="schedules.py:schedules_command",
        route="schedules.py:resume",
        page="schedules.py:resume",
        sdk="schedules.py:Schedules.resume",
        command="schedules resume",
    ),
    "run a schedule now": Operation(
        decides="schedules.ran",
        chat="schedules.py:schedules_command",
        route="schedules.py:run",
        page="schedules.py:run",
        sdk="schedules.py:Schedules.run",
        command="schedules run",
    ),
    "remove a schedule": Operation(
        decides="schedules.removed",
        chat="schedules.py:schedules_command",
        route="schedules.py:remove",
        page="schedules.py:remove",
        sdk="schedules.py:Schedules.remove",
        command="schedules remove",
    ),
}

SURFACES = {"chat": "services/commands", "route": "web/api", "page": "web/dashboard/pages", "tool": "web/mcp"}
# What no surface imports, or takes from another object: stores, files, the identity map, the queues.
BELOW = re.compile(
    r"gateway\.(store|ops|app|cli\.data|memory\.(markdown|writer|history|journal|sync|linked_notes)|people\.identity"
    r"|people\.(access|access_records|pairing|operators)|pipeline\.(inbox|outbox|dispatcher|queues|admission)"
    r"|traces\.(trace_store|memory|search|consolidation|transfer))\b"
)
PARTS = re.compile(r"_?(identities|memory_provider|journal|database|dispatcher|trace_store|pairing_store|review)")
# Compares two texts, and knows no file; nor does a constant.
PURE = re.compile("difference|[A-Z_]+")
# What puts a gateway together, and is asked by every command that asks the SDK.
DOORS = {"connected"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Source:
    """One file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tree = ast.parse(path.read_text(encoding="utf-8"))

    @cached_property
    def functions(self) -> Mapping[str, Function]:
        """Those of the file by name, methods as `Class.method` and by their name alone."""
        found: dict[str, Function] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ClassDef):
                found |= {f"{node.name}.{one.name}": one for one in node.body if isinstance(one, Function)}
        return {node.name: node for node in ast.walk(self.tree) if isinstance(node, Function)} | found

    @cached_property
    def imported(self) -> Mapping[str, str]:
        """Every name that it imports, at its top or in a function, with the module that it is from."""
        return {
            alias.asname or alias.name: f"{node.module}.{alias.name}" if is_module(node, alias) else str(node.module)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }

    @cached_property
    def namespaces(self) -> Mapping[str, str]:
        """What a service is called here: from an assignment, or from the class of a field or parameter."""
        found = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute):
                found |= {last_name(target): node.value.attr for target in node.targets if last_name(target)}
            annotation = getattr(node, "annotation", None)
            if isinstance(node, ast.AnnAssign | ast.arg) and annotation is not None:
                name = node.arg if isinstance(node, ast.arg) else last_name(node.target)
                found[name] = services().get(ast.unparse(annotation), name)
        return found


@cache
def services() -> Mapping[str, str]:
    """The namespace of each service, by its class."""
    tree = ast.parse((GATEWAY / "services" / "operator_services.py").read_text(encoding="utf-8"))
    fields = [node for node in ast.walk(tree) if isinstance(node, ast.AnnAssign)]
    return {ast.unparse(one.annotation): last_name(one.target) for one in fields}


def is_module(node: ast.ImportFrom, alias: ast.alias) -> bool:
    return (ROOT / str(node.module).replace(".", "/") / f"{alias.name}.py").is_file()


def last_name(node: ast.expr) -> str:
    """`c` of `a.b.c`."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


@cache
def source(path: Path) -> Source:
    return Source(path)


def reached(path: Path, name: str, within: Path) -> Iterator[tuple[Source, Function]]:
    """A function, and those of its surface that it calls, directly or through others."""
    waiting, seen = [(path, name)], set()
    while waiting:
        at, called = waiting.pop()
        here = source(at)
        if (at, called) in seen or called in DOORS:
            continue
        seen.add((at, called))
        if called not in here.functions:
            module = here.imported.get(called, "").replace(".", "/")
            files = [file for file in (ROOT / f"{module}.py", ROOT / module / "__init__.py") if file.is_file()]
            inside = [file for file in files if file.is_relative_to(within)]
            waiting += [(file, called) for file in inside if called in source(file).functions]
            continue
        function = here.functions[called]
        yield here, function
        waiting += [(at, last_name(node)) for node in body(function) if is_own(node)]


def is_own(node: ast.AST) -> bool:
    """Whether it may name a function of the file: alone, or behind `self`."""
    return isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and last_name(node.value) == "self")


def body(function: Function) -> Iterator[ast.AST]:
    """What a function does, without its annotations."""
    for statement in function.body:
        yield from ast.walk(statement)


def asks(found: Sequence[tuple[Source, Function]], wanted: set[tuple[str, str]]) -> bool:
    """Whether one of the functions names one of these methods, on something that is called by its namespace."""
    for here, function in found:
        for node in body(function):
            if isinstance(node, ast.Attribute):
                owner = last_name(node.value)
                named = here.namespaces.get(owner, owner).removeprefix("_")
                if (named, node.attr) in wanted:
                    return True
    return False


def below(found: Sequence[tuple[Source, Function]]) -> set[str]:
    """What the functions name that lies below the services."""
    names = set()
    for here, function in found:
        for node in body(function):
            if (
                isinstance(node, ast.Name)
                and not PURE.fullmatch(node.id)
                and BELOW.match(here.imported.get(node.id, ""))
            ):
                names.add(node.id)
            if isinstance(node, ast.Attribute) and PARTS.fullmatch(node.attr):
                names.add(ast.unparse(node))
    return names


def offered(surface: str) -> list[Any]:
    return [
        pytest.param(operation, getattr(operation, surface), id=name)
        for name, operation in OPERATIONS.items()
        if getattr(operation, surface) is not None
    ]


def check(path: Path, function: str, within: Path, wanted: set[tuple[str, str]]) -> None:
    assert function in source(path).functions, f"{path.name} has no {function}"
    found = list(reached(path, function, within))
    assert asks(found, wanted), f"{function} asks none of {sorted(wanted)}"
    assert below(found) == set()


@pytest.mark.parametrize(("operation", "where"), offered("chat"))
def test_a_chat_command_asks_the_service(operation: Operation, where: str) -> None:
    check_surface("chat", operation, where)


@pytest.mark.parametrize(("operation", "where"), offered("route"))
def test_a_route_asks_the_service(operation: Operation, where: str) -> None:
    check_surface("route", operation, where)


@pytest.mark.parametrize(("operation", "where"), offered("page"))
def test_a_page_asks_the_service(operation: Operation, where: str) -> None:
    check_surface("page", operation, where)


@pytest.mark.parametrize(("operation", "where"), offered("tool"))
def test_a_tool_for_other_programs_asks_the_service(operation: Operation, where: str) -> None:
    check_surface("tool", operation, where)


def check_surface(surface: str, operation: Operation, where: str) -> None:
    file, _, function = where.partition(":")
    folder = GATEWAY / SURFACES[surface]
    check(folder / file, function, folder, operation.asked)


# ---- the command line asks the SDK, and the SDK the route -----------------------------------------------------------


@pytest.mark.parametrize(("operation", "words"), offered("command"))
def test_a_command_asks_the_sdk(operation: Operation, words: str) -> None:
    assert operation.sdk is not None, "a command asks the SDK, so the SDK has the operation"
    callback = commands()[words]
    path = Path(inspect.getsourcefile(callback) or "")
    asked = operation.asks or operation.sdk.partition(":")[2].lower()
    namespace, _, method = asked.partition(".")
    check(path, callback.__name__, GATEWAY / "cli", {(namespace, method)})


@cache
def commands() -> Mapping[str, Callable[..., Any]]:
    """The function behind each command, by the words that are typed."""

    def inner(group: Any, words: tuple[str, ...]) -> Iterator[tuple[str, Callable[..., Any]]]:
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                yield from inner(command, (*words, name))
            if not hasattr(command, "commands") or command.invoke_without_command:
                yield " ".join((*words, name)), inspect.unwrap(command.callback)

    return dict(inner(typer.main.get_command(app), ()))


@pytest.mark.parametrize(("operation", "where"), offered("sdk"))
def test_the_sdk_asks_the_route(operation: Operation, where: str) -> None:
    file, _, function = where.partition(":")
    assert operation.route is not None, "the SDK sends a request, so there is a route"
    route_file, _, route = operation.route.partition(":")
    here, there = source(GATEWAY / "sdk" / file), source(GATEWAY / "web" / "api" / route_file)
    assert request_of(here, here.functions[function]) == address_of(there, there.functions[route])


def request_of(here: Source, function: Function) -> tuple[str, str]:
    """Method and path of the request that a method of the SDK sends."""
    texts = [
        text
        for node in body(function)
        if isinstance(node, ast.Call)
        for argument in node.args[:2]
        if (text := written(here, argument)) is not None
    ]
    path = next(text for text in texts if text.startswith("/"))
    return next((text for text in texts if text in METHODS), "GET"), unnamed(path)


METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


def written(here: Source, node: ast.expr) -> str | None:
    """A text that stands in the code, with the constants of its module filled in."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Name(id=name):
            for statement in here.tree.body:
                if isinstance(statement, ast.Assign) and last_name(statement.targets[0]) == name:
                    return written(here, statement.value)
        case ast.JoinedStr(values=parts):
            texts = [written(here, part.value if isinstance(part, ast.FormattedValue) else part) for part in parts]
            return None if None in texts else "".join(map(str, texts))
    return None


def address_of(there: Source, function: Function) -> tuple[str, str]:
    """Method and path of a route."""
    prefix = next(
        keyword.value.value
        for node in ast.walk(there.tree)
        if isinstance(node, ast.Call) and last_name(node.func) == "APIRouter"
        for keyword in node.keywords
        if keyword.arg == "prefix" and isinstance(keyword.value, ast.Constant)
    )
    [decorator] = [one for one in function.decorator_list if isinstance(one, ast.Call)]
    path = written(there, decorator.args[0])
    return last_name(decorator.func).upper(), unnamed(f"{prefix}{path}")


def unnamed(path: str) -> str:
    return re.sub(r"\{\w+\}", "{}", path)


# ---- the services ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_method_of_a_service_that_is_asked_ends_in_the_one_that_decides(name: str) -> None:
    operation = OPERATIONS[name]
    namespace, _, decides = operation.decides.partition(".")
    path = GATEWAY / "services" / f"{namespace}.py"
    assert decides in source(path).functions
    for asked in operation.through:
        found = list(reached(path, asked.partition(".")[2], GATEWAY / "services"))
        assert decides in {function.name for _, function in found}, f"{asked} does not end in {decides}"


def test_a_function_that_goes_below_the_services_is_found(tmp_path: Path) -> None:
    file = tmp_path / "surface.py"
    file.write_text(
        "from gateway.store.stores import open_store\n"
        "async def asks(caller, services): return await helper(caller, services)\n"
        "async def helper(caller, services): return await services.memory.undo(caller, 1)\n"
        "async def goes_round(home):\n    async with open_store(home) as store: return await store.journal.undo(1)\n"
    )
    wanted = {("memory", "undo")}
    check(file, "asks", tmp_path, wanted)
    round_it = list(reached(file, "goes_round", tmp_path))
    assert below(round_it) == {"open_store", "store.journal"}
    assert not asks(round_it, wanted)
