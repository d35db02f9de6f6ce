"""Files as other programs write them come in whole, whatever is broken in them is named, and nothing else stops."""

from __future__ import annotations

import json
import sqlite3
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import TraceError
from gateway.traces.search import TraceQuery
from gateway.traces.trace_store import TraceStore
from gateway.traces.transfer import csv_format
from gateway.traces.transfer.bounds import Everything, OfPerson
from gateway.traces.transfer.detection import detect_format
from gateway.traces.transfer.exporting import export_traces
from gateway.traces.transfer.import_records import CarriedTrace, ImportResult
from gateway.traces.transfer.importing import import_traces
from gateway.traces.transfer.obsidian import links_in, tags_in
from gateway.traces.transfer.source import Source
from tests.gateway.memory.traces.people import ADA, BEN, of
from tests.gateway.memory.traces.transfer.corpora import EVERYTHING, all_of, tree

ADAS = OfPerson(ADA)


async def brought_in(trace_store: TraceStore, path: Path, **more: Any) -> tuple[ImportResult, list[dict[str, Any]]]:
    result = await import_traces(trace_store, path, **({"bounds": ADAS} | more))
    return result, (await all_of(trace_store))["traces"]


def by_content(traces: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    return {trace["content"]: trace for trace in traces}


# ---- ChatGPT --------------------------------------------------------------------------------------------------------


def message(role: str, text: str | None, at: float = 1_700_000_000.5, **more: Any) -> dict[str, Any]:
    content = {"content_type": "text", "parts": [text]}
    return {
        "id": f"m-{text}",
        "author": {"role": role},
        "create_time": at,
        "content": content,
        "recipient": "all",
    } | more


def conversation(
    title: str, *nodes: tuple[str, str | None, dict[str, Any] | None], current: str | None
) -> dict[str, Any]:
    mapping = {key: {"id": key, "parent": parent, "message": body, "children": []} for key, parent, body in nodes}
    return {"title": title, "conversation_id": f"c-{title}", "create_time": 1_690_000_000.0, "mapping": mapping} | (
        {} if current is None else {"current_node": current}
    )


EDITED = conversation(
    "Dogs",
    ("root", None, None),
    ("system", "root", message("system", "You are helpful.")),
    ("old", "system", message("user", "What does a cat eat?")),
    ("old answer", "old", message("assistant", "Mice.")),
    ("new", "system", message("user", "What does a dog eat?")),
    ("thinking", "new", message("assistant", "hm", content={"content_type": "thoughts", "thoughts": []})),
    ("call", "thinking", message("assistant", "search(dogs)", recipient="browser")),
    ("bio", "call", message("assistant", "The user has a dog.", recipient="bio")),
    ("tool", "bio", message("tool", "Model set context updated.")),
    ("first", "tool", message("assistant", "Meat.", metadata={"model_slug": "gpt-4o"})),
    ("second", "first", message("assistant", "And vegetables.", metadata={"model_slug": "o3"})),
    ("thanks", "second", message("user", "Thank you")),
    current="thanks",
)


async def test_the_active_branch_of_a_chatgpt_conversation_comes_in_as_pairs(
    trace_store: TraceStore, tmp_path: Path
) -> None:
    """Edited branches, tool calls, `bio` and thoughts are left out; several answers belong to one question."""
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([EDITED]))
    result, traces = await brought_in(trace_store, path)
    assert (result.imported, result.errors) == (2, [])
    found = by_content(traces)
    assert set(found) == {
        "[user]: What does a dog eat?\n[assistant]: Meat.\n\nAnd vegetables.",
        "[user]: Thank you",
    }
    pair = found["[user]: What does a dog eat?\n[assistant]: Meat.\n\nAnd vegetables."]
    assert (pair["type"], pair["tags"], pair["created_at"]) == ("episodic", ["Dogs"], 1_700_000_000_500)
    assert (await brought_in(trace_store, path))[0] == ImportResult(imported=0, skipped=2)


async def test_without_a_current_node_the_newest_branch_counts(trace_store: TraceStore, tmp_path: Path) -> None:
    tree_of = conversation(
        "Tea",
        ("root", None, None),
        ("a", "root", message("user", "Green?", at=1.0)),
        ("b", "root", message("user", "Black?", at=2.0)),
        current=None,
    )
    (tmp_path / "conversations.json").write_text(json.dumps([tree_of]))
    assert set(by_content((await brought_in(trace_store, tmp_path))[1])) == {"[user]: Black?"}


