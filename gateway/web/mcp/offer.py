"""What a tool of the MCP server is: its arguments, what it asks of its caller, and what it truly does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from gateway.services.caller import Caller, Permission
from gateway.services.operator_services import OperatorServices
from gateway.tools.contract import Arguments

Progress = Callable[[str], Awaitable[None]]
"""Tells the program how far it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call.

    Attributes:
        is_ending: whether the gateway ends: then what breaks off was ended by nobody.
    """

    caller: Caller
    services: OperatorServices
    progress: Progress
    is_ending: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Answer:
    """For the model in words, and for a program as an object; without words the object stands for both."""

    value: dict[str, Any]
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A tool.

    Attributes:
        scopes: all that its caller must hold.
        own_scopes: in their place, of a caller who sees one person only; None: the same.
        is_destructive: it may replace or remove something.
        is_open: it reaches people or services outside of the gateway.
    """

    name: str
    title: str
    description: str
    arguments: type[Arguments]
    call: Callable[[Any, Call], Awaitable[Answer]]
    scopes: tuple[Permission, ...]
    own_scopes: tuple[Permission, ...] | None = None
    is_read_only: bool = False
    is_destructive: bool = False
    is_idempotent: bool = False
    is_open: bool = False

    def lacking(self, caller: Caller) -> Permission | None:
        """The first scope that the caller lacks; None: they may call it."""
        scopes = self.scopes if caller.user_id is None or self.own_scopes is None else self.own_scopes
        return next((one for one in scopes if not caller.may(one)), None)
