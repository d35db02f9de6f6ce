"""What was sent against what was seen: answers, memory files, identities and the database, after a stream of faults."""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, fields
from itertools import pairwise
from pathlib import Path

from gateway.pipeline.outbox import REPEAT_NOTE
from tests.faults.platform import Platform
from tests.faults.traffic import KEPT, Traffic, tokens


@dataclass(slots=True)
class Tally:
    """What came of one fault or of many.

    Attributes:
        kills: lives that ended by the fault.
        lost: messages without an answer.
        dead: replies that were given up, with their reason among the dead letters; only where the platform has it so.
        duplicated: answers that were shown again in any other way.
        repeated: answers that were shown again by the life after a kill, and marked so: the window in which nobody
            can know.
        uncertain: replies of which a start did not know whether they had arrived.
        resolved: how many of these it found out.
        misordered: neighbours in a conversation whose answers stand in another order; a problem where the channel keeps
            the order.
        stranded: messages without an answer that still wait in the database, with nothing left that is to wake them.
        missing, doubled: of the memory lines.
        problems: all else that must not be.
        notes: for people.
    """

    streams: int = 1
    kills: int = 0
    messages: int = 0
    lost: int = 0
    dead: int = 0
    duplicated: int = 0
    repeated: int = 0
    uncertain: int = 0
    resolved: int = 0
    misordered: int = 0
    stranded: int = 0
    updates: int = 0
    missing: int = 0
    doubled: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Nothing happened that must not."""
        wrong = (self.lost, self.stranded, self.duplicated, self.missing, self.doubled)
        return not any(wrong) and not self.problems

    def add(self, other: Tally) -> None:
        """Count another one in."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


def examine(tally: Tally, home: Path, traffic: Traffic, platform: Platform, ends: Sequence[int]) -> None:
    """Fill the tally; the gateway has ended.

    Args:
        tally: to be filled.
        home: the data directory.
        traffic: what was written.
        platform: what was seen.
        ends: of each life that was killed, how much was shown by then.
    """
    with _database_of(home) as database:
        dead = dead_letters(database) if platform.gives_up else set()
    compare_answers(tally, traffic, platform, ends, dead=dead)
    tally.updates = traffic.updates
    users = _users(tally, home, traffic, platform)
    _memory(tally, home, traffic, users)
    _database(tally, home, may_be_dead=platform.gives_up)


def compare_answers(
    tally: Tally,
    traffic: Traffic,
    platform: Platform,
    ends: Sequence[int],
    *,
    dead: Collection[str] = (),
    waiting: Collection[str] = (),
) -> None:
    """Fill the part of the tally that is of answers; `dead` and `waiting` are tokens of those that need none."""
    shown = platform.shown()
    tally.messages = len(traffic.said)
    tally.uncertain, tally.resolved = platform.uncertain()
    answers: defaultdict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for at, (person, text) in enumerate(shown):
        for token in tokens(text):
            answers[token].append((at, person, text))
    place: dict[str, int] = {}
    for said in traffic.said:
        copies = answers[said.token]
        if not copies and said.token in dead:
            tally.dead += 1
            continue
        if not copies:
            tally.stranded += said.token in waiting
            tally.lost += said.token not in waiting
            tally.notes.append(f"{'still waits' if said.token in waiting else 'never answered'}: {said.token}")
            continue
        place[said.token] = copies[0][0]
        for (earlier, _, first), (later, _, text) in pairwise(copies):
            is_in_window = text.startswith(REPEAT_NOTE) and any(earlier < end <= later for end in ends)
            tally.repeated += is_in_window
            tally.duplicated += not is_in_window
            if not is_in_window:
                tally.notes.append(f"answered again outside of the window: {said.token}: {first[:60]!r}, {text[:60]!r}")
        if {person for _, person, _ in copies} != {said.person}:
            tally.problems.append(f"{said.token} was answered to somebody else")
    _order(tally, traffic, place)
    if tally.misordered and platform.keeps_order:
        tally.problems.append(f"{tally.misordered} answers out of order")


def _order(tally: Tally, traffic: Traffic, place: Mapping[str, int]) -> None:
    """In each conversation as it was asked; `place` has where each answer was first shown."""
    for person in {said.person for said in traffic.said}:
        theirs = [said.token for said in traffic.said if said.person == person and said.token in place]
        for one, other in pairwise(theirs):
            if place[one] > place[other]:
                tally.misordered += 1
                tally.notes.append(f"{other} was answered before {one}")