async def test_a_zip_with_several_files_and_a_broken_conversation_comes_in(
    trace_store: TraceStore, tmp_path: Path
) -> None:
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
        archive.writestr("x/conversations-000.json", json.dumps([{"title": "Broken"}, 7, EDITED]))
        archive.writestr("x/conversations-001.json", json.dumps([conversation("Loop", ("a", "a", None), current="a")]))
        archive.writestr("x/chat.html", "<html>")
    result, _ = await brought_in(trace_store, tmp_path / "export.zip")
    assert (result.imported, result.skipped) == (2, 1)
    assert result.errors == [
        f"export.zip/x/conversations-000.json: conversation {number}: it is no conversation: it has no messages; "
        "it was left out"
        for number in (1, 2)
    ]


async def test_a_chatgpt_file_that_breaks_off_keeps_what_came_before(trace_store: TraceStore, tmp_path: Path) -> None:
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([EDITED, EDITED])[:-40])
    result, traces = await brought_in(trace_store, path)
    assert len(traces) == 2
    assert "the file breaks off or is no JSON after conversation 1 (" in result.errors[0]


# ---- CSV ------------------------------------------------------------------------------------------------------------


async def test_a_spreadsheet_s_csv_comes_in(trace_store: TraceStore, tmp_path: Path) -> None:
    """Mark of the byte order, semicolons, line breaks in quotes, tags in three ways, other columns to the metadata."""
    path = tmp_path / "facts.csv"
    path.write_bytes(
        b"\xef\xbb\xbf"
        + (
            'Content;type;tags;Place\r\n"Two\r\nlines; one fact";Semantic;"a, b";Zürich\r\n'
            'Piped;;a|b;\r\nJson;procedural;"[""a,b"", ""c""]";\r\n;;;nothing\r\n\r\nOdd;fact;x;\r\nLong;;;;extra\r\n'
        ).encode()
    )
    result, traces = await brought_in(trace_store, path)
    found = by_content(traces)
    fact = found["Two\nlines; one fact"]
    assert (fact["type"], fact["tags"], fact["metadata"]) == ("semantic", ["a", "b"], {"Place": "Zürich"})
    assert found["Piped"]["tags"] == ["a", "b"]
    assert found["Json"]["tags"] == ["a,b", "c"]
    assert found["Odd"]["metadata"] == {"type": "fact"}
    assert result.imported == 5
    assert result.errors == [
        "facts.csv: line 6: it has no content; it was left out",
        "facts.csv: line 8: type 'fact' is none of episodic, semantic, procedural, prospective; it came in as episodic",
        "facts.csv: line 9: it has 5 values for 4 columns; the last were left out",
    ]


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", "CSV import failed: file is empty."),
        (b"\n\n", "CSV import failed: file is empty."),
        (b"text,type\na,b\n", 'CSV import failed: missing required "content" column.'),
    ],
)
async def test_a_csv_without_content_says_so(trace_store: TraceStore, tmp_path: Path, data: bytes, error: str) -> None:
    (tmp_path / "x.csv").write_bytes(data)
    assert (await brought_in(trace_store, tmp_path / "x.csv"))[0].errors == [f"x.csv: {error}"]


@pytest.mark.parametrize("encoding", ["utf-16", "cp1252", "utf-8-sig"])
async def test_csv_of_any_encoding_is_read(trace_store: TraceStore, tmp_path: Path, encoding: str) -> None:
    (tmp_path / "x.csv").write_bytes("content,tags\nÄpfel für Zoë,Obst\n".encode(encoding))
    assert set(by_content((await brought_in(trace_store, tmp_path / "x.csv", form="csv"))[1])) == {"Äpfel für Zoë"}


# ---- JSON of others -------------------------------------------------------------------------------------------------

