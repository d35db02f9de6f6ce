"""Two edits of one text, merged: the three-way merge of lines, with a rule for notes: where both only added, both stay.

Known as diff3; described in Khanna, Kunal, Pierce, "A Formal Investigation of Diff3", FSTTCS 2007.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches

from gateway.memory.union import only_in, paragraphs

# As in every version control, so that people know what they see.
MINE_MARK = "<<<<<<< yours"
BETWEEN_MARK = "======="
THEIRS_MARK = ">>>>>>> in the file now"


@dataclass(frozen=True, slots=True)
class Merged:
    """What came of it.

    Attributes:
        conflicts: places that both changed in different ways; in the text both stand there, between marks.
    """

    text: str
    conflicts: int


def merge(base: str, mine: str, theirs: str) -> Merged:
    """Merge what `mine` and `theirs` made of `base`. Takes time: a blocking call for texts that are large."""
    lines: list[str] = []
    conflicts = 0
    for old, left, right in _chunks(base.split("\n"), mine.split("\n"), theirs.split("\n")):
        merged = _merged_lines(old, left, right)
        if merged is None:
            conflicts += 1
            merged = _marked(left, right)
        lines += merged
    return Merged("\n".join(lines), conflicts)


def merge_edit(base: str, mine: str, theirs: str) -> Merged:
    """The same for an edit that may have been brought in before: then `theirs` has it, and stays as it is.

    It was, where each paragraph that it added is there, and none that it took out.
    """
    came, went = only_in(mine, base), only_in(base, mine)
    there = {part.strip() for part in paragraphs(theirs)}
    is_done = all(part.strip() in there for part in came) and not any(part.strip() in there for part in went)
    return Merged(theirs, 0) if (came or went) and is_done else merge(base, mine, theirs)


def both(mine: str, theirs: str) -> Merged:
    """Both texts, between marks: what they have in common is not known."""
    return Merged("\n".join([*_marked(mine.split("\n"), theirs.split("\n")), ""]), 1)


def merge_for_mine(base: str, mine: str, theirs: str) -> tuple[str, list[str]]:
    """Merge both line by line, without a question; also returns the lines of `theirs` that gave way to `mine`.

    A line that either side took out is out, one that either side brought in is in. Only where both changed the same
    line, `mine` stands.
    """
    lines: list[str] = []
    displaced: list[str] = []
    for old, left, right in _chunks(base.split("\n"), mine.split("\n"), theirs.split("\n")):
        merged = _merged_lines(old, left, right)
        lines += _woven(old, left, right, displaced) if merged is None else merged
    return "\n".join(lines), displaced


def _marked(mine: Sequence[str], theirs: Sequence[str]) -> list[str]:
    return [MINE_MARK, *mine, BETWEEN_MARK, *theirs, THEIRS_MARK]


def has_marks(text: str) -> bool:
    """Whether a conflict in it is not decided yet."""
    return any(line.rstrip() in (MINE_MARK, THEIRS_MARK) for line in text.splitlines())


def _merged_lines(old: Sequence[str], left: Sequence[str], right: Sequence[str]) -> Sequence[str] | None:
    """One piece of the result; None where both sides changed it in different ways."""
    if right in (old, left):
        return left
    if left == old:
        return right
    return _line_by_line(old, left, right) if old else _both(right, left)


def _both(first: Sequence[str], second: Sequence[str]) -> list[str]:
    """What both sides added at one place; a line that both have stands there once."""
    if not {line for line in first if line.strip()} & set(second):
        return [*first, *second]
    lines: list[str] = []
    for kind, start, end, in_second, to_second in SequenceMatcher(None, first, second).get_opcodes():
        lines += first[start:end]
        if kind != "equal":
            lines += second[in_second:to_second]
    return lines


def _woven(old: Sequence[str], left: Sequence[str], right: Sequence[str], displaced: list[str]) -> list[str]:
    """One piece in which both sides changed lines beside each other, or the same ones; adds to `displaced`."""
    left_new, left_gone = _script(old, left)
    right_new, right_gone = _script(old, right)
    both_gone = [old[at] for at in sorted(left_gone & right_gone) if old[at].strip()]
    lines: list[str] = []
    for at in range(len(old) + 1):
        first = []
        for line in right_new.get(at, ()):
            if get_close_matches(line, both_gone, 1) and line not in left:
                displaced.append(line)
            else:
                first.append(line)
        lines += _both(first, left_new.get(at, []))
        if at < len(old) and at not in left_gone | right_gone:
            lines.append(old[at])
    return lines


def _script(old: Sequence[str], new: Sequence[str]) -> tuple[dict[int, Sequence[str]], set[int]]:
    """What came, by the place in `old` before which it stands, and the places of what went."""
    came: dict[int, Sequence[str]] = {}
    gone: set[int] = set()
    for kind, start, end, in_new, to_new in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind != "equal":
            came[start] = new[in_new:to_new]
            gone.update(range(start, end))
    return came, gone


def _line_by_line(old: Sequence[str], left: Sequence[str], right: Sequence[str]) -> list[str] | None:
    """Lines beside each other, of which each was changed on one side; None where it was not so."""
    if not len(old) == len(left) == len(right):
        return None
    rows = list(zip(old, left, right, strict=True))
    if any(mine not in (line, theirs) and theirs != line for line, mine, theirs in rows):
        return None
    return [theirs if mine == line else mine for line, mine, theirs in rows]


_Chunk = tuple[Sequence[str], Sequence[str], Sequence[str]]


def _chunks(base: Sequence[str], mine: Sequence[str], theirs: Sequence[str]) -> Iterator[_Chunk]:
    """The three texts in pieces that belong together, by turns: where they differ, and where all agree."""
    at_base = at_mine = at_theirs = 0
    for start, end, in_mine, in_theirs in _agreed(base, mine, theirs):
        if start > at_base or in_mine > at_mine or in_theirs > at_theirs:
            yield base[at_base:start], mine[at_mine:in_mine], theirs[at_theirs:in_theirs]
        same = base[start:end]
        if same:
            yield same, same, same
        at_base, at_mine, at_theirs = end, in_mine + end - start, in_theirs + end - start


def _agreed(base: Sequence[str], mine: Sequence[str], theirs: Sequence[str]) -> Iterator[tuple[int, int, int, int]]:
    """Where all three are the same: from and to in `base`, from in the others; the last is the end of all."""
    left, right = _matches(base, mine), _matches(base, theirs)
    here = there = 0
    while here < len(left) and there < len(right):
        left_base, in_left, left_size = left[here]
        right_base, in_right, right_size = right[there]
        start, end = max(left_base, right_base), min(left_base + left_size, right_base + right_size)
        if start < end or (start == end and not _both_insert(left, right, here, there)):
            yield start, end, in_left + start - left_base, in_right + start - right_base
        if left_base + left_size < right_base + right_size:
            here += 1
        else:
            there += 1
    yield len(base), len(base), len(mine), len(theirs)


def _both_insert(
    left: Sequence[tuple[int, int, int]], right: Sequence[tuple[int, int, int]], here: int, there: int
) -> bool:
    """Whether both sides only add lines where one agreement ends and the other begins: then neither stands before."""
    return _inserts(left, here, right[there][0]) and _inserts(right, there, left[here][0])


def _inserts(matches: Sequence[tuple[int, int, int]], at: int, other_start: int) -> bool:
    start, _, size = matches[at]
    if other_start > start:  # this agreement ends there
        return at + 1 < len(matches) and matches[at + 1][0] == start + size
    return at > 0 and matches[at - 1][0] + matches[at - 1][2] == start


def _matches(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int, int]]:
    """Pieces that are in both, in order: where in `old`, where in `new`, how many lines."""
    shortest = min(len(old), len(new))
    head = next((number for number in range(shortest) if old[number] != new[number]), shortest)
    rest = shortest - head
    tail = next((number for number in range(rest) if old[-1 - number] != new[-1 - number]), rest)
    middle = SequenceMatcher(None, old[head : len(old) - tail], new[head : len(new) - tail]).get_matching_blocks()
    found = [(0, 0, head), *((head + block.a, head + block.b, block.size) for block in middle)]
    return [*(block for block in found if block[2]), (len(old) - tail, len(new) - tail, tail)]
