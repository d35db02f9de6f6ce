"""What is asked of a model of embeddings: a list of numbers for each text, so that texts of one meaning lie close.

The words of the seam only; `embedding_wire.py` speaks with the provider.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway.agent.model import Spender


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedded:
    """The vectors of some texts, in their order, all finite and of one length; what was read, in tokens."""

    vectors: Sequence[Sequence[float]]
    input_tokens: int


class Embedder(Protocol):
    """Something that gives vectors."""

    @property
    def name(self) -> str:
        """As in the configuration."""

    @property
    def identity(self) -> str:
        """What the vectors are made by: vectors of one identity can be compared with each other, and no others."""

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """One call for all texts, none of which is blank; not tried again.

        Raises:
            ModelUnavailable: no answer now, or none that can be used.
            ModelRefused: never an answer to these texts.
        """
        ...


class PaidEmbedder(Protocol):
    """An `Embedder` whose calls are put on somebody's account; see `gateway.agent.embedding_meter`."""

    @property
    def identity(self) -> str:
        """As an `Embedder`'s."""

    async def embed(self, texts: Sequence[str], spender: Spender) -> Embedded:
        """As an `Embedder`'s; `BudgetExhausted` where there is no room for the call.

        Raises:
            ModelUnavailable: no answer now, or none that can be used.
            ModelRefused: never an answer to these texts.
            StoreError: what the call may cost could not be reserved.
        """
        ...


def identity_of(model: str, dimensions: int | None) -> str:
    """The provider's name of the model, and the dimensions where they are asked for."""
    return model if dimensions is None else f"{model}@{dimensions}"