AGENTOS = {
    "meta": {"schema_version": "1", "exported_at": "1711234567890"},
    "traces": [
        {
            "id": "mt_abc123", "type": "semantic", "scope": "user", "content": "Ada prefers TypeScript",
            "strength": 0.87,
            "created_at": 1_711_234_567_890, "last_accessed": None, "retrieval_count": 3, "tags": '["preference"]',
            "emotions": '{"intensity": 0.4, "note": "glad"}', "metadata": '{"a": {"b": 1}}', "deleted": 0,
        },
        {"id": "mt_gone", "content": "deleted", "deleted": 1},
        {
            "id": "../../etc/passwd", "content": "Documented", "createdAt": "2024-03-24T12:34:56Z", "lastAccessed": 5,
            "retrievalCount": 2, "tags": ["x"], "metadata": {"source": "user"}, "strength": "much",
        },
        {"id": "mt_empty", "content": " "},
        "text",
    ],
    "nodes": [{"id": "n1", "label": "Ada", "properties": "{}"}, {"id": "n2", "label": "TypeScript"}],
    "edges": [
        {"id": "e1", "source_id": "n1", "target_id": "n2", "type": "likes", "weight": 0.5, "metadata": "{}"},
        {"id": "e2", "source_id": "mt_abc123", "target_id": "nowhere", "type": "x"},
    ],
    "documents": [], "chunks": [], "images": [],
    "conversations": [{"id": "c1", "title": "T"}], "messages": [{"id": "m1", "content": "hi"}],
}  # fmt: skip


async def test_json_of_agentos_comes_in_as_it_really_is_and_as_documented(
    trace_store: TraceStore, tmp_path: Path
) -> None:
    path = tmp_path / "memories"
    path.write_text(json.dumps(AGENTOS))
    result, traces = await brought_in(trace_store, path)
    found = by_content(traces)
    real = found["Ada prefers TypeScript"]
    assert {name: real[name] for name in ("id", "type", "strength", "tags", "emotions", "retrieval_count")} == {
        "id": "mt_abc123", "type": "semantic", "strength": 0.87, "tags": ["preference"],
        "emotions": {"intensity": 0.4}, "retrieval_count": 3,
    }  # fmt: skip
    assert real["metadata"] == {"a": {"b": 1}, "emotions": {"note": "glad"}}
    documented = found["Documented"]
    assert documented["id"].startswith("mt_")
    assert (documented["created_at"], documented["last_accessed_at"]) == (1_711_283_696_000, 5)
    assert (result.imported, result.skipped) == (2, 1)
    assert result.errors == [
        "memories: traces[2]: strength 'much' is no number; 1 was taken",
        "memories: traces[3]: it has no content; it was left out",
        "memories: traces[4]: it is no object; it was left out",
        "memories: edges[1]: it leads to nowhere, which is not there; it was left out",
    ]
    held = await all_of(trace_store)
    assert [(record["kind"], record["id"]) for record in held["records"]] == [
        ("conversation", "c1"), ("message", "m1"), ("node", "n1"), ("node", "n2"),
    ]  # fmt: skip
    assert [edge["kind"] for edge in held["edges"]] == ["likes"]


async def test_two_people_s_nodes_of_one_name_do_not_meet(trace_store: TraceStore, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(AGENTOS))
    await import_traces(trace_store, path, bounds=ADAS)
    await import_traces(trace_store, path, bounds=OfPerson(BEN))
    assert len((await all_of(trace_store))["edges"]) == 2
    await export_traces(trace_store, tmp_path / "bens", form="json", bounds=OfPerson(BEN))
    assert "u_ada" not in (tmp_path / "bens").read_text()
    assert len(json.loads((tmp_path / "bens").read_text())["edges"]) == 1


@pytest.mark.parametrize(
    "text",
    [
        '[{"content": "one"}, {"content": "two"}]',
        '{"content": "one"}\n{"content": "two"}\n',
        '\ufeff{"traces": [{"content": "one"}, {"content": "two"}]}',
    ],
)
async def test_lists_and_lines_of_json_are_read_too(trace_store: TraceStore, tmp_path: Path, text: str) -> None:
    (tmp_path / "x").write_text(text)
    assert set(by_content((await brought_in(trace_store, tmp_path / "x"))[1])) == {"one", "two"}


async def test_json_that_breaks_off_keeps_what_came_before_and_says_where(
    trace_store: TraceStore, tmp_path: Path
) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"traces": [{"content": f"fact {n}"} for n in range(2_000)]})[:-20])
    result, traces = await brought_in(trace_store, path)
    assert len(traces) >= 1_998
    assert len(result.errors) == 1
    assert "x.json: traces: the file breaks off or is no JSON after traces[" in result.errors[0]


