"""The protocol, in every order in which its parts can happen: a small explicit-state search over the real code.

Each path is run anew from its start. People's commands, the job and the recovery stop in front of every change to a
store, the map or the notes; the search decides who goes on, when the time of a code passes, and where the process
dies. What was not committed is done again after the next start, as the inbox does it. The store is the real one, on a
transaction that is rolled back after each path; twins that pass the suites of the real ones stand in for the files.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.domain.codes import ALPHABET
from gateway.messages import Capabilities, ConversationRef, OutboundMessage
from gateway.people.linking import chat
from gateway.people.linking.chat import LinkAnswer, Linking, Speaker
from gateway.people.linking.links import CODE_VALID_S, LinkRequest, Party
from gateway.store.links import SqlLinks
from gateway.store.payloads import outbound
from gateway.store.sqlite.engine import connect
from tests.gateway.linking.twins import Configured, NoSender, NothingLate, OpenDoor, TwinAccounts, TwinNotes
from tests.stores import empty_database

USERS = {"fake:a": "u_a", "fake:b": "u_b", "fake:e": "u_e", "fake:m": "u_m"}
# Is let in nowhere, and stands in no map before somebody's yes.
STRANGER = "fake:s"
USER_OF = {**USERS, STRANGER: "u_s"}
# Writes letters, and so does whoever forges one.
BY_LETTER = "fake:m"
NOTES = {"u_a": "Cat: Mia\n", "u_b": "Boat: Argo\n\nCat: Mia\n", "u_e": "Eve.\n", "u_m": "Letters.\n"}
CODES = [ALPHABET[i : i + 4] + "-" + ALPHABET[i + 4 : i + 8] for i in range(6)]
QUIET_ROUNDS = 5
STORED = ("SELECT * FROM link_requests", "SELECT * FROM link_tries", "SELECT * FROM user_links")
CHANGES = {"start", "redeem", "refuse", "decide", "undo", "end_by_hand", "advance", "move", "unite", "part", "resolve"}

Words = Callable[["World"], str | None]
"""What a person types next; None while they wait for something."""


async def pepper() -> bytes:
    return b"pepper"


@dataclass(slots=True)
class Person:
    """Somebody with a list of things to type, one after another.

    Attributes:
        writes_as: whose name the letters bear; the answers go there.
    """

    name: str
    script: Sequence[Words]
    writes_as: str = ""
    at: int = 0
    answers: list[str] = field(default_factory=list)

    @property
    def account(self) -> str:
        return f"fake:{self.writes_as or self.name}"


class Channel:
    kind = "fake"

    def __init__(self, *, is_sender_only_claimed: bool) -> None:
        self.capabilities = Capabilities(max_text_chars=4_000, is_sender_only_claimed=is_sender_only_claimed)


CHANNELS = {"fake": Channel(is_sender_only_claimed=False), "letters": Channel(is_sender_only_claimed=True)}


class AtOnce:
    """A `Database` without threads: whatever is asked of it is one step of the search."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    async def write(self, work: Callable[[sqlite3.Connection], Any]) -> Any:
        return work(self.connection)

    read = write

    async def ask(self, asking: Callable[[sqlite3.Connection], Callable[[], Any]]) -> Any:
        return asking(self.connection)()

    async def rows(self, sql: str, values: Sequence[Any] = ()) -> list[sqlite3.Row]:
        return self.connection.execute(sql, values).fetchall()

    async def row(self, sql: str, values: Sequence[Any] = ()) -> sqlite3.Row | None:
        row: sqlite3.Row | None = self.connection.execute(sql, values).fetchone()
        return row

    def stored(self) -> list[tuple[Any, ...]]:
        """All that is stored of links."""
        return [tuple(row) for select in STORED for row in self.connection.execute(select)]


class Gated:
    """Every call that changes something waits for its permission, and then happens at once.

    What was read before it is as old as the wait was long.
    """

    def __init__(self, world: World, inner: object) -> None:
        self._world = world
        self._inner = inner

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            if name in CHANGES:
                await self._world.gate(name)
            result = await getattr(self._inner, name)(*args, **kwargs)
            self._world.seen(name, args, result, kwargs.get("second_hash") or "")
            return result

        return call


class GatedMemory(Gated):
    """The same, of a `SupportsUnion`: what it can do is found without asking it."""

    async def unite(self, *args: Any) -> None:
        await self.__getattr__("unite")(*args)

    async def part(self, *args: Any) -> Any:
        return await self.__getattr__("part")(*args)