def _users(tally: Tally, home: Path, traffic: Traffic, platform: Platform) -> dict[int, str]:
    """The user of each person; every account is in the map once."""
    path = home / "users" / "identity-map.json"
    if not path.exists():
        tally.problems.append("there is no identity map")
        return {}
    entries = json.loads(path.read_text())["identities"]
    people = {said.person for said in traffic.said}
    found = {
        person: entry["userId"]
        for person in people
        for key, entry in entries.items()
        if key.endswith(platform.account(person))
    }
    if len(set(found.values())) != len(people) or len(entries) != len(people):
        tally.problems.append(f"the identity map knows {found}, and {sorted(people)} have written")
    return found


def _memory(tally: Tally, home: Path, traffic: Traffic, users: dict[int, str]) -> None:
    facts = _lines(home / "personalities" / "assistant")
    wanted = [KEPT.strip(), *traffic.facts]
    compare_lines(tally, wanted, facts, "MEMORY.md")
    for person, user in users.items():
        lines = _lines(home / "users" / user, name="USER.md")
        compare_user(tally, traffic, person, lines, _lines(home / "users" / user, name=None))


def compare_user(tally: Tally, traffic: Traffic, person: int, lines: Counter[str], archived: Counter[str]) -> None:
    """What is known of a person; `lines` has those of the archive, too."""
    wanted = list(traffic.traits.get(person, ()))
    if person in traffic.colors:
        wanted.append(traffic.colors[person])
    # An older color is gone, or has left for the archive before the newer came.
    for line in [line for line in lines if line.startswith("Color: ") and line not in wanted]:
        if archived[line]:
            lines[line] -= 1
            archived[line] -= 1
    compare_lines(tally, wanted, +lines, f"USER.md of person {person}")


def _lines(directory: Path, *, name: str | None = "MEMORY.md") -> Counter[str]:
    """The lines of a file and of its archive, or of the archive alone."""
    paths = [directory / "memory-archive.md", *([directory / name] if name else [])]
    text = "\n".join(path.read_text() for path in paths if path.exists())
    return lines_of(text)


def lines_of(text: str) -> Counter[str]:
    """The lines of a text that have something in them."""
    return Counter(line for line in text.split("\n") if line.strip())


def compare_lines(tally: Tally, wanted: list[str], found: Counter[str], where: str) -> None:
    """Each wanted line is to be found once, and no other."""
    expected = Counter(wanted)
    for line, count in (expected - found).items():
        tally.missing += count
        tally.notes.append(f"missing in {where}: {line}")
    for line, count in (found - expected).items():
        tally.doubled += count
        tally.notes.append(f"too much in {where}: {line}")


def _database(tally: Tally, home: Path, *, may_be_dead: bool) -> None:
    """All is at its end: nothing waits in a queue or in the journal, and the file is whole."""
    questions = {
        "messages not finished": "SELECT count(*) FROM inbox WHERE state <> 'done'",
        "replies not sent": "SELECT count(*) FROM outbox WHERE state NOT IN ('sent', 'dead')",
        "replies given up": "SELECT count(*) FROM outbox WHERE state = 'dead'",
        "memory updates not settled": "SELECT count(*) FROM memory_journal WHERE outcome IS NULL",
        "steps left behind": "SELECT count(*) FROM turn_steps",
    }
    with _database_of(home) as database:
        for what, question in questions.items():
            (count,) = database.execute(question).fetchone()
            if count and not (may_be_dead and what == "replies given up"):
                tally.problems.append(f"{count} {what}")
        (state,) = database.execute("PRAGMA integrity_check").fetchone()
        if state != "ok":
            tally.problems.append(f"the database is damaged: {state}")


def dead_letters(database: sqlite3.Connection) -> set[str]:
    """Tokens of the answers that were given up."""
    rows = database.execute("SELECT payload FROM outbox WHERE state = 'dead'").fetchall()
    return {token for (payload,) in rows for token in tokens(json.loads(payload)["text"])}


@contextmanager
def _database_of(home: Path) -> Iterator[sqlite3.Connection]:
    """A copy: SQLite would follow /proc/…/root out of the gateway's own disk."""
    with tempfile.TemporaryDirectory() as place:
        for file in home.glob("ethos.sqlite*"):
            shutil.copy(file, place)
        with closing(sqlite3.connect(Path(place) / "ethos.sqlite")) as database:
            yield database
