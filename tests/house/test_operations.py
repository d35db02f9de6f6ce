"""Each operation is stated once, in a service; whoever offers it to people or programs only asks that service.

The table names, for each operation, the method that decides it and the functions that offer it. What this file reads is
the code: where a function neither reaches the method nor stays away from what lies below the services, a test fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
GATEWAY = ROOT / "gateway"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation.

    Attributes:
        decides: the method that states it, `namespace.method`.
        through: methods of the same service that end in it, which a surface may ask as well.
        chat: a function below `commands/`.
        route: a function below `web/api/`.
        page: a function below `web/dashboard/pages/`.
        sdk: a class and a method below `sdk/`.
        command: the words behind `ethos`.
        asks: what the command asks of the SDK's client, where it is not called as the SDK's method.
    """

    decides: str
    through: Sequence[str] = ()
    chat: str | None = None
    route: str | None = None
    page: str | None = None
    sdk: str | None = None
    command: str | None = None
    asks: Sequence[str] = ()


OPERATIONS: Mapping[str, Operation] = {
    "show the memory": Operation(
        decides="memory.get",
        chat="memory.py:_show",
        route="memory.py:get",
        page="memory/documents.py:MemoryPage._card",
        sdk="memory.py:Memory.get",
        command="memory show",
    ),
    "write a document": Operation(
        decides="memory.write",
        route="memory.py:write",
        page="memory/documents.py:MemoryEditing.save",
        sdk="memory.py:Memory.write",
        command="memory edit",
    ),
    "list changes": Operation(
        decides="memory.history",
        chat="memory.py:_log",
        route="memory.py:history",
        page="memory/documents.py:MemoryChanges.show",
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
        decides="memory.take_back",
        through=("memory.undo",),
        chat="memory.py:_undo",
        route="memory.py:undo",
        page="memory/documents.py:MemoryChanges.undo",
        sdk="memory.py:Memory.undo",
        command="memory undo",
    ),
    "list proposals": Operation(
        decides="memory.proposals",
        chat="memory.py:_proposals",
        route="memory.py:proposals",
        page="memory/proposals.py:MemoryProposals.show",
        sdk="memory.py:Proposals.list",
        command="memory proposals list",
    ),
    "approve a proposal": Operation(
        decides="memory.approve",
        chat="memory.py:_approve",
        route="memory.py:approve_proposal",
        page="memory/proposals.py:MemoryProposals.decide",
        sdk="memory.py:Proposals.approve",
        command="memory proposals approve",
    ),
    "refuse a proposal": Operation(
        decides="memory.refuse",
        chat="memory.py:_refuse",
        route="memory.py:refuse_proposal",
        page="memory/proposals.py:MemoryProposals.decide",
        sdk="memory.py:Proposals.refuse",
        command="memory proposals refuse",
    ),
    "edit a proposal": Operation(
        decides="memory.edit",
        chat="memory.py:_edit",
        route="memory.py:edit_proposal",
        page="memory/proposals.py:MemoryProposals.decide",
        sdk="memory.py:Proposals.edit",
        command="memory proposals edit",
    ),
    "search sessions": Operation(
        decides="sessions.search",
        through=("sessions.passages",),
        chat="__init__.py:Commands._search",
        route="sessions.py:list_",
        page="sessions.py:Sessions.show",
        sdk="sessions.py:Sessions.list",
        command="sessions search",
    ),
    "fork a session": Operation(
        decides="sessions.fork",
        route="sessions.py:fork",
        page="sessions.py:Sessions.fork",
        sdk="sessions.py:Sessions.fork",
    ),
    "list personalities": Operation(
        decides="personalities.all",
        chat="__init__.py:Commands._personality",
        route="personalities.py:list_",
        page="personalities.py:PersonalitiesPage.show",
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
    "show a person": Operation(
        decides="people.show",
        chat="__init__.py:Commands._whoami",
        route="people.py:get",
        page="people.py:People.person",
        sdk="people.py:People.get",
        command="people show",
    ),
    "list pairing requests": Operation(
        decides="pairing.waiting",
        chat="pairing.py:_list",
        route="people.py:list_pairing",
        page="people.py:People.show",
        sdk="people.py:Pairing.list",
        command="people pairing list",
    ),
    "let a stranger in": Operation(
        decides="pairing.decision",
        through=("pairing.approve",),
        chat="pairing.py:_let_in",
        route="people.py:approve",
        page="people.py:People.decide",
        sdk="people.py:Pairing.approve",
        command="people pairing approve",
    ),
    "refuse a stranger": Operation(
        decides="pairing.decision",
        through=("pairing.refuse",),
        chat="pairing.py:pair_command",
        route="people.py:refuse",
        page="people.py:People.decide",
        sdk="people.py:Pairing.refuse",
        command="people pairing refuse",
    ),
    "give a role": Operation(
        decides="people.rank_change",
        through=("people.set_role",),
        route="people.py:set_role",
        page="people.py:People.set_role",
        sdk="people.py:People.set_role",
        command="people role",
    ),
    "revoke access": Operation(
        decides="people.rank_change",
        through=("people.revoke",),
        chat="pairing.py:_revoke",
        route="people.py:revoke",
        page="people.py:People.revoke",
        sdk="people.py:People.revoke",
        command="people revoke",
    ),
    "link two people": Operation(
        decides="people.link",
        route="people.py:link",
        page="people.py:People.link",
        sdk="people.py:People.link",
        command="people link",
    ),
    "end a link": Operation(
        decides="people.unlink",
        route="people.py:unlink",
        page="people.py:People.unlink",
        sdk="people.py:People.unlink",
        command="people unlink",
    ),
    "export a person's data": Operation(
        decides="personal.export",
        through=("personal.export_to",),
        chat="__init__.py:Commands._export",
        route="people.py:export",
        page="people.py:People.export",
        sdk="people.py:People.export",
        command="people export",
    ),
    "erase a person": Operation(
        decides="personal.schedule_erasure",
        through=("personal.erase",),
        chat="personal.py:ForgetMe.run",
        route="people.py:erase",
        page="people.py:People.erase",
        sdk="people.py:People.erase",
        command="people erase",
    ),
    "search traces": Operation(
        decides="traces.search",
        route="traces.py:search",
        page="traces/looking.py:TraceViews.list",
        sdk="traces.py:Traces.search",
        command="traces search",
    ),
    "list deliveries": Operation(
        decides="deliveries.list",
        route="deliveries.py:list_",
        page="deliveries.py:Deliveries.show",
        sdk="deliveries.py:Deliveries.list",
        command="deliveries list",
    ),
    "retry a delivery": Operation(
        decides="deliveries.retry",
        route="deliveries.py:retry",
        page="deliveries.py:Deliveries.change",
        sdk="deliveries.py:Deliveries.retry",
        command="deliveries retry",
    ),
    "drop a delivery": Operation(
        decides="deliveries.drop",
        route="deliveries.py:drop",
        page="deliveries.py:Deliveries.change",
        sdk="deliveries.py:Deliveries.drop",
        command="deliveries drop",
    ),
}
