"""The Markdown and the Obsidian form: a note a trace, in `<type>/<id>.md`.

The front matter holds all fields and the edges that begin at the trace. `contentHash` tells whether the text is still
the one that was exported: then it comes back byte by byte, else it is read as people write. What is no trace stands in
`.ethos/records.jsonl`, which Obsidian does not show.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, cast

import yaml

from gateway.traces.trace import SCOPES, TYPES, hash_of, merge_tags
from gateway.traces.transfer import obsidian
from gateway.traces.transfer.import_records import (
    UNNAMED,
    CarriedEdge,
    CarriedTrace,
    ImportItem,
    ImportProblem,
    Progress,
    RefusedItem,
    SkippedItem,
)
from gateway.traces.transfer.json_format import edge_values, record_values
from gateway.traces.transfer.serialization import (
    as_time_ms,
    is_safe_id,
    iso,
    plain,
    read_edge,
    read_record,
    read_tags,
    read_trace,
    trace_values,
)
from gateway.traces.transfer.snapshot import SECTIONS, Snapshot
from gateway.traces.transfer.source import RECORD_BYTES, Pace, decode_text

RECORDS_NAME = ".ethos/records.jsonl"
_REPORTED_EVERY = 200
_LARGEST_NOTE_BYTES = 16 * 1024 * 1024
_TIMES = ("createdAt", "lastAccessedAt", "archivedAt")
_CREATED = ("createdAt", "created_at", "created", "date", "date created")
# libyaml's are the same and ten times as fast; not every build has them.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_BLOCK = re.compile(r"---[ \t]*\r?\n(?P<yaml>.*?)(?<![^\n])(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_UNFOLDED = 2**30


# ---- out ------------------------------------------------------------------------------------------------------------


def write_notes(
    snapshot: Snapshot,
    root: Path,
    *,
    is_obsidian: bool,
    exported_at_ms: int,
    with_embeddings: bool,
    with_conversations: bool,
    progress: Progress,
) -> int:
    """Write a note for each trace into an empty directory; how many."""
    total, written = snapshot.count(), 0
    for exported in snapshot.traces():
        directory = root / exported.trace.type
        directory.mkdir(mode=0o700, exist_ok=True)
        trace_id = exported.trace.id
        name = trace_id if is_safe_id(trace_id) else hash_of(trace_id)
        with _created(directory / f"{name}.md") as file:
            file.write(_note(snapshot, exported, is_obsidian=is_obsidian, with_embedding=with_embeddings))
        written += 1
        if written % _REPORTED_EVERY == 0:
            progress(written, total)
    _write_records(snapshot, root, exported_at_ms, is_obsidian=is_obsidian, with_conversations=with_conversations)
    progress(written, total)
    return written


def _note(snapshot: Snapshot, exported: CarriedTrace, *, is_obsidian: bool, with_embedding: bool) -> str:
    values = trace_values(exported, with_embedding=with_embedding)
    for name in _TIMES:
        if name in values:
            values[name] = iso(values[name])
    content = values.pop("content")
    edges = list(snapshot.edges_of(exported.trace.id))
    if edges:
        values["edges"] = [_edge_of_note(edge) for edge in edges]
    if is_obsidian:
        related = [(edge.target, snapshot.opening(edge.target)) for edge in edges if edge.owner == UNNAMED]
        content = obsidian.decorated(content, exported.trace.tags, related)
    return join_note(values, content)


def _edge_of_note(edge: CarriedEdge) -> dict[str, Any]:
    values = edge_values(edge)
    del values["source"]
    return values | {"createdAt": iso(edge.created_at_ms)}


def _write_records(
    snapshot: Snapshot, root: Path, exported_at_ms: int, *, is_obsidian: bool, with_conversations: bool
) -> None:
    meta = {"format": "obsidian" if is_obsidian else "markdown", "version": 1, "exportedAt": exported_at_ms}
    path = root / RECORDS_NAME
    path.parent.mkdir(mode=0o700)
    with _created(path) as file:
        file.write(json.dumps({"meta": meta}) + "\n")
        for kind, name in SECTIONS.items():
            if with_conversations or kind not in ("conversation", "message"):
                for record in snapshot.records(kind):
                    file.write(json.dumps({name: record_values(record)}, ensure_ascii=False) + "\n")
        for edge in snapshot.edges_of_nodes():
            file.write(json.dumps({"edges": edge_values(edge)}, ensure_ascii=False) + "\n")


def _created(path: Path) -> IO[str]:
    """A new file that only its owner may read; what is written to it is written as it is."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8", newline="")


# ---- in -------------------------------------------------------------------------------------------------------------


