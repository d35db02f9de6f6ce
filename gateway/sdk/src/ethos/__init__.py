"""The client of Ethos Gateway's HTTP API.

::

    from ethos import Ethos

    with Ethos(api_key="ethos_…", base_url="http://localhost:8420") as client:
        print(client.chat.ask("What do you know about me?"))
"""

from __future__ import annotations

from gateway.errors import EthosError
from gateway.sdk.chat import Answer, SentMessage, file
from gateway.sdk.client import AsyncEthos, Ethos
from gateway.sdk.errors import (
    AddressError,
    AnswerTimeoutError,
    APIConnectionError,
    APIError,
    APIResponseValidationError,
    APIStatusError,
    APITimeoutError,
    AuthenticationError,
    ConflictError,
    MemoryUnavailableError,
    NotFoundError,
    NotOfferedError,
    PermissionDeniedError,
    RateLimitError,
    RequestInProgressError,
    RequestTooLargeError,
    ServiceUnavailableError,
    UnprocessableEntityError,
    VersionConflictError,
)
from gateway.sdk.models.chat import ChatMessage, Event, File, Live, Preview, Reset, Tool, Typing
from gateway.sdk.models.schedules import ChangeSchedule, NewSchedule
from gateway.sdk.models.settings import SettingChange
from gateway.sdk.models.traces import AddTrace

__all__ = [
    "APIConnectionError",
    "APIError",
    "APIResponseValidationError",
    "APIStatusError",
    "APITimeoutError",
    "AddTrace",
    "AddressError",
    "Answer",
    "AnswerTimeoutError",
    "AsyncEthos",
    "AuthenticationError",
    "ChangeSchedule",
    "ChatMessage",
    "ConflictError",
    "Ethos",
    "EthosError",
    "Event",
    "File",
    "Live",
    "MemoryUnavailableError",
    "NewSchedule",
    "NotFoundError",
    "NotOfferedError",
    "PermissionDeniedError",
    "Preview",
    "RateLimitError",
    "RequestInProgressError",
    "RequestTooLargeError",
    "Reset",
    "SentMessage",
    "ServiceUnavailableError",
    "SettingChange",
    "Tool",
    "Typing",
    "UnprocessableEntityError",
    "VersionConflictError",
    "file",
]
