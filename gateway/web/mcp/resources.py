"""The resources of the MCP server: documents of the memory, then sessions, as the caller may see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import parse_qsl, urlencode, urlsplit

from mcp_types import ListResourcesResult, Resource, ResourceTemplate, TextResourceContents

from gateway.protocols import MemoryStoreName
from gateway.sdk.models.memory import DocumentInfo
from gateway.sdk.models.sessions import Session
from gateway.services.caller import Caller, NotAllowed, NotFound, Permission
from gateway.services.naming import Wanted
from gateway.services.operator_services import OperatorServices
from gateway.services.sessions import SessionQuery
from gateway.web.api.paging import cursor_of, place_of

AT_ONCE = 50
SCHEME = "ethos"
MARKDOWN = "text/markdown"
_STORES: Mapping[str, MemoryStoreName] = {"user": "user", "memory": "memory"}
TEMPLATES = (
    ResourceTemplate(
        name="memory",
        title="A document of the memory",
        uri_template=f"{SCHEME}://memory/{{store}}{{?personality,user}}",
        description="`user` is about the person, `memory` is everything else.",
        mime_type=MARKDOWN,
    ),
    ResourceTemplate(
        name="session",
        title="A session",
        uri_template=f"{SCHEME}://sessions/{{session}}",
        description="A conversation with the agent, whole.",
        mime_type=MARKDOWN,
    ),
)


async def listed(caller: Caller, services: OperatorServices, cursor: str | None) -> ListResourcesResult:
    """A page.

    Raises:
        WrongCursor: it is none of this list.
    """
    place = place_of("resources", cursor, str, int, int) or ("", 0, 0)
    after, at, number = str(place[0]), int(place[1]), int(place[2])
    found: list[Resource] = []
    if not number and caller.may("memory:read"):
        documents, behind = await services.memory.documents(caller, limit=AT_ONCE, after=after or None)
        found = [_of_document(one) for one in documents]
        if behind is not None:
            return _page(found, (behind, 0, 0))
    if not caller.may("sessions:read"):
        return _page(found, None)
    room, before = max(1, AT_ONCE - len(found)), (at, number) if number else None
    sessions, more = await services.sessions.find(caller, SessionQuery(), limit=room, after=before)
    return _page([*found, *map(_of_session, sessions)], None if more is None else ("", *more))


async def read(caller: Caller, services: OperatorServices, uri: str) -> Sequence[TextResourceContents]:
    """The text of one.

    Raises:
        NotFound: there is none of that address.
        NotAllowed: the caller lacks a scope, or it is not theirs.
        and as the services have it.
    """
    parts = urlsplit(uri)
    name, asked = parts.path.removeprefix("/"), dict(parse_qsl(parts.query))
    if parts.scheme != SCHEME or not name:
        raise NotFound(f"there is no resource {uri}; `resources/list` lists all")
    if parts.netloc == "sessions":
        _require(caller, "sessions:read")
        text = await services.sessions.markdown(caller, name)
    elif parts.netloc == "memory" and name in _STORES:
        _require(caller, "memory:read")
        wanted = Wanted(personality=asked.get("personality"), user=asked.get("user"), store=_STORES[name])
        text = (await services.memory.get(caller, wanted)).content
    else:
        raise NotFound(f"there is no resource {uri}; `resources/list` lists all")
    return [TextResourceContents(uri=uri, mime_type=MARKDOWN, text=text)]


def _require(caller: Caller, scope: Permission) -> None:
    if not caller.may(scope):
        raise NotAllowed(f"this key has no scope `{scope}`; make one that has: `ethos keys create`")


def _page(resources: list[Resource], rest: tuple[str, int, int] | None) -> ListResourcesResult:
    cursor = None if rest is None else cursor_of("resources", rest)
    return ListResourcesResult(resources=resources, next_cursor=cursor)


def _of_document(document: DocumentInfo) -> Resource:
    named = {"personality": document.personality, "user": document.user}
    query = urlencode({key: value for key, value in named.items() if value is not None})
    name = "USER.md" if document.store == "user" else "MEMORY.md"
    whose = " ".join(filter(None, (document.personality, document.user)))
    return Resource(
        name=f"{name} {whose}".strip(),
        title="What is remembered",
        uri=f"{SCHEME}://memory/{document.store}{'?' if query else ''}{query}",
        mime_type=MARKDOWN,
        size=document.bytes,
    )


def _of_session(session: Session) -> Resource:
    title = session.title or "Session"
    return Resource(
        name=session.id,
        title=title,
        uri=f"{SCHEME}://sessions/{session.id}",
        description=f"On {session.channel}, since {session.created_at:%Y-%m-%d %H:%M} UTC",
        mime_type=MARKDOWN,
    )
