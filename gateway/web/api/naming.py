"""What a request names: a person, a personality, a row."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query

from gateway.sdk.models.wire import MAX_ID

ID_PATTERN = "^[A-Za-z0-9_-]{1,64}$"
USER_PATTERN = "^([A-Za-z0-9_-]{1,64}|[^:]+:.+)$"

PersonalityParam = Annotated[
    str | None, Query(pattern=ID_PATTERN, description="Its id; the configured default one without it.")
]
UserParam = Annotated[
    str | None,
    Query(
        pattern=USER_PATTERN,
        max_length=512,
        description="A user id or an account, `kind:id`; the only user without it.",
    ),
]
RowId = Annotated[int, Path(ge=1, le=MAX_ID)]
