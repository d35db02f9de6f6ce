"""What the full-text index holds of a trace, and the SQL functions of the trace memory's schema."""

from __future__ import annotations

import math
import sqlite3

from gateway.memory.tokenizer import words_of
from gateway.store.payloads import from_ms

QUESTION, ANSWER = "[user]: ", "\n[assistant]: "
"""With these begin the parts of a trace that is a question with its answer."""
_ANSWER_CHARS = 500  # what comes later in an answer finds more that is wrong than right


def register_functions(connection: sqlite3.Connection) -> None:
    """Give a connection the SQL functions of the schema."""
    connection.create_function("words_of", 1, words_of, deterministic=True)
    connection.create_function("said_in", 1, said_in, deterministic=True)
    connection.create_function("context_of", -1, context_of, deterministic=True)  # two values in old schemas
    connection.create_function("exp", 1, math.exp, deterministic=True)
    connection.create_function("signature_of", 1, signature_of, deterministic=True)


# Of the high byte of a float16, little-endian: its sign.
_SIGNS = bytes(ord("0") if byte < 0x80 else ord("1") for byte in range(256))


def signature_of(vector: bytes) -> bytes:
    """The signs of a float16 vector's numbers, a bit for each."""
    signs = vector[1::2].translate(_SIGNS)
    return int(signs or b"0", 2).to_bytes((len(signs) + 7) // 8, "big")


def said_in(content: str) -> str:
    """The words that a trace is found by: of a question with its answer those of the question."""
    return words_of(_parted(content)[0])


def context_of(speaker: str | None, created_at_ms: int, content: str = "") -> str:
    """Who said it and when, as words, `ada 2026 11 21 november saturday`, and the beginning of an answer in it."""
    at = from_ms(created_at_ms)
    return words_of(f"{speaker or ''} {at:%Y %m %d %B %A} {_parted(content)[1][:_ANSWER_CHARS]}").strip()


def _parted(content: str) -> tuple[str, str]:
    """A question and its answer, as an import of conversations joins them; all else is no answer."""
    question, _, answer = content.partition(ANSWER)
    return (question, answer) if content.startswith(QUESTION) else (content, "")