class World:
    """One run: the stores that survive a crash, the process that does not, and what is known to have been proved."""

    def __init__(self, database: AtOnce, people: Sequence[Person], *, ticks: int, crashes: int) -> None:
        self.now_ms = 1_700_000_000_000
        self.database = database
        database.connection.create_function("now_ms", 0, lambda: self.now_ms)
        self.links = SqlLinks(database)  # type: ignore[arg-type]
        self.accounts = TwinAccounts(USERS)
        self.notes = TwinNotes(NOTES)
        self.people = {person.name: person for person in people}
        self.ticks, self.crashes = ticks, crashes
        self.codes = iter(CODES)
        self.begun: dict[str, str] = {}  # commands that have no committed answer yet, by person
        self.typed: set[tuple[str, str]] = set()  # (account, code)
        self.by_themselves: set[tuple[str, str]] = set()  # the same, of those who forge nothing
        self.given: dict[str, tuple[str, int]] = {}  # by code hash: to whom, and when
        self.asked: dict[str, tuple[str, str, int]] = {}  # by request: starter, redeemer, and when
        self.said_yes: set[tuple[str, str]] = set()  # (account, request that it could see)
        self.redeemers: dict[str, set[str]] = {}
        self.decided_at: dict[str, int] = {}
        self.waiting: dict[str, asyncio.Future[None]] = {}
        self.history: dict[str, list[str]] = {}
        self.tasks: set[asyncio.Task[Any]] = set()
        self.is_recovering = False
        self.start()

    # ---- the process -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.linking = Linking(
            Gated(self, self.links),  # type: ignore[arg-type]
            Gated(self, self.accounts),  # type: ignore[arg-type]
            memory=GatedMemory(self, self.notes),  # type: ignore[arg-type]
            applied=NothingLate(),
            pepper=pepper,
            channels=Configured(CHANNELS),  # type: ignore[arg-type]
            outbox=NoSender(),
            guard=OpenDoor(),
            code=lambda: next(self.codes),
        )
        self.is_recovering = True
        self.run("recovery", self.recover())

    async def recover(self) -> None:
        await self.linking.job.recover()
        self.is_recovering = False

    def run(self, name: str, work: Any) -> None:
        self.history[name] = []
        task = asyncio.create_task(work, name=name)
        self.tasks.add(task)

    async def crash(self) -> None:
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await self.quiet()
        self.waiting.clear()
        self.history.clear()
        self.tasks.clear()
        self.start()

    async def gate(self, label: str) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.waiting[task.get_name()] = future = asyncio.get_running_loop().create_future()
        self.history.setdefault(task.get_name(), []).append(label)
        await future

    async def quiet(self) -> None:
        """Let everybody come to their next gate."""
        for _ in range(QUIET_ROUNDS):
            await asyncio.sleep(0)

    async def command(self, person: Person, words: str) -> None:
        account = self.people.get(person.writes_as, person)
        channel = "letters" if person.account == BY_LETTER else "fake"
        place = ConversationRef(channel=channel, conversation=account.name)
        me = Party(account=person.account, label=person.name, conversation=place)
        name, _, arguments = words.partition(" ")
        answer = await self.answer(name, arguments, me, f"t_{person.name}{person.at}")
        await self.gate("commit")
        account.answers.append(answer.text)
        person.at += 1
        del self.begun[person.name]
        if answer.link is not None:
            self.linking.job.begin(answer.link)

    async def answer(self, name: str, arguments: str, me: Party, turn_id: str) -> LinkAnswer:
        """As the commands and the entrance do it."""
        user_id = USER_OF[me.account] if me.account != STRANGER else self.user_of_stranger()
        if user_id is None:
            knocked = await self.linking.redeem_as_stranger(arguments, me, turn_id) if name == "/link" else None
            return knocked or LinkAnswer(text="I do not know you yet.")
        work = self.linking.link if name == "/link" else self.linking.unlink
        return await work(arguments, Speaker(me=me, user_id=user_id, turn_id=turn_id))

    def user_of_stranger(self) -> str | None:
        """Who the stranger is once a link has let them in."""
        entry = self.accounts.entries.get(STRANGER)
        return None if entry is None or entry.user_id == USER_OF[STRANGER] else entry.user_id

    # ---- what can happen next --------------------------------------------------------------------------------------

    def choices(self) -> list[str]:
        found = [f"go {name}" for name in sorted(self.waiting)]
        if not self.is_recovering:
            found += [
                f"type {person.name}"
                for person in self.people.values()
                if person.name not in self.history and self.next_words(person) is not None
            ]
        if self.ticks:
            found.append("tick")
        if self.crashes:
            found.append("crash")
        return found

    def next_words(self, person: Person) -> str | None:
        if person.name in self.begun:  # to be done again
            return self.begun[person.name]
        return person.script[person.at](self) if person.at < len(person.script) else None

    async def take(self, choice: str) -> None:
        what, _, name = choice.partition(" ")
        if what == "tick":
            self.ticks -= 1
            self.now_ms += round(CODE_VALID_S * 1000)
        elif what == "crash":
            self.crashes -= 1
            await self.crash()
        elif what == "type":
            person = self.people[name]
            words = self.next_words(person)
            assert words is not None
            self.begun[name] = words
            if words.startswith("/link yes"):
                self.said_yes.add((person.account, words.removeprefix("/link yes").strip()))
            self.typed.add((person.account, words.removeprefix("/link ").replace("-", "")))
            if not person.writes_as:
                self.by_themselves.add((person.account, words.removeprefix("/link ")))
            self.run(name, self.command(person, words))
        else:
            self.waiting.pop(name).set_result(None)
        await self.quiet()
        for task in [task for task in self.tasks if task.done()]:
            task.result()
            self.tasks.discard(task)
            self.history.pop(task.get_name(), None)
        running = {task.get_name() for task in asyncio.all_tasks()}
        self.history = {name: seen for name, seen in self.history.items() if name in running}

    def seen(self, name: str, args: Sequence[Any], result: object, second_hash: str = "") -> None:
        task = asyncio.current_task()
        assert task is not None
        self.history.setdefault(task.get_name(), []).append(repr(result))
        if name == "start":
            self.given[args[1]] = (args[0].starter.account, self.now_ms)
        if name == "redeem" and isinstance(result, LinkRequest) and result.redeemer is not None:
            starter, given_at = self.given[args[0]]
            assert starter == result.starter.account
            self.redeemers.setdefault(args[0], set()).add(result.redeemer.account)
            if result.state == "open":
                self.given.setdefault(second_hash, (starter, self.now_ms))
            if result.state != "asked":
                return
            self.asked.setdefault(result.id, (starter, result.redeemer.account, self.now_ms))
            assert self.asked[result.id][2] - given_at < CODE_VALID_S * 1000
        if name == "decide" and result is not None:
            self.decided_at.setdefault(result.id, self.now_ms)  # type: ignore[attr-defined]

    # ---- what must hold --------------------------------------------------------------------------------------------

    def queued(self) -> list[OutboundMessage]:
        """All that is to be sent, or was."""
        return [outbound(row) for row in self.database.connection.execute("SELECT * FROM outbox ORDER BY seq")]

    def signature(self) -> int:
        """Tells two states apart: all that is stored, and all that every running part has seen."""
        elsewhere = (self.accounts.entries, self.notes.texts, self.notes.kept, sorted(self.notes.united))
        people = [(person.name, person.at, person.answers) for person in self.people.values()]
        running = (sorted(self.history.items()), self.linking.people._absorbed, self.is_recovering, self.begun)
        return hash(
            repr((self.database.stored(), self.queued(), elsewhere, people, running, self.now_ms, self.crashes))
        )

    async def check_always(self) -> None:
        links = await self.links.links(ended_too=True)
        requests = dict(map(tuple, self.database.connection.execute("SELECT link_id, id FROM link_requests")))
        for link in links:
            request = requests[link.id]
            starter, redeemer, asked_at = self.asked[request]
            assert {USER_OF[starter], USER_OF[redeemer]} == {link.survivor, link.absorbed}
            assert starter != STRANGER, "who is let in nowhere begins nothing"
            assert any(account == redeemer and len(code) == 8 for account, code in self.typed), (
                "typed on the other side"
            )
            assert redeemer != BY_LETTER or self.is_proved(redeemer), "a letter counts with the code of our answer"
            assert (starter, request) in self.said_yes, "and confirmed on this one"
            assert self.decided_at.get(link.id, self.now_ms) - asked_at < CODE_VALID_S * 1000
        assert all(len(accounts) == 1 for accounts in self.redeemers.values()), "a code is used once"
        moved = {key for key, account in self.accounts.entries.items() if account.user_id != USER_OF[key]}
        asked_of = {request: redeemer for request, (_, redeemer, _) in self.asked.items()}
        is_met = any(asked_of.get(request) == STRANGER for _, request in self.said_yes)
        assert STRANGER not in self.accounts.entries or is_met, "nobody is written down before the yes"
        assert moved <= {one.key for link in links for one in link.accounts}, "nobody moves without a link"
        assert all("Eve." not in text for user, text in self.notes.texts.items() if user != "u_e") or any(
            "u_e" in (link.survivor, link.absorbed) for link in links
        )

    def is_proved(self, account: str) -> bool:
        """Whether the account's own person typed a code that stands in an answer to that account."""
        answers = self.people[account.removeprefix("fake:")].answers
        return any((account, code) in self.by_themselves for text in answers for code in _CODE.findall(text))

    async def check_end(self) -> None:
        """Nothing runs, and nobody has anything to say: nothing is half done."""
        links = await self.links.links(ended_too=True)
        assert all(link.state in {"linked", "undone"} for link in links), links
        counting = {link.absorbed: link for link in links if link.undone_at is None}
        for key, account in self.accounts.entries.items():
            user = USER_OF[key]
            while user in counting:
                user = counting[user].survivor
            assert account.user_id == user
        for user, text in NOTES.items():
            for paragraph in text.split("\n\n"):
                living = user
                while living in counting:
                    living = counting[living].survivor
                assert self.notes.texts[living].count(paragraph.strip()) == 1
        if not counting:
            assert self.notes.texts == NOTES
        told = self.queued()
        for link in links:
            for kind in ("linked", "unlinked") if link.undone_at else ("linked",):
                places = [one.conversation for one in told if one.id.startswith(f"{link.id}.{kind}.")]
                assert sorted(places, key=str) == sorted((party.conversation for party in link.parties), key=str)


