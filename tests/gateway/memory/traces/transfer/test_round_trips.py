"""What is exported and imported is what it was."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from gateway.traces.trace import Trace, Viewer
from gateway.traces.transfer.bounds import OfPerson
from gateway.traces.transfer.detection import EXPORT_FORMATS, ExportFormat
from gateway.traces.transfer.exporting import export_traces
from gateway.traces.transfer.importing import import_traces
from tests.gateway.memory.traces.transfer import corpora
from tests.gateway.memory.traces.transfer.corpora import EVERYTHING, Held, all_of, fill, new_trace_store, tree

often = settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@pytest.mark.slow
@pytest.mark.parametrize("form", EXPORT_FORMATS)
@often
@given(held=corpora.trace_stores())
async def test_a_trace_store_comes_back_with_every_field(form: ExportFormat, held: Held) -> None:
    """Export, import into an empty store, export: the same; and importing it where it came from imports nothing."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        async with new_trace_store(root) as trace_store, new_trace_store(root) as empty:
            await fill(trace_store, held)
            before = await all_of(trace_store)
            assert await export_traces(trace_store, root / "out", form=form, with_embeddings=True) == len(held.traces)
            assert await all_of(trace_store) == before

            again = await import_traces(trace_store, root / "out", bounds=EVERYTHING)
            assert (again.imported, again.skipped, again.errors) == (0, len(held.traces), [])
            assert await all_of(trace_store) == before

            result = await import_traces(empty, root / "out", bounds=EVERYTHING)
            assert (result.imported, result.skipped, result.errors) == (len(held.traces), 0, [])
            assert await all_of(empty) == before
            if form != "sqlite":
                await export_traces(empty, root / "once more", form=form, with_embeddings=True)
                assert tree(root / "once more") == tree(root / "out")


@pytest.mark.slow
@often
@given(held=corpora.trace_stores())
async def test_ten_times_through_obsidian_nothing_grows(held: Held) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        async with new_trace_store(root) as trace_store:
            await fill(trace_store, held)
            await export_traces(trace_store, root / "vault 0", form="obsidian")
        for turn in range(10 if len(held.traces) < 3 else 2):
            async with new_trace_store(root) as trace_store:
                result = await import_traces(trace_store, root / f"vault {turn}", bounds=EVERYTHING, form="obsidian")
                assert result.errors == []
                await export_traces(trace_store, root / f"vault {turn + 1}", form="obsidian")
            assert tree(root / f"vault {turn + 1}") == tree(root / "vault 0")


@pytest.mark.parametrize("form", EXPORT_FORMATS)
async def test_ten_times_through_a_format_it_is_the_same_byte_for_byte(form: ExportFormat, tmp_path: Path) -> None:
    viewer = Viewer(user_id="u_ada", personality_id="assistant", session_id=None)
    odd = [
        Trace(content=f"{text} {index}", owner=viewer.owner("user"), tags=("a b", "c"))
        for index, text in enumerate(corpora.ODD)
    ]
    async with new_trace_store(tmp_path) as trace_store:
        await fill(trace_store, Held(odd))
        before = await all_of(trace_store)
        await export_traces(trace_store, tmp_path / "0", form=form)
    for turn in range(10):
        async with new_trace_store(tmp_path) as trace_store:
            await import_traces(trace_store, tmp_path / f"{turn}", bounds=EVERYTHING)
            assert await all_of(trace_store) == before
            await export_traces(trace_store, tmp_path / f"{turn + 1}", form=form)
        if form != "sqlite":
            assert tree(tmp_path / f"{turn + 1}") == tree(tmp_path / "0")


@pytest.mark.slow
@pytest.mark.parametrize("form", EXPORT_FORMATS)
@often
@given(held=corpora.trace_stores())
async def test_a_person_s_export_comes_back_and_holds_nothing_of_anybody_else(form: ExportFormat, held: Held) -> None:
    viewer = Viewer(user_id="u_ada", personality_id="assistant", session_id="s_1")
    ada = OfPerson(viewer)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        async with new_trace_store(root) as trace_store, new_trace_store(root) as empty:
            await fill(trace_store, held)
            before = await all_of(trace_store)
            hers = [trace for trace in held.traces if trace.owner.id != "u_ben"]
            assert await export_traces(trace_store, root / "out", form=form, bounds=ada, with_embeddings=True) == len(
                hers
            )
            assert (await import_traces(trace_store, root / "out", bounds=ada)).imported == 0
            assert await all_of(trace_store) == before
            result = await import_traces(empty, root / "out", bounds=ada)
            assert (result.imported, result.errors) == (len(hers), [])
            ids = {trace.id for trace in hers}
            after = await all_of(empty)
            assert after["traces"] == [row for row in before["traces"] if row["id"] in ids]
            assert after["edges"] == [edge for edge in before["edges"] if {edge["source"], edge["target"]} <= ids]
            assert after["records"] == [row for row in before["records"] if row["owner"] != "u_ben"]