async def test_a_brain_of_agentos_comes_in(trace_store: TraceStore, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "traces.sqlite.old") as database:
        database.execute("CREATE TABLE memory_traces (id, type, scope, content, tags, metadata, created_at, deleted)")
        database.execute("INSERT INTO memory_traces VALUES ('mt_1', 'semantic', 'user', 'Tea', '[]', '{}', 5, 0)")
        database.execute("INSERT INTO memory_traces VALUES ('mt_2', 'semantic', 'user', 'Gone', '[]', '{}', 5, 1)")
    database.close()
    assert (await brought_in(trace_store, tmp_path / "traces.sqlite.old"))[0] == ImportResult(imported=1, skipped=1)


# ---- Obsidian -------------------------------------------------------------------------------------------------------


def test_links_and_tags_are_told_from_what_looks_like_them() -> None:
    text = (
        "# Heading #no\n#yes and #über/größe and #日本 #2024 mid#no (#no) [x](#no) https://x.org/#no\n"
        "`#no [[no]]` ![[no.png]] [[Note]] [[Note|alias]] [[dir/Other#part|x]] [[Third^block]]\n"
        "```py\n#no [[no]]\n```\n"
    )
    assert tags_in(text) == ("yes", "über/größe", "日本")
    assert links_in(text) == ("Note", "dir/Other", "Third")


def vault(root: Path) -> Path:
    notes = {
        "Rex.md": "---\naliases: [the dog]\ntags: animal, pet\ncreated: 2024-01-02\nsource: https://x.org\n---\n"
        "Rex is a dog of [[Ada]]. ![[rex.png]] #good",
        "People/Ada.md": "Ada knows [[the dog|Rex]] and [[REX]] and [[日本の犬]].\n",
        "Semantic/日本の犬.md": "柴犬は小さい。",
        "Broken.md": "---\ntags: [a\nkey: : :\n---\nStill here.",
        "Empty.md": "---\ntags: x\n---\n\n",
        "Bomb.md": "---\na: &a [x, x]\nb: [*a, *a]\n---\nNo bomb.",
        "latin.md": "",
        ".obsidian/workspace.md": "settings",
    }
    for name, text in notes.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "latin.md").write_bytes("Käse".encode("cp1252"))
    return root


async def test_a_real_vault_comes_in(trace_store: TraceStore, tmp_path: Path) -> None:
    result, traces = await brought_in(trace_store, vault(tmp_path / "vault"))
    found = by_content(traces)
    rex = found["Rex is a dog of [[Ada]]. ![[rex.png]] #good"]
    assert rex["tags"] == ["animal", "pet", "good"]
    assert rex["created_at"] == 1_704_153_600_000
    assert rex["metadata"] == {"aliases": ["the dog"], "source": "https://x.org", "note": "Rex.md"}
    assert found["柴犬は小さい。"]["type"] == "semantic"
    assert found["Still here."]["metadata"]["frontMatter"] == "tags: [a\nkey: : :\n"
    assert {"No bomb.", "Käse"} <= set(found)
    assert (result.imported, result.skipped) == (6, 1)
    assert [error.split(";")[0] for error in result.errors] == [
        "vault: Bomb.md: the front matter refers to parts of itself",
        "vault: Broken.md: the front matter is no YAML (did not find expected ',' or ']', line 3)",
        "vault: latin.md: it is not UTF-8",
    ]
    names = {trace["id"]: trace["metadata"]["note"] for trace in traces}
    links = {(names[edge["source"]], names[edge["target"]]) for edge in (await all_of(trace_store))["edges"]}
    assert links == {
        ("Rex.md", "People/Ada.md"), ("People/Ada.md", "Rex.md"), ("People/Ada.md", "Semantic/日本の犬.md"),
    }  # fmt: skip
    again = await import_traces(trace_store, tmp_path / "vault", bounds=ADAS)
    assert (again.imported, again.skipped) == (0, 7)


