"""Pictures that a model is shown."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelImage:
    """A picture in front of the model, as the file's bytes."""

    media_type: str
    data: bytes