_CODE = re.compile(r"/link (\w{4}-\w{4})")


def code_given(name: str) -> Words:
    """`/link CODE`, once the person of that name has been given one."""

    def words(world: World) -> str | None:
        codes = [code for text in world.people[name].answers for code in _CODE.findall(text)]
        return f"/link {codes[-1]}" if codes else None

    return words


def yes_to(name: str, *, otherwise: str | None = None) -> Words:
    """The button of the newest question, where it names that person."""

    def words(world: World) -> str | None:
        asked = [one for one in world.queued() if one.actions]
        mine = [one for one in asked if one.actions[0].id not in world.begun.values()]
        for one in reversed(mine):
            if f"account `{name}`" in one.text:
                return f"/{one.actions[0].id}"
            if otherwise is not None:
                return otherwise
        return None

    return words


def says(words: str, after: str = "") -> Words:
    """That, once some other answer of the person is there."""

    def when(world: World) -> str | None:
        heard = [text for person in world.people.values() for text in person.answers]
        heard += [one.text for one in world.queued()]
        return words if any(after in text for text in heard) or not after else None

    return when


SCENARIOS: dict[str, Callable[[], list[Person]]] = {
    "both agree": lambda: [Person("a", [says("/link"), yes_to("b")]), Person("b", [code_given("a")])],
    "two type the same code, and only one of them is known": lambda: [
        Person("a", [says("/link"), yes_to("b", otherwise="/link no")]),
        Person("b", [code_given("a")]),
        Person("e", [code_given("a")]),
    ],
    "each types the other's code, and both say yes": lambda: [
        Person("a", [says("/link"), code_given("b"), yes_to("b")]),
        Person("b", [says("/link"), code_given("a"), yes_to("a")]),
    ],
    "one says yes while the other steps back": lambda: [
        Person("a", [says("/link"), yes_to("b")]),
        Person("b", [code_given("a"), says("/link no", "I am asking")]),
    ],
    "a stranger brings a code": lambda: [
        Person("a", [says("/link"), yes_to("s")]),
        Person("s", [code_given("a"), says("/link no", "I am asking")]),
    ],
    "a stranger begins, says yes, and brings a code": lambda: [
        Person("a", [says("/link"), yes_to("s")]),
        Person("s", [says("/link"), says("/link yes"), code_given("a"), says("/link yes", "I am asking")]),
    ],
    "a stranger and somebody known type the same code": lambda: [
        Person("a", [says("/link"), yes_to("s", otherwise="/link no")]),
        Person("b", [code_given("a")]),
        Person("s", [code_given("a")]),
    ],
    "a stranger is linked, and takes it back": lambda: [
        Person("a", [says("/link"), yes_to("s")]),
        Person("s", [code_given("a"), says("/unlink", "Linked:")]),
    ],
    "a letter brings a code, and then ours": lambda: [
        Person("a", [says("/link"), yes_to("m", otherwise="/link yes")]),
        Person("m", [code_given("a"), code_given("m")]),
    ],
    "a forged letter brings a code": lambda: [
        Person("e", [says("/link"), says("/link yes", "Nothing is linked yet"), code_given("e")]),
        Person("f", [code_given("e"), says("/link yes"), code_given("e")], writes_as="m"),
        Person("m", []),
    ],
    "a forged letter brings a code, and its victim steps back": lambda: [
        Person("e", [says("/link"), says("/link yes", "Nothing is linked yet")]),
        Person("f", [code_given("e"), says("/link yes")], writes_as="m"),
        Person("m", [says("/link no", "Nothing is linked yet")]),
    ],
    "they are linked, and both take it back at once": lambda: [
        Person("a", [says("/link"), yes_to("b"), says("/unlink", "Linked:")]),
        Person("b", [code_given("a"), says("/unlink", "Linked:")]),
    ],
}
# How often the ten minutes pass, and how often the process dies; what the links may be at the end. The first is quick.
RUNS = [
    ("a stranger is linked, and takes it back", 0, 1, {"undone"}),
    ("both agree", 1, 1, {"", "linked"}),
    ("two type the same code, and only one of them is known", 0, 0, {"", "linked"}),
    ("each types the other's code, and both say yes", 0, 0, {"linked"}),
    ("one says yes while the other steps back", 1, 0, {"", "linked"}),
    ("one says yes while the other steps back", 0, 1, {"", "linked"}),
    ("a stranger brings a code", 1, 0, {"", "linked"}),
    ("a stranger brings a code", 0, 1, {"", "linked"}),
    ("a stranger begins, says yes, and brings a code", 1, 0, {"", "linked"}),
    ("a stranger and somebody known type the same code", 0, 0, {"", "linked"}),
    ("a letter brings a code, and then ours", 1, 1, {"", "linked"}),
    ("a forged letter brings a code", 1, 1, {""}),
    ("a forged letter brings a code, and its victim steps back", 1, 1, {""}),
    ("they are linked, and both take it back at once", 0, 0, {"undone"}),
]