async def test_what_obsidian_exports_can_be_read_by_people_and_a_changed_note_comes_back(
    trace_store: TraceStore, tmp_path: Path
) -> None:
    await import_traces(trace_store, vault(tmp_path / "vault"), bounds=ADAS)
    await export_traces(trace_store, tmp_path / "out", form="obsidian")
    (note,) = [path for path in (tmp_path / "out").rglob("*.md") if "Rex is a dog" in path.read_text().split("###")[0]]
    text = note.read_text()
    assert "\n\n#animal #pet #good\n\n### Related\n- [[mt_" in text
    assert "]] — Ada knows the dog Rex and" in text
    note.write_text(text.replace("Rex is a dog", "Rex is a big dog").rstrip() + "\r\n")
    result, traces = await brought_in(trace_store, tmp_path / "out")
    assert (result.imported, result.errors) == (1, [])
    changed = by_content(traces)["Rex is a big dog of [[Ada]]. ![[rex.png]] #good"]
    assert changed["tags"] == ["animal", "pet", "good"]


# ---- whose they are, and what is safe -------------------------------------------------------------------------------


async def test_an_import_cannot_write_to_anybody_else_nor_learn_of_them(
    trace_store: TraceStore, tmp_path: Path
) -> None:
    """A file that names Ben's user id, session, trace and personality becomes Ada's, and Ben's stays as it was."""
    bens = of(BEN, "Ben's secret")
    await trace_store.add(BEN, bens)
    before = (await all_of(trace_store))["traces"]
    forged = [
        {"id": bens.id, "content": "forged", "scope": "user", "scopeId": "u_ben"},
        {"content": "forged", "scope": "thread", "scopeId": "s_ben"},
        {"content": "forged", "scope": "persona", "scopeId": "u_ben::engineer"},
        {"content": "Ben's secret", "scope": "user", "scopeId": "u_ben"},
        {"id": "mt_mine", "content": "mine"},
    ]
    edges = [{"source": "mt_mine", "target": bens.id, "kind": "x"}]
    (tmp_path / "x.json").write_text(json.dumps({"traces": forged, "edges": edges}))
    result = await import_traces(trace_store, tmp_path / "x.json", bounds=ADAS)
    assert (result.imported, result.skipped) == (4, 1)
    held = await all_of(trace_store)
    assert [trace for trace in held["traces"] if trace["owner_id"] == "u_ben"] == before
    assert {trace["owner_id"] for trace in held["traces"]} == {"u_ben", "u_ada", "u_ada::engineer"}
    assert bens.id not in {end for edge in held["edges"] for end in (edge["source"], edge["target"])}


@pytest.mark.parametrize("form", ["sqlite", "json", "markdown", "obsidian"])
@pytest.mark.parametrize("bounds", [EVERYTHING, ADAS])
async def test_hidden_traces_and_words_of_others_are_in_no_byte_of_an_export(
    trace_store: TraceStore, tmp_path: Path, form: Any, bounds: Any
) -> None:
    await trace_store.add(ADA, of(ADA, "Xylophone kept"))
    gone = of(ADA, "Quagmire forgotten")
    await trace_store.add(ADA, gone)
    await trace_store.delete(ADA, gone.id)
    await trace_store.add(BEN, of(BEN, "Zeppelin private", speaker="Ben"))
    await export_traces(trace_store, tmp_path / "out", form=form, bounds=bounds)
    data = b"".join(tree(tmp_path / "out").values()).lower()
    assert b"xylophone" in data
    assert b"quagmir" not in data
    assert (b"zeppelin" in data) is isinstance(bounds, Everything)


async def test_a_dry_run_says_what_an_import_would_do_and_changes_nothing(
    trace_store: TraceStore, tmp_path: Path
) -> None:
    await trace_store.add(ADA, of(ADA, "one"))
    (tmp_path / "x").write_text('[{"content": "one"}, {"content": "two"}, {"content": "two"}, {"content": ""}]')
    before = await all_of(trace_store)
    dry = await import_traces(trace_store, tmp_path / "x", bounds=ADAS, is_dry_run=True)
    assert await all_of(trace_store) == before
    assert dry == await import_traces(trace_store, tmp_path / "x", bounds=ADAS)
    assert (dry.imported, dry.skipped, len(dry.errors)) == (1, 2, 1)


