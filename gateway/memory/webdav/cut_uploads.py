"""Uploads that were cut short: a process died, or the line broke, while a server wrote the file in its place."""

from __future__ import annotations

from difflib import SequenceMatcher
from itertools import takewhile

from gateway.memory import rules


def base_of(before: bytes, sent: bytes, there: bytes) -> bytes:
    """The base for a merge of `there`, after an upload of `sent` over `before` of which the end is not known.

    The server may have kept `before`, all of `sent`, or only its first bytes; and somebody may have edited that since.
    A line counts as taken out there only if the server had it: what a cut has swallowed comes back.
    """
    old, new, found = (_lines(data) for data in (before, sent, there))
    lines = {line for line in found if line.strip()}
    if lines.intersection(old).difference(new):
        return before  # the upload did not come
    end = max((at for at, line in enumerate(new, 1) if line in lines), default=0)
    base = new[:end]
    if lines.intersection(new).issubset(old):  # nothing proves that it came; the server had what both texts have
        blocks = SequenceMatcher(None, old, base, autojunk=False).get_matching_blocks()
        base = [line for block in blocks for line in old[block.a : block.a + block.size]]
    cut = next((line for line in new[end:] if line.strip()), "")
    parts = [line for line in lines if line != cut and cut.startswith(line)]
    if parts:
        base += [*takewhile(lambda line: not line.strip(), new[end:]), *parts]
    if not found[-1] and (not base or base[-1]):
        base.append("")
    return rules.encode("\n".join(base))


def _lines(data: bytes) -> list[str]:
    return rules.to_newlines(rules.decode(data)).split("\n")