def notes_in(root: Path) -> Iterator[Path]:
    """All notes of a directory, in order; what begins with a dot is the editor's own."""
    if root.is_file():
        yield root
        return
    for directory, names, files in os.walk(root):
        names[:] = sorted(name for name in names if not name.startswith("."))
        for name in sorted(files):
            if name.lower().endswith((".md", ".markdown")) and not name.startswith("."):
                yield Path(directory, name)


def read_notes(root: Path, *, is_obsidian: bool, now_ms: int, pace: Pace) -> Iterator[ImportItem]:
    """All notes, each with its edges; then what is no trace.

    Raises:
        TooSlow: they take too long.
    """
    for path in notes_in(root):
        place = path.name if root.is_file() else path.relative_to(root).as_posix()
        yield from _read_note(path, place, is_obsidian=is_obsidian, now_ms=now_ms)
    if root.is_dir():
        yield from _read_records(root / RECORDS_NAME, now_ms=now_ms)
        for path in notes_in(root):  # edges come last: the traces that they lead to are there by then
            pace.count(RECORD_BYTES)
            yield from _read_edges(path, path.relative_to(root).as_posix(), now_ms=now_ms)


def _read_file(path: Path, place: str) -> tuple[bytes, int] | RefusedItem:
    """What a note holds, and when it was changed, in milliseconds since 1970."""
    try:
        if path.is_symlink():
            return RefusedItem(place, "it is a link to a file elsewhere; it was left out")
        status = path.stat()
        if status.st_size > _LARGEST_NOTE_BYTES:
            return RefusedItem(place, "it is larger than 16 MB; it was left out")
        return path.read_bytes(), int(status.st_mtime * 1000)
    except OSError as error:
        return RefusedItem(place, f"it cannot be read ({error.strerror}); it was left out")


def _read_note(path: Path, place: str, *, is_obsidian: bool, now_ms: int) -> Iterator[ImportItem]:
    read = _read_file(path, place)
    if isinstance(read, RefusedItem):
        yield read
        return
    data, changed_at_ms = read
    text, encoding = decode_text(data)
    if encoding is not None:
        yield ImportProblem(place, f"it is not UTF-8; it was read as {encoding}")
    note = split_note(text)
    if note.problem is not None:
        yield ImportProblem(place, f"{note.problem}; the note came in without it")
    values = _own_values(note, is_obsidian=is_obsidian)
    names: Sequence[str] = ()
    links: Sequence[str] = ()
    if values is None:
        content = _stripped(note, is_obsidian=is_obsidian)
        values = _foreign_values(note, place, changed_at_ms) | {"content": content}
        names, links = _names(note, place), obsidian.links_in(note.body) if is_obsidian else ()
        if is_obsidian:
            values["tags"] = merge_tags(read_tags(values.get("tags")), obsidian.tags_in(content))
    if not values["content"].strip():
        yield SkippedItem()
        return
    for item in read_trace(values, place, now_ms=now_ms):
        if isinstance(item, CarriedTrace):
            yield replace(item, names=(*names, item.trace.id), links=tuple(links))
        else:
            yield item


def _own_values(note: Note, *, is_obsidian: bool) -> dict[str, Any] | None:
    """The values of an exported note that is unchanged; None for any other."""
    wanted = note.values.get("contentHash")
    if not isinstance(wanted, str) or note.body[:1] != "\n":
        return None
    body = note.body[1:].removesuffix("\n")
    tags = read_tags(note.values.get("tags"))
    forms = [body, *obsidian.plain_forms(body, tags)] if is_obsidian else [body]
    content = next((form for form in forms if hash_of(form) == wanted), None)
    return None if content is None else {**note.values, "content": content}


def _stripped(note: Note, *, is_obsidian: bool) -> str:
    """The text without what an export added."""
    body = note.body.replace("\r\n", "\n").strip()
    if "contentHash" in note.values:
        return next(obsidian.plain_forms(body, read_tags(note.values.get("tags")))).strip()
    if is_obsidian and note.values.keys() == obsidian.AGENTOS_NAMES:
        return obsidian.without_agentos_additions(body, read_tags(note.values.get("tags"))).strip()
    return body