async def test_tags_of_duplicates_are_united_and_dedup_can_be_turned_off(
    trace_store: TraceStore, tmp_path: Path
) -> None:
    (tmp_path / "x").write_text('[{"content": "tea", "tags": ["a"]}, {"content": "tea", "tags": ["b"]}]')
    _, (trace,) = await brought_in(trace_store, tmp_path / "x")
    assert trace["tags"] == ["a", "b"]
    assert (await brought_in(trace_store, tmp_path / "x", dedup=False))[0].imported == 2


async def test_what_does_not_say_whose_it_is_needs_a_name(trace_store: TraceStore, tmp_path: Path) -> None:
    (tmp_path / "x").write_text('[{"content": "whose?"}]')
    result, _ = await brought_in(trace_store, tmp_path / "x", bounds=EVERYTHING)
    assert result.errors == [
        "x: traces[0]: it does not say whose it is; name the person. Others like it are counted, not listed"
    ]


async def test_what_was_imported_is_found_by_the_search(trace_store: TraceStore, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("content\nRex likes bones\n")
    await import_traces(trace_store, tmp_path / "x.csv", bounds=ADAS)
    (found,) = await trace_store.search(ADA, TraceQuery(query="bone"))
    assert found.trace.content == "Rex likes bones"
    assert found.strength == 1.0


async def test_nothing_that_is_there_is_overwritten_and_errors_say_what_to_do(
    trace_store: TraceStore, tmp_path: Path
) -> None:
    (tmp_path / "there").write_text("mine")
    with pytest.raises(TraceError, match=r"is there already\. Choose another name"):
        await export_traces(trace_store, tmp_path / "there")
    with pytest.raises(TraceError, match=r"is no directory\. Make it first"):
        await export_traces(trace_store, tmp_path / "no" / "out")
    with pytest.raises(TraceError, match="is not there"):
        await import_traces(trace_store, tmp_path / "no", bounds=ADAS)
    with pytest.raises(TraceError, match="is none of sqlite, json"):
        await import_traces(trace_store, tmp_path / "there", bounds=ADAS)
    assert (tmp_path / "there").read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "data", "form"),
    [
        ("x.txt", b"content;tags\na;b\n", "csv"),
        ("x.csv", b'{"traces": []}', "json"),
        ("x.md", b'[{"title": "t", "mapping": {}}]', "chatgpt"),
        ("x.json", b"---\nid: a\n---\nb", "markdown"),
        ("x.json", b"SQLite format 3\0", "sqlite"),
        ("x.csv", b"", "csv"),
    ],
)
def test_the_format_is_told_by_content_first(tmp_path: Path, name: str, data: bytes, form: str) -> None:
    (tmp_path / name).write_bytes(data)
    assert detect_format(tmp_path / name) == form


@pytest.mark.parametrize(
    ("document", "lists"),
    [("{}", "none"), ('{"memories": [{"content": "x"}]}', "memories"), ('{"traces": {"content": "x"}}', "none")],
)
async def test_json_without_traces_is_no_import_of_nothing(
    trace_store: TraceStore, tmp_path: Path, document: str, lists: str
) -> None:
    (tmp_path / "x.json").write_text(document)
    result, _ = await brought_in(trace_store, tmp_path / "x.json", form="json")
    assert result.errors == [f'x.json: it holds no list "traces", so nothing of it can be imported; its lists: {lists}']
    assert not result.is_whole
    (tmp_path / "empty.json").write_text('{"traces": []}')
    result, _ = await brought_in(trace_store, tmp_path / "empty.json")
    assert result.is_whole


@pytest.mark.parametrize("form", ["auto", "csv"])
async def test_a_csv_of_an_old_mac_comes_in(trace_store: TraceStore, tmp_path: Path, form: str) -> None:
    (tmp_path / "x").write_bytes(b"content,type\rRex likes bones,semantic\rTea at five,\r")
    result, traces = await brought_in(trace_store, tmp_path / "x", form=form)
    assert (result.errors, by_content(traces).keys()) == ([], {"Rex likes bones", "Tea at five"})


