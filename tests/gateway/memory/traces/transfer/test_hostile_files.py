"""Whatever stands in a file, an import ends with a result: what can be read is in, and the rest is named."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gateway.traces.trace_store import TRACES_NAME, open_trace_store
from gateway.traces.transfer.bounds import Everything, OfPerson
from gateway.traces.transfer.importing import import_traces
from tests.gateway.memory.traces.people import ADA, of
from tests.gateway.memory.traces.transfer.corpora import new_trace_store, values

often = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
names = st.sampled_from(
    """
    id type scope scopeId scope_id content strength stabilityMs tags emotions metadata createdAt created_at lastAccessed
    retrievalCount source author position embedding embeddingModel deleted verbatimContent archivedAt target weight kind
    title mapping current_node parent message role parts content_type recipient create_time edges contentHash aliases
    """.split()  # noqa: SIM905 (legible as a text)
)
anything = st.recursive(
    values | st.sampled_from(["fact", "mt_1", "2024-01-01", '["a"]', "{", "0"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=6),
    max_leaves=12,
)
records = st.dictionaries(names, anything, min_size=1, max_size=8)


async def ends_well(data: bytes, name: str, form: Any, *, surely: int = 0) -> None:
    with tempfile.TemporaryDirectory() as root:
        path = Path(root, name)
        path.write_bytes(data)
        async with new_trace_store(Path(root)) as trace_store:
            first = await import_traces(trace_store, path, bounds=OfPerson(ADA), form=form)
            assert first.imported + first.skipped >= surely
            again = await import_traces(trace_store, path, bounds=OfPerson(ADA), form=form)
            assert again.imported == 0
            assert again.skipped == first.imported + first.skipped


@pytest.mark.slow
@often
@given(
    found=st.lists(records, max_size=3), rest=st.dictionaries(st.sampled_from(["edges", "nodes"]), st.lists(records))
)
async def test_any_json_of_traces(found: list[Any], rest: dict[str, Any]) -> None:
    """A good record among bad ones always comes in."""
    document = {"traces": [*found, {"content": "a good one"}], **rest}
    await ends_well(json.dumps(document).encode(), "x.json", "json", surely=1)


@pytest.mark.slow
@often
@given(found=st.lists(records, max_size=2), nodes=st.dictionaries(st.sampled_from("abc"), records, max_size=3))
@example(found=[{"mapping": {"a": {"parent": []}}, "current_node": []}], nodes={})
async def test_any_json_of_conversations(found: list[Any], nodes: dict[str, Any]) -> None:
    good = {"author": {"role": "user"}, "content": {"content_type": "text", "parts": ["a good one"]}}
    whole = {"mapping": {"a": {"parent": None, "message": good}}, "current_node": "a"}
    document = [*found, {"mapping": nodes, "current_node": "a"}, whole]
    await ends_well(json.dumps(document).encode(), "conversations.json", "chatgpt", surely=1)


@often
@given(data=st.binary(max_size=200) | st.text("content,;|\"'\n\r\t\0äж", max_size=80).map(str.encode))
@pytest.mark.slow
async def test_any_bytes_as_csv(data: bytes) -> None:
    await ends_well(b"content;tags\n" + data, "x.csv", "csv")


@pytest.mark.slow
@often
@given(front=st.text("a:-[]{}&*!|>'\"#\n éж", max_size=60), body=st.text(max_size=60), known=records)
async def test_any_note(front: str, body: str, known: dict[str, Any]) -> None:
    text = f"---\n{front}\n---\n{body}\nand a good end"
    await ends_well(text.encode("utf-8", "replace"), "x.md", "obsidian", surely=1)
    lines = "\n".join(f"{name}: {json.dumps(value)}" for name, value in known.items())
    await ends_well(
        f"---\n{lines}\n---\n{body}\nand a good end".encode("utf-8", "replace"), "x.md", "markdown", surely=1
    )


async def test_a_database_that_somebody_else_has_filled(tmp_path: Path) -> None:
    """Edges and records that no program of ours wrote are named, after all traces are in."""
    await open_trace_store(tmp_path / "hostile.sqlite").close()
    with sqlite3.connect(tmp_path / "hostile.sqlite") as connection:
        connection.execute("INSERT INTO owners VALUES (1, 'user', 'u_x')")
        connection.execute("INSERT INTO records VALUES ('node', 'n', 1, 'no json')")
        connection.execute("INSERT INTO edges VALUES ('node:x:y', 'node:::', 'k', 1, 'no json', 0)")
    connection.close()
    async with open_trace_store(tmp_path / TRACES_NAME) as trace_store:
        result = await import_traces(trace_store, tmp_path / "hostile.sqlite", bounds=OfPerson(ADA))
    assert len(result.errors) == 1
    assert "the database cannot be read any further" in result.errors[0]


async def test_a_database_with_a_scope_that_there_is_not(tmp_path: Path) -> None:
    """What no check of theirs forbids is named here, and all else comes in."""
    async with open_trace_store(tmp_path / "hostile.sqlite") as theirs:
        await theirs.add(ADA, of(ADA, "a good one"))
    with sqlite3.connect(tmp_path / "hostile.sqlite") as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute("INSERT INTO owners VALUES (9, 'galaxy', 'g')")
        connection.execute("INSERT INTO records VALUES ('node', 'n', 9, '{}')")
    connection.close()
    async with open_trace_store(tmp_path / TRACES_NAME) as trace_store:
        result = await import_traces(trace_store, tmp_path / "hostile.sqlite", bounds=Everything())
    assert (result.imported, result.left_out, result.is_broken_off) == (1, 1, False)
    assert result.errors == [
        "hostile.sqlite: nodes n: scope 'galaxy' is none of thread, user, persona, organization; it was left out"
    ]
