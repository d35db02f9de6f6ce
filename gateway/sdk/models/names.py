"""Names on the wire, apart from the models: the command line needs them, and pydantic takes long to load."""

from __future__ import annotations

from typing import Literal

USER_PATTERN = "^([A-Za-z0-9_-]{1,64}|[^:]+:.+)$"
"""A user id or an account, `kind:id`."""
Scope = Literal[
    "memory:read",
    "memory:write",
    "traces:read",
    "traces:write",
    "sessions:read",
    "sessions:write",
    "chat:read",
    "chat:write",
    "people:read",
    "people:write",
    "personalities:read",
    "personalities:write",
    "deliveries:read",
    "deliveries:write",
    "tools:read",
    "schedules:read",
    "schedules:write",
    "system:read",
]
"""What a key may allow."""
