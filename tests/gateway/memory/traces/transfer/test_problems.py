"""Each error of an import and an export, word for word: it names the file, the place, and what became of it."""

from __future__ import annotations

import json
import sqlite3
import zipfile
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import StoreUnavailable, TraceError
from gateway.traces.trace_store import TraceStore, open_trace_store
from gateway.traces.transfer.bounds import OfPerson
from gateway.traces.transfer.exporting import export_traces
from gateway.traces.transfer.importing import import_traces
from tests.gateway.memory.traces.people import ADA
from tests.gateway.memory.traces.transfer.corpora import all_of

ADAS = OfPerson(ADA)


async def problems(trace_store: TraceStore, path: Path, **more: Any) -> list[str]:
    return (await import_traces(trace_store, path, bounds=ADAS, **more)).errors


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (
            {"traces": [{"content": "x", "createdAt": "soon"}]},
            "x.json: traces[0]: createdAt 'soon' is no time; 2026-11-20T12:00:00.000+00:00 was taken",
        ),
        (
            {"traces": [{"content": "x", "scope": "galaxy"}]},
            "x.json: traces[0]: scope 'galaxy' is none of thread, user, persona, organization; it came in as user",
        ),
        ({"traces": [{"content": "x", "metadata": 7}]}, "x.json: traces[0]: metadata is no object; it was left out"),
        ({"traces": [7]}, "x.json: traces[0]: it is no object; it was left out"),
        (
            {"edges": [{"source": "a", "target": "a"}]},
            "x.json: edges[0]: it does not lead from one trace or node to another; it was left out",
        ),
        ({"nodes": [{"label": "x"}]}, "x.json: nodes[0]: it has no id; it was left out"),
        ({"chunks": [{"id": 1}]}, "x.json: chunks[0]: pieces of documents have no place here; it was left out"),
    ],
)
async def test_of_json(trace_store: TraceStore, tmp_path: Path, document: Any, expected: str) -> None:
    (tmp_path / "x.json").write_text(json.dumps(document))
    assert await problems(trace_store, tmp_path / "x.json") == [expected]


async def test_of_notes(trace_store: TraceStore, tmp_path: Path) -> None:
    root = tmp_path / "notes"
    (root / ".ethos").mkdir(parents=True)
    (root / "a.md").symlink_to(tmp_path / "elsewhere")
    (root / "b.md").write_bytes(b"x" * (16 * 1024 * 1024 + 1))
    (root / ".ethos" / "records.jsonl").write_text('{"meta": {}}\nno json\n{"nodes": {}}\n')
    assert await problems(trace_store, root, form="markdown") == [
        "notes: a.md: it is a link to a file elsewhere; it was left out",
        "notes: b.md: it is larger than 16 MB; it was left out",
        "notes: .ethos/records.jsonl, line 2: it is no JSON of ours; it was left out",
        "notes: .ethos/records.jsonl, line 3: it has no id; it was left out",
    ]