def _foreign_values(note: Note, place: str, changed_at_ms: int) -> dict[str, Any]:
    """What the front matter of a note says of a trace. All else goes to the metadata: people use the same words."""
    if "contentHash" in note.values:
        return dict(note.values)
    given = dict(note.values)
    values: dict[str, Any] = {}
    if isinstance(given.get("id"), str) and given["id"].startswith("mt_"):
        values["id"] = given.pop("id")
    for name, allowed in (("type", TYPES), ("scope", SCOPES)):
        if given.get(name) in allowed:
            values[name] = given.pop(name)
    if isinstance(given.get("strength"), (int, float)) and 0 <= given["strength"] <= 1:
        values["strength"] = given.pop("strength")
    tags = merge_tags(*(_note_tags(given.pop(name, None)) for name in ("tags", "tag")))
    created = next((name for name in _CREATED if as_time_ms(given.get(name)) is not None), None)
    values["createdAt"] = changed_at_ms if created is None else as_time_ms(given.pop(created))
    folder = next((part.lower() for part in place.split("/")[:-1] if part.lower() in TYPES), None)
    if "type" not in values and folder is not None:
        values["type"] = folder
    metadata = cast("dict[str, Any]", plain({name: value for name, value in given.items() if value is not None}))
    if note.unread is not None:
        metadata["frontMatter"] = note.unread
    return values | {"tags": tags, "metadata": metadata | {"note": place}}


def _note_tags(given: object) -> tuple[str, ...]:
    tags = read_tags(given.replace(" ", ",") if isinstance(given, str) else given)
    return tuple(tag.lstrip("#") for tag in tags if tag.lstrip("#"))


def _names(note: Note, place: str) -> Sequence[str]:
    """By which links call the note: its path, its file, its aliases."""
    path = place.rsplit(".", 1)[0]
    aliases = read_tags(note.values.get("aliases") or note.values.get("alias"))
    return (path.rsplit("/", 1)[-1], path, *aliases)


def _read_edges(path: Path, place: str, *, now_ms: int) -> Iterator[ImportItem]:
    """The edges in the front matter of a note of ours; a file that cannot be read was told of before."""
    read = _read_file(path, place)
    text = "" if isinstance(read, RefusedItem) else decode_text(read[0])[0]
    if "\nedges:" not in text:
        return
    values = split_note(text).values
    trace_id, edges = values.get("id"), values.get("edges")
    if not isinstance(trace_id, str) or not isinstance(edges, list) or "contentHash" not in values:
        return
    for index, given in enumerate(edges):
        yield _edge(given, f"{place}, edges[{index}]", now_ms=now_ms, source=trace_id)


def _edge(given: object, place: str, *, now_ms: int, source: str | None = None) -> ImportItem:
    if not isinstance(given, Mapping):
        return RefusedItem(place, "it is no object; it was left out")
    return read_edge(given, place, now_ms=now_ms, source=source)


def _read_records(path: Path, *, now_ms: int) -> Iterator[ImportItem]:
    if not path.is_file():
        return
    kinds = {section: kind for kind, section in SECTIONS.items()}
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            place = f"{RECORDS_NAME}, line {number}"
            try:
                ((name, given),) = json.loads(line).items()
                if name == "edges":
                    yield _edge(given, place, now_ms=now_ms)
                elif name in kinds:
                    yield read_record(kinds[name], given, place)
            except (ValueError, AttributeError, TypeError, RecursionError):
                yield RefusedItem(place, "it is no JSON of ours; it was left out")


# ---- the front matter ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A Markdown file, split: YAML between two lines of `---`, then the text.

    Attributes:
        values: of the front matter.
        unread: front matter that is no YAML, as it stands; `problem` says why.
        body: all after it, as it stands.
    """

    values: Mapping[str, Any]
    body: str
    unread: str | None = None
    problem: str | None = None


def join_note(values: Mapping[str, Any], body: str) -> str:
    """The file of these values and this text."""
    front = yaml.dump(dict(values), Dumper=_DUMPER, allow_unicode=True, sort_keys=False, width=_UNFOLDED)
    return f"---\n{front}---\n\n{body}\n"


def split_note(text: str) -> Note:
    """Split a note; without front matter it is all body."""
    found = _BLOCK.match(text)
    if found is None:
        return Note(values={}, body=text)
    front, body = found["yaml"], text[found.end() :]
    try:
        if "*" in front and "&" in front and _has_aliases(front):
            return Note(values={}, body=body, unread=front, problem="the front matter refers to parts of itself")
        values = yaml.load(front, Loader=_LOADER)  # noqa: S506 (a safe loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date like 2026-13-45
        return Note(values={}, body=body, unread=front, problem=f"the front matter is no YAML ({_reason(error)})")
    if values is None:
        return Note(values={}, body=body)
    if not isinstance(values, dict):
        return Note(values={}, body=text)  # a rule, some text and a rule
    return Note(values={str(name): value for name, value in values.items()}, body=body)


def _has_aliases(front: str) -> bool:
    """A few of them can stand for gigabytes."""
    return any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(front, Loader=_LOADER))


def _reason(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    return " ".join(f"{problem}{f', line {mark.line + 2}' if mark is not None else ''}".split())[:200]
