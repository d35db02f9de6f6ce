"""Payloads as no platform sends them: those that it does send, with values changed, moved, repeated and left out."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gateway.messages import InboundMessage
from gateway.pipeline.storable import storable
from gateway.store.payloads import inbound_json

SEED = 20_261_122
TEXTS = [
    "", " ", "\0", "\ud800", "a\ud800b\0", "\udc00\ud800", "..", ".", "../../etc/passwd", "/etc/passwd", "C:\\x\\y",
    "a/b", "~root", "%2e%2e%2f", "\n\r", "\u202e", "x" * 20_000, "\N{GRINNING FACE}" * 50, "<@", "<!channel>", "<@&1>",
    "0", "-1", "1e400", "nan", "12345678901234567890123", "1.5", "\u0661\u0662", "true", "null", "{}", "None",
    "9999999999", "99999999999999", "-99999999999", "2017-07-11T17:27:07", "9999-12-31T23:59:59-23:59", "forward",
]  # fmt: skip
NUMBERS = [0, 1, -1, 2, 19, 2**31, 2**53, 2**63, 2**64, 10**30, -(10**30), 0.5, 1e18, 1e308, float("inf"), float("nan")]
SHAPES: list[Any] = [None, True, False, [], {}, [None], [[]], [{}], {"": None}, {"id": {}}, [1, "a"], {"id": "\ud800"}]


@dataclass(frozen=True, slots=True)
class Mutator:
    """Changes one to four things of a payload; the same seed makes the same changes."""

    random: random.Random

    def hostile(self) -> Any:
        return copy.deepcopy(self.random.choice(self.random.choice([TEXTS, NUMBERS, SHAPES])))

    def changed(self, payload: Any) -> Any:
        changed = copy.deepcopy(payload)
        for _ in range(self.random.randint(1, 4)):
            places = list(_places(changed))
            if not places:
                break
            holder, key = self.random.choice(places)
            match self.random.randrange(6):
                case 0:
                    del holder[key]
                case 1:
                    other, name = self.random.choice(places)
                    holder[key] = copy.deepcopy(other[name])
                case 2:
                    holder[key] = [holder[key]] * self.random.randint(1, 3)
                case 3 if isinstance(holder[key], str):
                    holder[key] += self.random.choice(TEXTS)
                case _:
                    holder[key] = self.hostile()
        return changed


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Everywhere that something stands: what holds it, and under which key."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield value, key
        yield from _places(item)


def check(message: InboundMessage) -> None:
    """It is a message as the contract has it, and can be stored."""
    where, sender = message.conversation, message.sender
    ids = [message.id, message.event_id, where.channel, where.conversation, sender.user]
    assert all(isinstance(value, str) and value for value in ids), ids
    assert all(value is None or isinstance(value, str) for value in (where.thread, message.reply_to, message.command))
    assert isinstance(message.text, str)
    assert isinstance(sender.display_name, str)
    assert {type(value) for value in (message.is_direct, message.mentions_bot, message.is_trusted_text)} == {bool}
    assert type(sender.is_verified) is bool
    assert message.sent_at.utcoffset() is not None
    for file in message.attachments:
        assert all(isinstance(value, str) for value in (file.media_type, file.filename, file.ref))
        assert type(file.size_bytes) is int
    kept = storable(message)
    texts = [kept.id, kept.event_id, kept.conversation.conversation, kept.conversation.thread or "", kept.sender.user]
    assert not any("\0" in value for value in [*texts, inbound_json(kept)])
    assert "".join([*texts, inbound_json(kept)]).encode()
    for file in kept.attachments:
        assert not set(file.filename) & set("/\\\0\n")
        assert file.filename not in {"", ".", ".."}
        assert file.size_bytes >= 0