async def test_of_a_field_that_is_too_large_for_a_table(trace_store: TraceStore, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(f"content\nfirst\n{'x' * (16 * 1024 * 1024 + 1)}\nlast\n")
    [problem] = await problems(trace_store, tmp_path / "x.csv")
    assert problem.startswith("x.csv: line 3: it cannot be read (field larger than field limit")
    assert {trace["content"] for trace in (await all_of(trace_store))["traces"]} == {"first", "last"}


async def test_what_cannot_be_imported_at_all_is_refused_with_what_to_do(
    trace_store: TraceStore, tmp_path: Path
) -> None:
    async def refused(path: Path, **more: Any) -> str:
        with pytest.raises(TraceError) as caught:
            await problems(trace_store, path, **more)
        return str(caught.value)

    empty = tmp_path / "empty"
    empty.mkdir()
    assert await refused(empty) == (
        f"{empty} holds no notes (*.md) and no conversations.json, so there is nothing to import."
    )
    assert await refused(empty, form="csv") == f"{empty} is a directory; the format csv is a file."
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("photo.jpg", "x")
    assert await refused(tmp_path / "x.zip") == (
        f"{tmp_path / 'x.zip'} holds no conversations.json, so it is no ChatGPT export. A zip of anything else: "
        "unpack it first."
    )
    data = (tmp_path / "x.zip").read_bytes()
    (tmp_path / "y.zip").write_bytes(data.replace(b"PK\x01\x02", b"PK\x01\x03"))
    assert "y.zip is a damaged zip (" in await refused(tmp_path / "y.zip")
    with sqlite3.connect(tmp_path / "other.sqlite") as other:
        other.execute("CREATE TABLE songs (title)")
    other.close()
    assert await refused(tmp_path / "other.sqlite") == (
        f"{tmp_path / 'other.sqlite'} is a database, but no trace store: it has no traces."
    )
    await open_trace_store(tmp_path / "newer.sqlite").close()
    with sqlite3.connect(tmp_path / "newer.sqlite") as newer:
        newer.execute("PRAGMA user_version = 9999")
    newer.close()
    assert await refused(tmp_path / "newer.sqlite") == (
        f"{tmp_path / 'newer.sqlite'} was written by a newer program. Upgrade this one first."
    )


async def test_an_export_onto_a_full_disk_says_that_nothing_was_exported(
    trace_store: TraceStore, tmp_path: Path
) -> None:
    def full(_done: int, _total: int) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    target = tmp_path / "out.sqlite"
    with pytest.raises(StoreUnavailable) as caught:
        await export_traces(trace_store, target, form="sqlite", progress=full)
    assert str(caught.value) == f"{target} cannot be written: database or disk is full. Nothing was exported."
    assert not target.exists()


async def test_the_bar_of_a_json_import_is_nearly_full_when_all_traces_are_in(
    trace_store: TraceStore, tmp_path: Path
) -> None:
    """The file is read once for each of its sections, and the traces are nearly all the work."""
    (tmp_path / "x.json").write_text(
        json.dumps({"traces": [{"content": f"fact {n} {'x' * 200}"} for n in range(2_000)]})
    )
    shares: list[float] = []
    await import_traces(
        trace_store, tmp_path / "x.json", bounds=ADAS, progress=lambda done, total: shares.append(done / total)
    )
    assert shares == sorted(shares)
    assert sum(0 < share < 0.75 for share in shares) >= 2
    assert shares[-1] == 1.0


def said(key: str, parent: str | None, role: str, **message: Any) -> dict[str, Any]:
    body = {"author": {"role": role}, "content": {"content_type": "text", "parts": [key]}, **message}
    return {"id": key, "parent": parent, "message": body}


async def test_what_a_person_never_saw_of_a_conversation_stays_out_and_pictures_are_told(
    trace_store: TraceStore, tmp_path: Path
) -> None:
    """Several assistants, spoken words, pictures, hidden messages, code that ran, and an answer without a question."""
    picture = {"content_type": "multimodal_text", "parts": [{"content_type": "image_asset_pointer"}, "what is this?"]}
    spoken = {"content_type": "multimodal_text", "parts": [{"content_type": "audio_transcription", "text": "a cat"}]}
    nodes = [
        said("hello, I am your assistant", None, "assistant"),
        said("profile", "hello, I am your assistant", "user", content={"content_type": "user_editable_context"}),
        said("hidden", "profile", "user", metadata={"is_visually_hidden_from_conversation": True}),
        said("ask", "hidden", "user", content=picture),
        said("code", "ask", "assistant", recipient="python", content={"content_type": "code", "text": "1 + 1"}),
        said("2", "code", "tool", content={"content_type": "execution_output", "text": "2"}),
        said("inner", "2", "assistant", channel="commentary"),
        said("dropped", "inner", "assistant", weight=0.0),
        said("answer", "dropped", "assistant", content=spoken, metadata={"model_slug": "gpt-4o-audio"}),
        said("of another assistant", "answer", "assistant", metadata={"gizmo_id": "g-2"}),
    ]
    conversation = {
        "title": "Cat",
        "conversation_id": "c",
        "gizmo_id": "g-1",
        "mapping": {node["id"]: node for node in nodes},
        "current_node": "of another assistant",
    }
    (tmp_path / "conversations.json").write_text(json.dumps([conversation]))
    assert await problems(trace_store, tmp_path / "conversations.json") == []
    [trace] = (await all_of(trace_store))["traces"]
    assert trace["content"] == "[user]: [image]\nwhat is this?\n[assistant]: a cat\n\nof another assistant"
    assert trace["metadata"] == {"conversationId": "c", "title": "Cat", "assistant": "g-1"}