FEW_ENDS = "a forged letter brings a code"
"""38: whatever she tries, nothing comes of it, and the store keeps no old tries that would tell its ends apart."""


async def explore(
    people: Callable[[], list[Person]], *, ticks: int, crashes: int, database: AtOnce
) -> tuple[int, int, set[str]]:
    """Visit every state; how many there are, how many are ends, and in which states their links are."""
    visited: set[object] = set()
    ends, outcomes = 0, set()
    paths: list[tuple[str, ...]] = [()]
    while paths:
        path = paths.pop()
        numbers = count(1)
        chat.secrets.token_hex = lambda _bytes, ids=numbers: f"{next(ids):04}"  # type: ignore[attr-defined]
        database.connection.execute("BEGIN")
        world = World(database, people(), ticks=ticks, crashes=crashes)
        await world.quiet()
        for choice in path:
            await world.take(choice)
        while (signature := world.signature()) not in visited:  # on with the first choice, the others another time
            visited.add(signature)
            await world.check_always()
            choices = world.choices()
            if not [choice for choice in choices if choice.split()[0] in {"go", "type"}]:
                ends += 1
                await world.check_end()
                outcomes.add(" ".join(sorted(link.state for link in await world.links.links(ended_too=True))))
            if not choices:
                break
            paths += [(*path, choice) for choice in choices[1:]]
            path = (*path, choices[0])
            await world.take(choices[0])
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await world.quiet()
        database.connection.execute("ROLLBACK")
    return len(visited), ends, outcomes


@pytest.fixture
def database(tmp_path: Path) -> Iterator[AtOnce]:
    with closing(connect(empty_database(tmp_path / "ethos.sqlite"))) as connection:
        yield AtOnce(connection)


@pytest.mark.parametrize(
    ("name", "ticks", "crashes", "expected"),
    [RUNS[0], *(pytest.param(*run, marks=pytest.mark.slow) for run in RUNS[1:])],
)
async def test_it_is_never_linked_without_both_proofs_never_half_and_a_code_is_used_once(
    name: str,
    ticks: int,
    crashes: int,
    expected: set[str],
    *,
    database: AtOnce,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Row 22, in every interleaving of the parties, the clock and a crash."""
    monkeypatch.setattr(chat, "secrets", SimpleNamespace())
    states, ends, outcomes = await explore(SCENARIOS[name], ticks=ticks, crashes=crashes, database=database)
    assert states > 400, "the search went somewhere"
    assert ends > (30 if name == FEW_ENDS else 50)
    assert outcomes == expected
