"""The vector of a question, in time or not at all: a search never waits long for it, and never fails for it."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable

import structlog

from gateway.agent.embeddings import PaidEmbedder
from gateway.agent.model import Spender
from gateway.errors import ConfigError, ModelError, StoreError
from gateway.memory.query import is_plain
from gateway.traces.trace import Viewer
from gateway.traces.vectors import QueryVector, as_blob

QUERY_CHARS = 2_000
PAUSE_S = 30.0
"""After a failure the words alone are searched for so long, so that not every turn waits in vain."""
_KEPT = 256

_log = structlog.get_logger(__name__)


class QueryVectors:
    """Asks for the vectors of questions, and remembers the last ones."""

    def __init__(
        self,
        embedder: PaidEmbedder,
        *,
        timeout_s: float,
        least: float,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is asked yet; see `QueryVector` for `least`."""
        self._embedder = embedder
        self._timeout_s = timeout_s
        self._least = least
        self._now_s = now_s
        self._known: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._silent_until_s = float("-inf")
        self.problem: str | None = None

    async def of(self, viewer: Viewer, question: str) -> QueryVector | None:
        """The question's vector; None where the words alone count: it is an expression, or there is no answer in time.

        `problem` says why there was none, for people.
        """
        text = question.strip()[:QUERY_CHARS]
        if not text or not is_plain(text):
            return None
        try:
            model = self._embedder.identity
        except ConfigError as error:
            self._fell_silent(error)
            return None
        blob = self._known.get((model, text))
        if blob is None:
            if self._now_s() < self._silent_until_s:
                return None
            blob = await self._asked(viewer, text)
            if blob is None:
                return None
            self._known[model, text] = blob
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
        self._known.move_to_end((model, text))
        return QueryVector(model, blob, self._least)

    async def _asked(self, viewer: Viewer, text: str) -> bytes | None:
        spender = Spender(user_id=viewer.user_id or "", personality_id=viewer.personality_id)
        try:
            async with asyncio.timeout(self._timeout_s):
                embedded = await self._embedder.embed([text], spender)
        except TimeoutError:
            self._fell_silent(TimeoutError(f"no vector of the question within {self._timeout_s:g} s"))
            return None
        except (ModelError, StoreError) as error:
            self._fell_silent(error)
            return None
        if self.problem is not None:
            _log.info("search_by_meaning_again")
        self.problem = None
        return as_blob(embedded.vectors[0])

    def _fell_silent(self, error: Exception) -> None:
        if self.problem is None:
            _log.warning("search_by_words_alone", error=str(error))
        self.problem = str(error)
        self._silent_until_s = self._now_s() + PAUSE_S