def test_quotes_that_no_line_closes_are_read_in_time_that_grows_with_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each line opens a quote behind the one before; 24 KB took a second, 240 KB more than a minute."""
    monkeypatch.setattr(csv_format, "_MOST_AGAIN_CHARS", 1_000_000, raising=False)
    path = tmp_path / "x.csv"
    path.write_text("content,b\n" + 'x","y\n' * 8_000)
    began_s = time.thread_time()
    traces = [each for each in csv_format.read_csv(Source(path), now_ms=0) if isinstance(each, CarriedTrace)]
    assert len(traces) == 8_000
    assert time.thread_time() - began_s < 2.0


@pytest.mark.parametrize(
    ("rows", "contents", "places"),
    [
        (['"one', "two", "three"], {"one", "two", "three"}, [2]),
        (["one", '"two', "three", '"four"', '"a\nb"'], {"one", "two", "three", "four", "a\nb"}, [3]),
        (["one", '"two'], {"one", "two"}, [3]),
        (['"one" sic', '"two ""2"""'], {"one sic", 'two "2"'}, []),
    ],
)
async def test_a_quote_that_is_never_closed_takes_its_own_line_only(
    trace_store: TraceStore, tmp_path: Path, rows: list[str], contents: set[str], places: list[int]
) -> None:
    (tmp_path / "x.csv").write_text("\n".join(["content", *rows, ""]))
    result, traces = await brought_in(trace_store, tmp_path / "x.csv")
    assert by_content(traces).keys() == contents
    assert result.errors == [
        f"x.csv: line {place}: a quote is opened in it and not closed; the line was read alone" for place in places
    ]


async def test_what_chatgpt_was_not_to_remember_is_not_imported(trace_store: TraceStore, tmp_path: Path) -> None:
    secret = conversation("Secret", ("a", None, message("user", "my PIN is 1234")), current="a") | {
        "is_do_not_remember": True
    }
    told = conversation("Told", ("a", None, message("user", "my dog is Rex")), current="a") | {
        "is_do_not_remember": False
    }
    (tmp_path / "conversations.json").write_text(json.dumps([secret, told]))
    result, traces = await brought_in(trace_store, tmp_path / "conversations.json")
    assert by_content(traces).keys() == {"[user]: my dog is Rex"}
    assert (result.skipped, result.is_whole) == (1, True)
    assert result.errors == [
        "conversations.json: conversation 1 (Secret): ChatGPT was told not to remember it; it was passed over"
    ]


async def test_an_obsidian_export_of_agentos_says_the_same_as_its_json(trace_store: TraceStore, tmp_path: Path) -> None:
    """Its notes carry tags and a list in the text, and no hash: as ObsidianExporter.js of 0.9.164 writes them."""
    front = "---\nid: {id}\ntype: semantic\nscope: user\nstrength: 1\ntags:{tags}\ncreatedAt: 1700000000000\n---\n"
    folder = tmp_path / "vault" / "user" / "semantic"
    folder.mkdir(parents=True)
    tagged = front.format(id="mt_1", tags="\n  - green tea\n  - drinks")
    (folder / "mt_1.md").write_text(
        f"{tagged}Ada likes tea\n\n#green-tea #drinks\n\n**Related:**\n- [[Ada]]\n- [[Assam, the place]]\n"
    )
    (folder / "mt_2.md").write_text(f"{front.format(id='mt_2', tags=' []')}Rex is a dog\n\n#not-a-tag-of-it\n")
    traces = [
        {
            "id": "mt_1",
            "type": "semantic",
            "scope": "user",
            "content": "Ada likes tea",
            "tags": '["green tea","drinks"]',
        },
        {"id": "mt_2", "type": "semantic", "scope": "user", "content": "Rex is a dog\n\n#not-a-tag-of-it"},
    ]
    (tmp_path / "theirs.json").write_text(json.dumps({"traces": traces}))
    assert (await brought_in(trace_store, tmp_path / "theirs.json"))[0].imported == 2
    result, found = await brought_in(trace_store, tmp_path / "vault")
    assert (result.form, result.imported, result.skipped) == ("obsidian", 0, 2)
    assert by_content(found).keys() == {"Ada likes tea", "Rex is a dog\n\n#not-a-tag-of-it"}


def test_the_tags_of_a_word_without_an_end_are_looked_for_once() -> None:
    began_s = time.process_time()
    assert tags_in("[" * 200_000 + " https://a.example/#none #tea") == ("tea",)
    assert time.process_time() - began_s < 1.0
