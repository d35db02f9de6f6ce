"""What a request names: a person, a personality, a row."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query

from gateway.sdk.models.names import USER_PATTERN
from gateway.sdk.models.schema import ID_PATTERN, MAX_ID

PersonalityParam = Annotated[
    str | None, Query(pattern=ID_PATTERN, description="Id of a personality; the configured default without it.")
]
UserParam = Annotated[
    str | None,
    Query(
        pattern=USER_PATTERN,
        max_length=512,
        description="A user id or an account, `kind:id`; the only user without it.",
    ),
]
RowId = Annotated[int, Path(ge=1, le=MAX_ID, description="Its id, from the list.")]
