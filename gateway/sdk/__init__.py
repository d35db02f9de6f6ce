"""The client of the HTTP API, for Python programs.

::

    from gateway.sdk import Ethos

    with Ethos("http://localhost:8420", key) as client:
        print(client.chat.ask("What do you know about me?"))

Every operation is described once, in the module of its namespace; `styles` makes the awaited and the blocking client of
it. Nothing is loaded here before it is asked for: the server shares the models, and needs no client.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gateway.sdk.address import NoAddress
    from gateway.sdk.chat import Answer, Said, file
    from gateway.sdk.client import AsyncEthos, Ethos
    from gateway.sdk.errors import (
        BadAnswer,
        Conflict,
        EthosApiError,
        InProgress,
        Invalid,
        NoAnswer,
        NotAllowed,
        NotFound,
        NotKnown,
        NotPossible,
        NotReached,
        ProblemError,
        TooLarge,
        TooMany,
        Unavailable,
    )

__all__ = [
    "Answer",
    "AsyncEthos",
    "BadAnswer",
    "Conflict",
    "Ethos",
    "EthosApiError",
    "InProgress",
    "Invalid",
    "NoAddress",
    "NoAnswer",
    "NotAllowed",
    "NotFound",
    "NotKnown",
    "NotPossible",
    "NotReached",
    "ProblemError",
    "Said",
    "TooLarge",
    "TooMany",
    "Unavailable",
    "file",
]

_ROOMS = {
    "AsyncEthos": "client",
    "Ethos": "client",
    "Answer": "chat",
    "Said": "chat",
    "file": "chat",
    "NoAddress": "address",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_ROOMS.get(name, 'errors')}"), name)
