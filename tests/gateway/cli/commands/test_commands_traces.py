"""`ethos traces export|import|search|consolidate`: the trace memory from the command line."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.embedding_server import EmbeddingServer
from tests.gateway.cli.commands.conftest import Ethos

FACTS = "content,type,tags\nRex likes bones,semantic,dog\nTea is drunk at five,episodic,\n"


@pytest.fixture
def ada(people: dict[str, str]) -> str:
    return people["fake:1"]


@pytest.fixture
def facts(tmp_path: Path) -> Path:
    path = tmp_path / "facts.csv"
    path.write_text(FACTS)
    return path


def test_facts_are_imported_once_found_and_exported(ethos: Ethos, home: Path, ada: str, facts: Path) -> None:
    """Import, again, search with the parts of the score, export in every format, and import what was exported."""
    dry = ethos("traces", "import", str(facts), "--user", "fake:1", "--dry-run")
    assert dry.out == "2 traces would be new, 0 were there already or hold nothing, 0 errors.\n"
    assert not (home / "traces.sqlite").exists()
    answer = ethos("traces", "import", str(facts), "--user", "fake:1")
    assert (answer.code, answer.out) == (0, "2 traces are new, 0 were there already or hold nothing, 0 errors.\n")
    again = ethos("traces", "import", str(facts), "--user", ada, "--dry-run", "--json")
    assert again.value == {
        "imported": 0,
        "skipped": 2,
        "errors": [],
        "errors_left_out": 0,
        "left_out": 0,
        "is_broken_off": False,
        "form": "csv",
        "is_dry_run": True,
    }

    found = ethos("traces", "search", "bone", "--user", "fake:1", "--explain")
    assert "Rex likes bones" in found.out
    assert "score = (words " in found.out
    assert "; words: bone; imported\n" in found.out
    assert "  0.000  " not in found.out
    (hit,) = ethos("traces", "search", "what about a bone", "--user", "fake:1", "--json").value
    assert (hit["words"], hit["source"]) == (["bone"], "imported")
    why = ethos("memory", "why", "likes bones", "--user", "fake:1").out
    assert why.startswith("A fact of ")
    assert why.endswith(", imported:\n    Rex likes bones\n")
    assert ethos("memory", "why", "likes bones", "--user", "fake:2").code == 1
    assert ethos("traces", "search", "bone", "--user", "fake:2").out == (
        "Nothing is remembered that holds any of these words.\n"
    )
    for form in ("sqlite", "json", "markdown", "obsidian"):
        target = facts.with_name(form)
        answer = ethos("traces", "export", str(target), "--format", form, "--user", "fake:1")
        assert answer.out.startswith("2 traces of fake:1 are in "), answer.err
        told = ethos("traces", "import", str(target), "--user", "fake:1").out
        assert told == "0 traces are new, 2 were there already or hold nothing, 0 errors.\n"
    assert (facts.with_name("json").stat().st_mode & 0o777) == 0o600
    assert ethos("traces", "consolidate", "--json").value["merged"] == 0


def test_a_search_by_meaning_is_explained_and_paid_for_and_goes_by_words_where_the_endpoint_is_down(
    ethos: Ethos, home: Path, ada: str, facts: Path
) -> None:
    with EmbeddingServer() as server:
        write_embeddings(home, server.url)
        ethos("traces", "import", str(facts), "--user", "fake:1")
        assert "2 facts have no vector of the model embedder yet" in ethos("doctor").out
        make_vectors(home, server.url)
        assert "no vector" not in ethos("doctor").out
        found = ethos("traces", "search", "my puppy", "--user", "fake:1", "--explain")
        assert (found.code, found.err) == (0, "")
        assert "Rex likes bones" in found.out
        assert "score = (meaning 0." in found.out
        assert "; cosine 0." in found.out
        (hit,) = ethos("traces", "search", "my puppy", "--user", "fake:1", "--json").value
        assert set(hit["parts"]) == {"meaning"}
        assert hit["cosine"] > 0.25
        rows = ethos("usage", "--json").value
        assert "embedder" in json.dumps(rows)
        server.behaviour.is_down = True
        words = ethos("traces", "search", "bones", "--user", "fake:1", "--explain")
        assert "Rex likes bones" in words.out
        assert "score = (words " in words.out
        assert "searched by the words alone, without their meaning: embedder (minilm) is overloaded" in words.err


def write_embeddings(home: Path, url: str) -> None:
    with (home / "config.yaml").open("a") as file:
        file.write(f"models: {{embedder: {{provider: openai, model: minilm, base_url: '{url}'}}}}\n")
        file.write("memory: {traces: {enabled: true, embeddings: {model: embedder, least_similarity: 0.2}}}\n")


def make_vectors(home: Path, url: str) -> None:
    program = [
        sys.executable,
        "-m",
        "tests.gateway.memory.traces.vectors_process",
        str(home / "traces.sqlite"),
        url,
        "64",
    ]
    subprocess.run(program, check=True, timeout=60, cwd=Path(__file__).parents[4])


def test_a_whole_export_brings_everybody_s_facts_back_to_whom_they_belong(
    ethos: Ethos, home: Path, ada: str, facts: Path
) -> None:
    for user in ("fake:1", "fake:2"):
        ethos("traces", "import", str(facts), "--user", user)
    out = facts.with_name("all.json")
    assert ethos("traces", "export", str(out)).out.startswith("4 traces of everybody are in ")
    for name in ("traces.sqlite", "traces.sqlite-wal", "traces.sqlite-shm"):
        (home / name).unlink(missing_ok=True)
    assert ethos("traces", "import", str(out)).out.startswith("4 traces are new")
    with sqlite3.connect(home / "traces.sqlite") as database:
        owners = database.execute("SELECT count(*) FROM owners WHERE kind = 'user'").fetchone()
    database.close()
    assert owners == (2,)
    assert {trace["scopeId"] for trace in json.loads(out.read_text())["traces"]} >= {ada}


def test_errors_name_the_file_and_the_place_and_what_to_do(ethos: Ethos, home: Path, facts: Path) -> None:
    unnamed = ethos("traces", "import", str(facts))
    assert unnamed.code == 1
    assert unnamed.out == (
        "  facts.csv: line 2: it does not say whose it is; name the person. Others like it are counted, not listed\n"
        "0 traces are new, 0 were there already or hold nothing, 1 error.\n"
        "2 records were left out, for the reasons above.\n"
    )
    assert "there is no user fake:9" in ethos("traces", "import", str(facts), "--user", "fake:9").err
    assert "is not there" in ethos("traces", "import", "/nowhere", "--user", "fake:1").err
    assert "is there already" in ethos("traces", "export", str(facts)).err


def test_an_import_that_does_not_take_everything_is_no_success(ethos: Ethos, facts: Path, ada: str) -> None:
    facts.with_name("x.json").write_text('{"traces": [{"content": "Rex likes bones"}, {"content": "cut of')
    answer = ethos("traces", "import", str(facts.with_name("x.json")), "--user", ada)
    assert answer.code == 1
    assert answer.out.startswith("  x.json: traces: the file breaks off or is no JSON after traces[0] (")
    assert answer.out.endswith(
        "\n1 trace is new, 0 were there already or hold nothing, 1 error.\n"
        "The file could not be read to its end. What comes after that place is missing.\n"
    )


def test_before_the_first_chat_an_import_becomes_the_operators(ethos: Ethos, facts: Path, fresh_home: Path) -> None:
    """And the terminal, the web page and the command line find it there."""
    dry = ethos("traces", "import", str(facts), "--dry-run")
    used_once = "ethos: the gateway uses these facts once `memory.traces.enabled: true` is in config.yaml\n"
    assert (dry.code, dry.err) == (0, used_once)
    assert not (fresh_home / "users").exists()
    answer = ethos("traces", "import", str(facts))
    assert (answer.code, answer.out) == (0, "2 traces are new, 0 were there already or hold nothing, 0 errors.\n")
    accounts = json.loads((fresh_home / "users" / "identity-map.json").read_text())["identities"]
    assert accounts.keys() == {"local:operator"}
    assert next(iter(accounts.values()))["userId"] in answer.err
    assert "Rex likes bones" in ethos("traces", "search", "bone").out


def test_before_anything_is_remembered_the_commands_say_so(ethos: Ethos, home: Path) -> None:
    for command in (("export", "x"), ("search", "x"), ("consolidate",)):
        answer = ethos("traces", *command)
        assert answer.code == 1
        assert "the trace memory, the facts besides MEMORY.md and USER.md, and there is none yet" in answer.err
        assert "`memory.traces.enabled: true` in config.yaml switches it on" in answer.err
    assert not (home / "traces.sqlite").exists()
