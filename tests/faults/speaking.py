"""Voice notes, while the process is killed: how often each recording was heard, and each answer said, is counted there.

People write, and record something beside it. What was heard once is kept, so a kill behind that costs no second
hearing; of an answer that is said aloud the same holds. And each of these answers has its voice note in the end.
"""

from __future__ import annotations

import base64
import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

import yaml

from gateway.runtime import failpoints
from tests import sounds
from tests.faults.platform import WirePlatform
from tests.faults.stream import Stream
from tests.faults.traffic import Traffic, tokens
from tests.speech_server import Behaviour, SpeechServer

FAULTS = (*(f"`{name}`" for name in failpoints.SPEECH_POINTS), "`turn.committed`", "`outbox.recorded`")


def told_in(data: bytes) -> str:
    """What the listener hears; no token of the traffic, whose answers are counted by them."""
    return sounds.mark_in(data).replace("k", "r", 1)


class VoicePlatform(WirePlatform):
    """What people write comes with a recording."""

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "has_voice": True}

    def _recorded(self, text: str) -> dict[str, str]:
        return {"voice": base64.b64encode(sounds.marked(tokens(text)[0])).decode()}


@dataclass(slots=True)
class SpokenTraffic(Traffic):
    """Messages whose answers can be said."""

    def _text(self, numbers: random.Random, person: int, token: str, *, is_long: bool) -> str:  # noqa: ARG002 (never)
        return f"echo: {token} " + "word " * numbers.randrange(1, 10)


class SpeakingStream(Stream):
    """A gateway that hears and speaks, with a server of speech in the driver."""

    has_colors = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._traffic = SpokenTraffic(has_colors=False)
        self._speech = SpeechServer(Behaviour(hears=told_in))
        assert isinstance(self._platform, WirePlatform)
        self._wire = self._platform

    async def run(self) -> Any:
        with self._speech:
            return await super().run()

    def _furnish(self) -> None:
        super()._furnish()
        path = self._home / "config.yaml"
        halves = {half: {"model": "any", "base_url": self._speech.url} for half in ("listen", "speak")}
        path.write_text(path.read_text() + yaml.safe_dump({"speech": halves}))

    async def _write(self) -> None:
        """One at a time: what is asked for somebody else just then is cut off, and paid for again."""
        if not self._unanswered():
            said = self._traffic.write(self._numbers, max_people=self._max_people)
            await self._platform.say_as(said.person, said.text)

    def _voiceless(self) -> list[str]:
        """Tokens of answers without their voice note."""
        has_note = {name.removesuffix(".voice") for name, _, _ in self._wire._shown if name.endswith(".voice")}
        return [
            token
            for name, _, text in self._wire._shown
            if name.endswith(".reply") and name.removesuffix(".reply") not in has_note
            for token in tokens(text)
        ]

    def _unanswered(self) -> list[str]:
        return [*super()._unanswered(), *self._voiceless()]

    def _examine(self) -> None:
        super()._examine()
        tally, people = self._tally, {said.token: said.person for said in self._traffic.said}
        tally.updates = 2 * len(people)
        heard = Counter(told_in(asked["file"][2]).replace("r", "k", 1) for asked in self._speech.heard)
        said = Counter(token for asked in self._speech.said for token in tokens(asked["input"]))
        for what, counts in (("heard", heard), ("said", said)):
            for token in people:
                tally.missing += not counts[token]
                tally.doubled += max(0, counts[token] - 1)
                if counts[token] != 1:
                    tally.notes.append(f"{token} was {what} {counts[token]} times")
        tally.problems += [f"the answer to {token} has no voice note" for token in self._voiceless()]
