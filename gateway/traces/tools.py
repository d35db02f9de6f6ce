"""The seven tools by which the agent works on its traces; names, inputs, outputs and errors as in the contract."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from gateway.domain.visible import without_hidden
from gateway.errors import TraceError
from gateway.memory.fact_changes import FactChange, as_proposed
from gateway.tools.contract import MAX_RESULT_CHARS, Arguments, Tool, ToolContext, ToolError
from gateway.traces.archive import rehydrate
from gateway.traces.consolidation import Consolidation
from gateway.traces.rows import NOT_SHARED
from gateway.traces.search import MOST, TraceQuery
from gateway.traces.trace import ScopeKind, Trace, TraceType, Viewer, merge_tags, where_of
from gateway.traces.trace_store import TraceStore, check_content
from gateway.traces.turn_facts import viewer_of

TraceId = Annotated[str, Field(alias="traceId", min_length=1, description="as another memory tool gave it")]
_Shown = AfterValidator(without_hidden)
Tags = Annotated[tuple[Annotated[str, _Shown, Field(min_length=1, max_length=100)], ...], Field(max_length=50)]
LONGEST_PROPOSED_CHARS = 8_000
Content = Annotated[str, _Shown, Field(max_length=20_000)]


def _needs_yes(context: ToolContext) -> bool:
    """Whether a change waits for approval, so that text of others cannot add, change or remove a fact.

    Raises:
        ToolError: nothing may be written at all.
    """
    if context.writes == "off":
        raise ToolError("nothing may be written to the memory here")
    return context.is_reviewed


def _proposed(change: FactChange) -> str:
    """The answer of a tool whose change waits; the turn makes a proposal of it.

    Raises:
        ToolError: it would not be answered whole.
    """
    answer = as_proposed(change)
    if len(answer) > MAX_RESULT_CHARS:
        raise ToolError(f"this is too long to wait for a person's yes; say it in {LONGEST_PROPOSED_CHARS} characters")
    return answer


def trace_tools(trace_store: TraceStore, consolidation: Consolidation) -> Sequence[Tool]:
    """All seven; `rehydrate_memory` is for personalities that name it."""
    return (
        _add(trace_store),
        _update(trace_store),
        _delete(trace_store),
        _merge(trace_store),
        _search(trace_store),
        _reflect(consolidation),
        _rehydrate(trace_store),
    )


def _json(**values: Any) -> str:
    return json.dumps(values, ensure_ascii=False)


class MemoryAdd(Arguments):
    """Arguments of `memory_add`."""

    content: Annotated[Content, Field(description="one fact, in one sentence that stands alone")]
    type: Annotated[
        TraceType,
        Field(
            description="episodic: what happened; semantic: what is so; procedural: how something is done; "
            "prospective: what is to be done"
        ),
    ] = "episodic"
    scope: Annotated[
        ScopeKind,
        Field(
            description="whose it is: user, of this person everywhere; persona, of this person with you; thread, of "
            "this conversation; organization, of owners and members"
        ),
    ] = "user"
    tags: Annotated[Tags, Field(description="`keep` protects it from ever fading away")] = ()


def _add(trace_store: TraceStore) -> Tool:
    async def call(arguments: MemoryAdd, context: ToolContext) -> str:
        viewer = viewer_of(context.scope, context.role)
        try:
            if _needs_yes(context):
                return _propose_new(viewer, arguments)
            trace = Trace(
                content=arguments.content.strip(),
                owner=viewer.owner(arguments.scope),
                type=arguments.type,
                stability_ms=trace_store.stability_ms,
                tags=merge_tags(arguments.tags),
                metadata=where_of(context.scope),
                created_at=trace_store.now(),
                last_accessed_at=trace_store.now(),
                author=viewer.user_id,
                conversation=context.scope.session_id,
            )
            return _json(traceId=(await trace_store.add(viewer, trace)).id)
        except TraceError as error:
            raise ToolError(str(error)) from error

    return Tool(
        name="memory_add",
        description=(
            "Remember one fact for later conversations. Use it when the person says something lasting about "
            "themselves, their plans or their work, or asks you to remember it; not for small talk, and not for what "
            "you can look up. The same fact again changes nothing."
        ),
        arguments=MemoryAdd,
        call=call,
        effect="own",
        is_idempotent=True,
    )


def _propose_new(viewer: Viewer, arguments: MemoryAdd) -> str:
    content, owner = arguments.content.strip(), viewer.owner(arguments.scope)
    check_content(content)
    if not viewer.may_change(owner):
        raise TraceError(NOT_SHARED)
    tags = merge_tags(arguments.tags)
    change = FactChange(action="add", scope=arguments.scope, content=content, type=arguments.type, tags=tags)
    return _proposed(change)


class MemoryUpdate(Arguments):
    """Arguments of `memory_update`."""

    trace_id: TraceId
    content: Content | None = None
    tags: Tags | None = None


def _update(trace_store: TraceStore) -> Tool:
    async def call(arguments: MemoryUpdate, context: ToolContext) -> str:
        content = None if arguments.content is None else arguments.content.strip()
        if content is None and arguments.tags is None:
            raise ToolError("memory_update needs `content` or `tags`")
        try:
            if _needs_yes(context):
                return await _propose_update(trace_store, viewer_of(context.scope, context.role), arguments, content)
            updated = await trace_store.update(
                viewer_of(context.scope, context.role), arguments.trace_id, content=content, tags=arguments.tags
            )
        except TraceError as error:
            raise ToolError(str(error)) from error
        return _json(updated=updated)

    return Tool(
        name="memory_update",
        description=(
            "Correct a fact that you remember: give the content or the tags that it is to have. Find its id with "
            "memory_search first. False: there is no such fact."
        ),
        arguments=MemoryUpdate,
        call=call,
        effect="own",
        is_idempotent=True,
    )


async def _propose_update(trace_store: TraceStore, viewer: Viewer, arguments: MemoryUpdate, content: str | None) -> str:
    if content is not None:
        check_content(content)
    scope = await trace_store.check_change(viewer, [arguments.trace_id])
    if scope is None:
        return _json(updated=False)
    ids, tags = (arguments.trace_id,), arguments.tags
    return _proposed(FactChange(action="update", scope=scope, trace_ids=ids, content=content, tags=tags))


class MemoryDelete(Arguments):
    """Arguments of `memory_delete`."""

    trace_id: TraceId


def _delete(trace_store: TraceStore) -> Tool:
    async def call(arguments: MemoryDelete, context: ToolContext) -> str:
        viewer = viewer_of(context.scope, context.role)
        try:
            if _needs_yes(context):
                scope = await trace_store.check_change(viewer, [arguments.trace_id])
                if scope is None:
                    return _json(deleted=False)
                return _proposed(FactChange(action="delete", scope=scope, trace_ids=(arguments.trace_id,)))
            return _json(deleted=await trace_store.delete(viewer, arguments.trace_id))
        except TraceError as error:
            raise ToolError(str(error)) from error

    return Tool(
        name="memory_delete",
        description=(
            "Forget a fact that is wrong, or that the person asks you to forget. Find its id with memory_search "
            "first. False: there is no such fact."
        ),
        arguments=MemoryDelete,
        call=call,
        effect="own",
    )


class MemoryMerge(Arguments):
    """Arguments of `memory_merge`."""

    trace_ids: Annotated[tuple[str, ...], Field(alias="traceIds", max_length=100, description="two or more")]
    content: Annotated[Content | None, Field(description="what they say together; else their texts are joined")] = None


def _merge(trace_store: TraceStore) -> Tool:
    async def call(arguments: MemoryMerge, context: ToolContext) -> str:
        viewer, ids = viewer_of(context.scope, context.role), arguments.trace_ids
        content = (arguments.content or "").strip() or None
        try:
            if _needs_yes(context):
                scope = await trace_store.check_change(viewer, ids, is_merge=True) or "user"
                return _proposed(FactChange(action="merge", scope=scope, trace_ids=ids, content=content))
            merged = await trace_store.merge(viewer, ids, arguments.content)
        except TraceError as error:
            raise ToolError(str(error)) from error
        return _json(mergedTraceId=merged.id, sourcesDeleted=merged.sources_deleted)

    return Tool(
        name="memory_merge",
        description="Put one fact in the place of two or more that say the same or belong together.",
        arguments=MemoryMerge,
        call=call,
        effect="own",
    )


class MemorySearch(Arguments):
    """Arguments of `memory_search`."""

    query: Annotated[
        str,
        Field(description='a question or words, any of which may occur; "a phrase", AND, OR, NOT and prefix* work'),
    ]
    type: TraceType | None = None
    scope: ScopeKind | None = None
    limit: Annotated[int, Field(ge=1, le=MOST)] = 10


def _search(trace_store: TraceStore) -> Tool:
    async def call(arguments: MemorySearch, context: ToolContext) -> str:
        wanted = TraceQuery(query=arguments.query, type=arguments.type, scope=arguments.scope, limit=arguments.limit)
        results = [
            {
                "id": found.trace.id,
                "content": found.trace.content,
                "type": found.trace.type,
                "scope": found.trace.owner.kind,
                "strength": round(found.strength, 4),
                "tags": list(found.trace.tags),
            }
            for found in await trace_store.search(viewer_of(context.scope, context.role), wanted)
        ]
        return _json(results=results)

    return Tool(
        name="memory_search",
        description=(
            "Search the facts that you remember about this person and what they share with you. Use it before you say "
            "that you do not know something about them, and before you correct or forget a fact."
        ),
        arguments=MemorySearch,
        call=call,
        effect="read",
    )


class MemoryReflect(Arguments):
    """Arguments of `memory_reflect`."""

    topic: Annotated[str | None, Field(description="why, for the log")] = None


def _reflect(consolidation: Consolidation) -> Tool:
    async def call(arguments: MemoryReflect, context: ToolContext) -> str:
        reason = f"tool: {arguments.topic[:200]}" if arguments.topic else "tool"
        done = asdict(await consolidation.run(viewer_of(context.scope, context.role), reason=reason))
        counts = {name: done[name] for name in ("pruned", "merged", "derived", "compacted")}
        return _json(**counts, durationMs=done["duration_ms"])

    return Tool(
        name="memory_reflect",
        description=(
            "Tidy up what you remember: drop what has faded, merge what says the same, note what facts show together. "
            "It also runs on a schedule; call it only when the person asks for it."
        ),
        arguments=MemoryReflect,
        call=call,
        effect="own",
    )


class RehydrateMemory(Arguments):
    """Arguments of `rehydrate_memory`."""

    trace_id: TraceId


def _rehydrate(trace_store: TraceStore) -> Tool:
    async def call(arguments: RehydrateMemory, context: ToolContext) -> str:
        found = await rehydrate(trace_store, viewer_of(context.scope, context.role), arguments.trace_id)
        archived_at = None if found.archived_at is None else found.archived_at.isoformat()
        return _json(verbatimContent=found.verbatim_content, archivedAt=archived_at)

    return Tool(
        name="rehydrate_memory",
        description="The full text of a fact that was shortened because it was old; nulls where there is none.",
        arguments=RehydrateMemory,
        call=call,
        effect="read",
        is_opt_in=True,
    )
