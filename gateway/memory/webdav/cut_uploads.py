"""Uploads that were cut short: a process died, or the line broke, while a server wrote the file in its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    only_old, only_new = lines.intersection(old).difference(new), lines.intersection(new).difference(old)
    if only_old and not only_new:
        return before  # the upload did not come
    end = max((at + 1 for at in _in_both(new, found) if new[at].strip()), default=0)
    base = new[:end]
    if not only_new:  # nothing proves that it came; the server had what both texts have
        base = [old[at] for at in _in_both(old, base)]
    cut = next((line for line in new[end:] if line.strip()), "")
    part = next((line for line in reversed(found) if line.strip() and line != cut and cut.startswith(line)), None)
    if part is not None:
        base += [*takewhile(lambda line: not line.strip(), new[end:]), part]
    if not found[-1] and (not base or base[-1]):
        base.append("")
    return rules.encode("\n".join(base))


def _in_both(one: Sequence[str], other: Sequence[str]) -> Iterator[int]:
    """Where lines are in `one` that are in both, in the same order."""
    for start, _, size in SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks():
        yield from range(start, start + size)


def _lines(data: bytes) -> list[str]:
    return rules.to_newlines(rules.decode(data)).split("\n")
