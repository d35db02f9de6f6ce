"""The memory: what it says, where it comes from, and how people change it."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from gateway.config import LiveConfig
from gateway.domain.personalities import Personalities, Personality
from gateway.domain.roles import may
from gateway.domain.visible import hidden_count, without_hidden
from gateway.errors import InvalidId, MemoryConflict
from gateway.memory.offered import PROTOCOLS, lacking, offered
from gateway.memory.paths import document_key
from gateway.memory.proposals import Proposal, ProposalStore, Reviewer, is_shared, may_write, proposal_number
from gateway.memory.query import telling_terms
from gateway.memory.review import MemoryReview
from gateway.memory.rules import clean
from gateway.memory.tokenizer import Matcher
from gateway.people.identity.identities import Identities
from gateway.people.linking.links import LinkStore
from gateway.protocols import (
    EditableMemory,
    HistoricMemory,
    KeepsFiles,
    MemoryChange,
    MemoryDocument,
    MemoryProvider,
    MemoryScope,
    MemoryStoreName,
    MemoryUpdate,
    SearchableMemory,
)
from gateway.sdk.models import memory as wire
from gateway.services.caller import Caller, Malformed, NotFound, Refused
from gateway.services.naming import Naming, Wanted, scope_of
from gateway.services.traces import TraceService

T = TypeVar("T")
S = TypeVar("S")

_LOOKED_AT = 200
_AT_ONCE = 8
"""Questions to a memory that may lie elsewhere."""
_WAITING_AT_MOST = 30
"""Proposals of one program."""
_PARAGRAPHS = re.compile(r"\n\s*\n")


class MemoryService:
    """The one view of the memory: what the agent reads next turn.

    The operator sees and changes everything. The key of a person sees what is that person's alone. A person in a chat
    sees the memory of the personality who answers there, as far as their role may read it. Of what others read, too,
    they take back what they brought in, and the owner takes back everything.

    Every method raises `NotAllowed` for what the caller may not see, `InvalidId` for an id that can be none,
    `NotOffered` for what the chosen memory cannot do, and `FileError` or `MemoryUnavailable` where it cannot now.
    """

    def __init__(
        self,
        *,
        provider: MemoryProvider,
        kind: str,
        review: MemoryReview,
        proposals: ProposalStore,
        personalities: Personalities,
        identities: Identities,
        links: LinkStore,
        naming: Naming,
        traces: TraceService,
        config: LiveConfig,
    ) -> None:
        self._provider = provider
        self._kind = kind
        self._review = review
        self._proposals = proposals
        self._personalities = personalities
        self._identities = identities
        self._links = links
        self._naming = naming
        self._traces = traces
        self._config = config

    # ---- what there is ----------------------------------------------------------------------------------------------

    def provider(self) -> wire.MemoryKind:
        """What the chosen memory can do, and why it cannot do the rest."""
        lacks = lacking(self._provider, has_facts=self._traces.is_on)
        can = {name: name not in lacks for name in ("origins", *PROTOCOLS)}
        return wire.MemoryKind(kind=self._kind, lacks=lacks, **can)

    async def file(self, caller: Caller, wanted: Wanted) -> Path | None:
        """The file that people edit, which a page may watch; None where the memory keeps none on this machine."""
        if not isinstance(self._provider, KeepsFiles):
            return None
        return self._provider.file_of(*await self._one(caller, wanted))

    # ---- documents --------------------------------------------------------------------------------------------------

    async def get(self, caller: Caller, wanted: Wanted) -> wire.Document:
        """One document as it is now, empty where there is none yet; of a memory without documents, what a turn reads.

        Raises:
            NotNamed: it is not clear whose, or which.
            PersonalityError: there is no such personality.
        """
        scope, store = await self._one(caller, wanted)
        return self._document(scope, store, await self._read(scope, store))

    async def write(self, caller: Caller, wanted: Wanted, content: str, expected_version: str) -> wire.Document:
        """Replace a document, if it is still the version that was read, or says the same already.

        Raises:
            MemoryConflict: it is not; carries both texts.
            and as `get`.
        """
        memory = offered(self._provider, EditableMemory)  # type: ignore[type-abstract]
        scope, store = await self._one(caller, wanted)
        try:
            document = await memory.write(scope, store, content, expected_version)
        except MemoryConflict as conflict:
            if conflict.current != conflict.proposed:
                raise
            document = await memory.read(scope, store)  # a repetition, or another person wrote the same
        return self._document(scope, store, document)

    async def documents(
        self, caller: Caller, *, limit: int, after: str | None = None
    ) -> tuple[list[wire.DocumentInfo], str | None]:
        """The documents that are there, people's first, and the name behind which the next page begins.

        Only those of the page are read, and a few behind them, however many people there are.
        """
        places = [(name, place) for name, place in await self._places(caller) if _is_behind(name, after)]
        found: list[tuple[str, wire.DocumentInfo]] = []
        for start in range(0, len(places), _AT_ONCE):
            part = places[start : start + _AT_ONCE]
            read = await asyncio.gather(*(self._read(scope, store) for _, (scope, store) in part))
            for (name, (scope, store)), document in zip(part, read, strict=True):
                if document.modified_at is not None or document.content:
                    found.append((name, self._info(scope, store, document)))
            if len(found) > limit:
                break
        shown = [info for _, info in found[:limit]]
        return shown, found[limit - 1][0] if len(found) > limit else None

    async def search(self, caller: Caller, wanted: Wanted, query: str, *, limit: int) -> list[wire.Passage]:
        """The passages that fit a question best; in what others read, too, so it is not for the key of a person."""
        caller.refuse_others(None)
        memory = offered(self._provider, SearchableMemory)  # type: ignore[type-abstract]
        scope, _ = await self._naming.memory(caller, wanted)
        hits = await memory.search(scope, query, limit)
        return [wire.Passage(text=one.text, score=one.score, store=one.store, source=one.source) for one in hits]

    async def find(self, caller: Caller, wanted: Wanted, query: str, *, limit: int) -> list[wire.Passage]:
        """The paragraphs of the documents that have most words of a question; every memory can do that, for everybody.

        The score is the share of the words. Raises as `get`.
        """
        scope, stores = await self._naming.memory(caller, wanted)
        documents = [(store, await self._read(scope, store)) for store in stores]
        return await asyncio.to_thread(_fitting, documents, query, limit)

    # ---- history ----------------------------------------------------------------------------------------------------

    async def history(
        self, caller: Caller, wanted: Wanted | None, *, limit: int, before: int | None = None
    ) -> list[wire.Change]:
        """The newest changes, of one document or (None) of all that the caller may see, newest first.

        Args:
            before: only those that follow the change of this id; not for a person in a chat, who gets one page.
        """
        memory = self._historic
        entries: Sequence[MemoryChange]
        if wanted is not None:
            scope, store = await self._one(caller, wanted)
            entries = await memory.log(scope, store, limit, before)
        elif caller.chat is not None:
            entries = await self._log_here(caller, limit)
        else:
            caller.refuse_others(None)
            entries = await memory.log(limit=limit, before=before)
        return [_change_for(caller, entry) for entry in entries]

    async def change_to(self, caller: Caller, wanted: Wanted, version: str) -> wire.Change | None:
        """The newest change of a document, if it left this version; None where it was edited since, or not known."""
        if not isinstance(self._provider, HistoricMemory):
            return None
        scope, store = await self._one(caller, wanted)
        entries = await self._provider.log(scope, store, 1)
        return _change_for(caller, entries[0]) if entries and entries[0].hash_after == version else None

    async def diff(self, caller: Caller, change_id: int) -> wire.ChangeTexts:
        """A change, with the whole texts around it.

        Raises:
            NoSuchEntry: its texts are not known any more.
            NotFound: there is no such change.
        """
        entry, _, _ = await self._entry(caller, change_id)
        before, after = await self._historic.texts(change_id)
        return wire.ChangeTexts(
            change=_change_for(caller, entry),
            before=before.decode("utf-8", "replace"),
            after=after.decode("utf-8", "replace"),
        )

    async def restore(self, caller: Caller, change_id: int, expected_version: str) -> wire.Document:
        """Put the text as a change left it in place again.

        Raises:
            MemoryConflict: the document is not the expected version; carries both texts.
            NoSuchEntry: the text is not known any more.
            NotFound: there is no such change.
        """
        _, scope, store = await self._entry(caller, change_id)
        _, after = await self._historic.texts(change_id)
        return self._document(scope, store, await self._historic.restore(scope, store, after, expected_version))

    async def undo(self, caller: Caller, change_id: int) -> wire.Document:
        """The same as `take_back`, for callers who want the document as it is then."""
        _, document = await self._taken_back(caller, change_id)
        return document

    async def take_back(self, caller: Caller, change_id: int | None = None) -> wire.Change:
        """Bring back the bytes from before a change, if nothing has changed since; the change.

        Args:
            change_id: None, in a chat, for the newest change that the person may take back.

        Raises:
            MemoryConflict: something has; carries both texts.
            NoSuchEntry: it cannot be taken back.
            NotFound: there is no such change that the caller may take back.
        """
        change, _ = await self._taken_back(caller, change_id)
        return change

    async def why(self, caller: Caller, wanted: Wanted, line: str) -> wire.Origin:
        """Where a line, or a part of one, comes from; without a store the user's document is looked at first.

        Raises:
            NotFound: no change is known that brought it in, and no fact holds its words.
            and as `get`.
        """
        scope, stores = await self._naming.memory(caller, wanted)
        facts = tuple(await self._traces.origins(caller, scope.user_id, line))
        entry = None
        if isinstance(self._provider, HistoricMemory) or not self._traces.is_on:
            entry = await self._historic.why(scope, line, stores[0] if len(stores) == 1 else None)
        if entry is None and not facts:
            where = " and ".join({"user": "USER.md", "memory": "MEMORY.md"}[store] for store in stores)
            raise NotFound(
                f"no known change brought {line!r} into {where}. Give a part of one line as the file has it; a line "
                "that was there before the gateway's first write has no history"
            )
        if entry is None:
            return wire.Origin(change=None, turn=None, proposal=None, facts=facts)
        number = proposal_number(entry.turn_id)
        proposal = None if number is None else await self._proposals.proposal(number)
        return wire.Origin(
            change=_change_for(caller, entry),
            turn=entry.turn_id if proposal is None else proposal.scope.turn_id,
            proposal=None if proposal is None else await self._proposal(proposal, await self._reviewer(caller)),
            facts=facts,
        )

    # ---- proposals --------------------------------------------------------------------------------------------------

    async def proposals(
        self, caller: Caller, *, state: wire.ProposalState | None = "waiting", limit: int = 200
    ) -> list[wire.Proposal]:
        """The newest that wait, or were decided, and that the caller may see; oldest first."""
        reviewer, asked = await self._reviewer(caller), limit
        while True:  # those of others must not fill the page
            found = await self._proposals.proposals(state=state, limit=asked)
            visible = [one for one in found if reviewer.may_see(one)]
            if len(visible) >= limit or len(found) < asked:
                return await _each(visible[-limit:], lambda one: self._proposal(one, reviewer))
            asked *= 4

    async def waiting(self, caller: Caller) -> int:
        """How many wait that the caller may see."""
        return len(await self._review.waiting(await self._reviewer(caller)))

    async def proposal(self, caller: Caller, proposal_id: int) -> wire.Proposal:
        """One.

        Raises:
            NoSuchProposal: there is none, or not for the caller.
        """
        reviewer = await self._reviewer(caller)
        return await self._proposal(await self._review.proposal(proposal_id, reviewer), reviewer)

    async def propose(self, caller: Caller, wanted: Wanted, update: MemoryUpdate, *, seed: str) -> wire.Proposal:
        """Have a person decide on a change that a program wants, of the store that the update names.

        Args:
            seed: the same for a repetition, which then proposes nothing twice.

        Raises:
            Malformed: nothing of its text can be seen.
            Refused: the personality remembers nothing new, or too much of the program waits already.
            and as `get`.
        """
        update = replace(update, content=clean(without_hidden(update.content)))
        if not update.content.strip():
            raise Malformed("the text is blank; give one that people can see")
        scope, _ = await self._naming.memory(caller, replace(wanted, store=update.store))
        writes = self._personalities.get(scope.personality_id).memory_writes
        if not may_write(scope, update.store, writes=writes, role="owner"):  # whose it is was decided with its name
            raise Refused("this personality remembers nothing new")
        digest = hashlib.sha256(f"{caller.key_id} {caller.user_id} {seed}".encode()).hexdigest()
        scope = replace(scope, turn_id=f"program:{digest[:32]}", author_id=caller.user_id)
        if not await self._proposals.of_turn(scope.turn_id):
            waiting = [one for one in await self._proposals.proposals() if one.scope.channel == caller.name]
            if len(waiting) >= _WAITING_AT_MOST:
                raise Refused(
                    f"{len(waiting)} proposals of this program wait; have them decided before you send others"
                )
            number = await self._proposals.reserve(1)
            sources = (f"words of the program {caller.name}",)
            proposal = Proposal(id=number, scope=scope, store=update.store, updates=(update,), sources=sources)
            await self._proposals.add((proposal,))
        [proposal] = await self._proposals.of_turn(scope.turn_id)
        if proposal.updates != (update,):
            raise Refused("this key was used for another proposal; take a new one")
        return await self._proposal(proposal, await self._reviewer(caller))

    async def approve(self, caller: Caller, proposal_id: int) -> wire.Proposal:
        """Apply it, exactly once; raises `NoSuchProposal`, and `NotReviewable` where that cannot be done."""
        reviewer = await self._reviewer(caller)
        approved = await self._proposal(await self._review.approve(proposal_id, reviewer), reviewer)
        return approved.model_copy(update={"is_late": self._review.late > 0})

    async def refuse(self, caller: Caller, proposal_id: int) -> wire.Proposal:
        """Refuse it; raises as `approve`."""
        reviewer = await self._reviewer(caller)
        return await self._proposal(await self._review.refuse(proposal_id, reviewer), reviewer)

    async def edit(self, caller: Caller, proposal_id: int, content: str) -> wire.Proposal:
        """Change its text; raises as `approve`."""
        reviewer = await self._reviewer(caller)
        return await self._proposal(await self._review.edit(proposal_id, content, reviewer), reviewer)

    # ---- pieces -----------------------------------------------------------------------------------------------------

    @property
    def _historic(self) -> HistoricMemory:
        return offered(self._provider, HistoricMemory)  # type: ignore[type-abstract]

    async def _read(self, scope: MemoryScope, store: MemoryStoreName) -> MemoryDocument:
        """A document; of a memory without documents, the text that a turn is given of it."""
        if isinstance(self._provider, EditableMemory):
            return await self._provider.read(scope, store)
        given = await self._provider.prefetch(scope)
        texts = {} if given is None else {"user": given.user_memory, "memory": given.project_memory}
        content = texts.get(store) or ""
        version = hashlib.sha256(content.encode("utf-8", "replace")).hexdigest()
        return MemoryDocument(content=content, location=self._kind, modified_at=None, version=version)

    async def _one(self, caller: Caller, wanted: Wanted) -> tuple[MemoryScope, MemoryStoreName]:
        scope, stores = await self._naming.memory(caller, wanted)
        return scope, stores[0]

    async def _entry(self, caller: Caller, change_id: int) -> tuple[MemoryChange, MemoryScope, MemoryStoreName]:
        """A change, and the document that it is of, as the caller may see it.

        Raises:
            NotFound: there is none, or not for the caller.
        """
        found = await self._visible(caller, change_id)
        if found is None:
            raise NotFound(f"there is no change {change_id}")
        return found

    async def _visible(
        self, caller: Caller, change_id: int
    ) -> tuple[MemoryChange, MemoryScope, MemoryStoreName] | None:
        entry = await self._historic.change(change_id)
        if entry is None or not entry.document:
            return None
        if caller.chat is None:
            scope, store = scope_of(caller, entry.document)
            return (entry, scope, store) if caller.user_id in (None, scope.user_id) else None
        here, stores = await self._naming.memory(caller, Wanted())
        return next(((entry, here, one) for one in stores if document_key(here, one) == entry.document), None)

    async def _log_here(self, caller: Caller, limit: int) -> list[MemoryChange]:
        """The newest changes of both documents that a person in a chat talks with."""
        scope, stores = await self._naming.memory(caller, Wanted())
        found = [entry for store in stores for entry in await self._historic.log(scope, store, limit)]
        return sorted(found, key=lambda entry: (entry.at, entry.id), reverse=True)[:limit]

    async def _taken_back(self, caller: Caller, change_id: int | None) -> tuple[wire.Change, wire.Document]:
        known = [] if caller.chat is None else await self._log_here(caller, _LOOKED_AT)
        reviewer, mine = await self._reviewer(caller), _undone_by(caller, known)
        if mine is not None:  # an earlier try of the same turn did it
            change_id = mine.refers_to
        elif change_id is None:
            change_id = next((one.id for one in _open(known) if _may_undo(caller, one, reviewer)), None)
        if change_id is None:
            raise NotFound("there is no change that you may take back; `log` lists the changes")
        found = await self._visible(caller, change_id)
        if found is None or not _may_undo(caller, found[0], reviewer):
            raise NotFound(f"there is no change {change_id} that you may take back; `log` lists the changes")
        entry, scope, store = found
        if mine is None:
            document = await self._historic.undo(scope, change_id)
        else:
            document = await self._read(scope, store)
        return _change_for(caller, entry), self._document(scope, store, document)

    async def _places(self, caller: Caller) -> Sequence[tuple[str, tuple[MemoryScope, MemoryStoreName]]]:
        """Wherever a document may be, by its name in the journal, in the order of the list."""
        await self._personalities.refresh()
        scopes = {one.id: one.memory_scope for one in self._personalities.list() if isinstance(one, Personality)}
        users = [user.id for user in await self._identities.users()] if caller.user_id is None else [caller.user_id]
        names = {f"users/{user}/USER.md" for user in users}
        names |= {
            f"users/{user}/personalities/{one}/MEMORY.md"
            for one, place in scopes.items()
            for user in users
            if place == "per-user"
        }
        if caller.user_id is None:
            names |= {f"personalities/{one}/MEMORY.md" for one, place in scopes.items() if place == "per-personality"}
            names |= {"MEMORY.md" for place in scopes.values() if place == "global"}
        return [(name, scope_of(caller, name)) for name in sorted(names, key=_order)]

    def _document(self, scope: MemoryScope, store: MemoryStoreName, document: MemoryDocument) -> wire.Document:
        return wire.Document(content=document.content, **dict(self._info(scope, store, document)))

    def _info(self, scope: MemoryScope, store: MemoryStoreName, document: MemoryDocument) -> wire.DocumentInfo:
        sizes = self._config.current.memory
        personality, user = _named_by(scope, store)
        return wire.DocumentInfo(
            store=store,
            personality=personality,
            user=user,
            location=document.location,
            modified_at=document.modified_at,
            version=document.version,
            bytes=len(document.content.encode("utf-8", "replace")),
            max_bytes=sizes.max_file_bytes,
            chars=len(document.content),
            max_chars=sizes.max_chars,
        )

    async def _proposal(self, proposal: Proposal, reviewer: Reviewer) -> wire.Proposal:
        """A proposal as it goes over the wire."""
        scope = proposal.scope
        return wire.Proposal(
            id=proposal.id,
            state=proposal.state,
            store=proposal.store,
            personality=scope.personality_id,
            user=scope.user_id,
            author=scope.author_id,
            channel=scope.channel,
            session=scope.session_id,
            turn=scope.turn_id,
            place=scope.place,
            part=proposal.part,
            updates=_updates_of(proposal),
            fact=None if proposal.fact is None else dict(proposal.fact.as_value()),
            sources=proposal.sources,
            hidden_characters=hidden_count(proposal.text),
            is_edited=proposal.is_edited,
            proposed_at=proposal.proposed_at,
            decided_at=proposal.decided_at,
            decided_by=proposal.decided_by,
            diff=await self._review.difference(proposal) if proposal.state == "waiting" else "",
            is_decidable=reviewer.may_decide(proposal),
        )

    async def _reviewer(self, caller: Caller) -> Reviewer:
        """As whom the caller decides on proposals: a person on their own ones, the owner in a chat on shared ones."""
        if caller.user_id is None:
            return Reviewer(user_id=None)
        role = "member" if caller.chat is None else caller.chat.role
        if caller.signed_in is not None:
            role = caller.signed_in.role
        ids = tuple(await self._links.person_ids(caller.user_id))
        return Reviewer(user_id=caller.user_id, role=role, other_ids=ids)


def _fitting(documents: Sequence[tuple[MemoryStoreName, MemoryDocument]], query: str, limit: int) -> list[wire.Passage]:
    """The paragraphs that have some of the words, those with most of them first. Takes 0.1 s for large documents."""
    terms = telling_terms(query)
    matcher = Matcher(terms)
    found = [
        wire.Passage(text=text, score=share, store=store, source=document.location)
        for store, document in documents
        for text in filter(None, map(str.strip, _PARAGRAPHS.split(document.content)))
        if (share := sum(map(bool, matcher.counts(text))) / max(1, len(terms))) > 0
    ]
    return sorted(found, key=lambda one: -one.score)[:limit]


def _change_for(caller: Caller, entry: MemoryChange) -> wire.Change:
    """A change as it goes over the wire; in a chat only the owner is told of others who they are."""
    store: MemoryStoreName | None = None
    personality = user = None
    with contextlib.suppress(InvalidId):  # the change found no document, or was refused for its name
        scope, store = scope_of(caller, entry.document)
        personality, user = _named_by(scope, store)
    is_hidden = caller.chat is not None and caller.chat.role != "owner" and entry.author_id != caller.user_id
    return wire.Change(
        id=entry.id,
        at=entry.at,
        store=store,
        personality=personality,
        user=user,
        author=None if is_hidden or entry.action == "edit" else entry.author_id,
        channel=entry.channel,
        session=entry.session_id,
        turn=entry.turn_id,
        turn_user=None if is_hidden else entry.user_id,
        turn_personality=entry.personality_id,
        document=entry.document,
        action=entry.action,
        outcome=entry.outcome,
        content=entry.content,
        diff=entry.diff,
        version_before=entry.hash_before,
        version_after=entry.hash_after,
        refers_to=entry.refers_to,
    )


def _may_undo(caller: Caller, entry: MemoryChange, reviewer: Reviewer) -> bool:
    """Of what others read, too, the owner takes back everything, a member what they brought in, a guest nothing."""
    chat = caller.chat
    if chat is None or chat.role == "owner" or not is_shared(*scope_of(caller, entry.document)):
        return True
    return may(chat.role, "write shared memory") and reviewer.is_called(entry.author_id)


def _undone_by(caller: Caller, entries: Sequence[MemoryChange]) -> MemoryChange | None:
    """What this very turn has taken back already."""
    chat = caller.chat
    return None if chat is None else next((one for one in entries if one.turn_id.startswith(f"{chat.turn_id}:")), None)


def _open(entries: Sequence[MemoryChange]) -> Sequence[MemoryChange]:
    """Those that count and were not taken back, newest first."""
    undone = {one.refers_to for one in entries if one.action == "undo"}
    return [
        one
        for one in entries
        if one.outcome == "applied" and one.action not in {"undo", "edit"} and one.id not in undone
    ]


async def _each(items: Sequence[S], ask: Callable[[S], Awaitable[T]]) -> list[T]:
    """What each becomes, in order; a few are asked at once."""
    found: list[T] = []
    for start in range(0, len(items), _AT_ONCE):
        found += await asyncio.gather(*(ask(one) for one in items[start : start + _AT_ONCE]))
    return found


def _is_behind(name: str, after: str | None) -> bool:
    return after is None or _order(name) > _order(after)


def _order(name: str) -> tuple[bool, str]:
    """Where a document stands in the list, by its name: a page goes on behind one that is gone meanwhile, too."""
    return not name.startswith("users/"), name


def _named_by(scope: MemoryScope, store: MemoryStoreName) -> tuple[str | None, str | None]:
    """The personality and the user that the name of a document has; None where it has none."""
    personality = scope.personality_id if store == "memory" and scope.place != "global" else None
    return personality, scope.user_id if store == "user" or scope.place == "per-user" else None


def _updates_of(proposal: Proposal) -> tuple[wire.ProposedUpdate, ...]:
    if proposal.fact is None:
        return tuple(wire.ProposedUpdate(action=one.action, content=one.content) for one in proposal.updates)
    content = proposal.fact.content
    return () if content is None else (wire.ProposedUpdate(action="add", content=content),)
