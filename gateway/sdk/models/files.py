"""Documents as files: memory and personalities, by their paths as on one machine."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gateway.sdk.models.memory import Text, Version
from gateway.sdk.models.schema import ApiModel, RequestBody

FilePath = Annotated[
    str,
    Field(
        min_length=1,
        max_length=300,
        description="Path, as in the data directory of one machine.",
        examples=["personalities/assistant/MEMORY.md"],
    ),
]


class TextFileInfo(ApiModel):
    """A file, without its text."""

    path: FilePath
    version: Version


class TextFile(TextFileInfo):
    """A file as it is now."""

    content: str = Field(description="The whole text.", examples=["Tea at five.\n"])


class PutTextFile(RequestBody):
    """A file that was edited elsewhere."""

    path: FilePath
    content: Text = Field(description="The edited text.")
    base: Text | None = Field(
        default=None, description="The text that it was before the edit; null where there was no such file."
    )


class FilesRevision(ApiModel):
    """What all files are now, in one word."""

    revision: Version = Field(description="Another one after each change of any file.")
