"""The trace memory through both clients: facts, and files of them in and out."""

from __future__ import annotations

from pathlib import Path

import pytest

from ethos import AsyncEthos, Ethos, NotFoundError
from gateway.sdk.models.traces import AddTrace


async def test_a_fact_is_added_found_changed_merged_deleted_and_brought_back(client: AsyncEthos) -> None:
    one = await client.traces.add(AddTrace(content="Ada likes green tea", tags=("tea",)))
    two = await client.traces.add(AddTrace(content="Ada drinks tea in the morning", tags=("tea", "day")))
    found = [trace async for trace in client.traces.search("green tea", explain=True)]
    assert (found[0].id, found[0].explanation is not None) == (one.id, True)
    assert [trace.id async for trace in client.traces.search(tags=("tea", "day"))] == [two.id]
    assert (await client.traces.update(one.id, tags=("drink",))).tags == ("drink",)
    merged = await client.traces.merge((one.id, two.id), content="Ada likes green tea, in the morning")
    assert (await client.traces.get(one.id)).merged_into == merged.id
    assert (await client.traces.delete(merged.id)).deleted_at is not None
    assert (await client.traces.restore(merged.id)).deleted_at is None
    assert len((await client.traces.strength(merged.id, points=10)).points) == 10
    assert (await client.traces.graph(merged.id)).trace.id == merged.id
    assert not (await client.traces.consolidate()).is_running
    assert [entry.reason async for entry in client.traces.consolidations()]
    with pytest.raises(NotFoundError):
        await client.traces.get("tr_nobody")


async def test_an_export_imported_again_changes_nothing_and_a_dry_run_less(client: AsyncEthos, tmp_path: Path) -> None:
    for number in range(20):
        await client.traces.add(AddTrace(content=f"Fact number {number} is about tea"))
    written = await client.traces.export_file(tmp_path / "traces.json")
    file = written.path
    assert written.traces == 20
    assert file.stat().st_mode & 0o777 == 0o600
    assert [left.name for left in tmp_path.iterdir() if left.name.startswith(".traces")] == []
    report = await client.traces.import_file(file)
    assert (report.format, report.imported, report.skipped, report.errors) == ("json", 0, 20, ())
    other = tmp_path / "other.csv"
    other.write_text("content\nAda rows\n", encoding="utf-8")
    assert (await client.traces.import_file(other, is_dry_run=True)).imported == 1
    assert [trace async for trace in client.traces.search("rows")] == []


def test_the_blocking_client_sends_and_fetches_files_too(blocking: Ethos, tmp_path: Path) -> None:
    blocking.traces.add(AddTrace(content="Ada rows"))
    file = blocking.traces.export_file(tmp_path / "notes.zip", format="markdown").path
    assert file.read_bytes().startswith(b"PK")
    assert blocking.traces.import_file(file).imported == 0
    with pytest.raises(FileNotFoundError):
        blocking.traces.import_file(tmp_path / "nothing.json")


async def test_a_refused_export_leaves_no_file(client: AsyncEthos, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        await client.traces.export_file(tmp_path / "traces.json", user="telegram:1")
    assert not (tmp_path / "traces.json").exists()
