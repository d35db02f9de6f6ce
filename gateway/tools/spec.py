"""A tool and a call of it, as a model sees them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


def size_bytes(text: str) -> int:
    """In UTF-8, whatever is in it."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool as the model sees it.

    Attributes:
        parameters: a JSON Schema of an object; never changed.
        size_bytes: of all of it as text.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    size_bytes: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        text = self.name + self.description + json.dumps(dict(self.parameters))
        object.__setattr__(self, "size_bytes", size_bytes(text))  # once, not with every call


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call that the model makes.

    Attributes:
        id: the model's; unique within a turn.
        arguments: JSON text as the model wrote it, which may be malformed.
    """

    id: str
    name: str
    arguments: str
