"""Small files that would take the machine: refused in flat memory, with an error that names the place."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import TraceError
from gateway.traces.trace_store import TraceStore
from gateway.traces.transfer.bounds import OfPerson
from gateway.traces.transfer.importing import import_traces
from gateway.traces.transfer.json_stream import BrokenJson, TooLarge, values_at
from tests.gateway.memory.traces.people import ADA

LIMIT_MB = 700  # of addresses; the program with its libraries takes some 400 of them
PROGRAM = """
import asyncio, resource, sys
from pathlib import Path
from gateway.traces.trace_store import open_trace_store
from gateway.traces.trace import Viewer
from gateway.traces.transfer.bounds import OfPerson
from gateway.traces.transfer.importing import import_traces

async def main():
    path, form = Path(sys.argv[1]), sys.argv[2]
    viewer = Viewer(user_id="u", personality_id="assistant", session_id=None)
    async with open_trace_store(path.with_suffix(".sqlite")) as trace_store:
        resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[3]) << 20,) * 2)
        result = await import_traces(trace_store, path, bounds=OfPerson(viewer), form=form, is_dry_run=True)
    print(result.imported, result.is_broken_off, *result.errors, sep="\\n")

asyncio.run(main())
"""


def pieces_of(kind: str) -> Iterator[bytes]:
    if kind == "deep":
        yield b"[" * 200_000 + b"]" * 200_000
    elif kind == "deep objects":
        yield b'[{"mapping":' + b'{"a":' * 100_000
    elif kind == "long text":
        yield b'[{"mapping": {}, "title": "'
        for _ in range(700):
            yield b"x" * 1_000_000
        yield b'"}]'
    elif kind == "blanks":
        yield b"["
        for _ in range(700):
            yield b" " * 1_000_000
        yield b"]"
    else:
        yield b"[1" + b"1" * 6_000 + b"]"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "place", "reason"),
    [
        ("deep", "at its beginning", "it is nested more than 100 levels deep"),
        ("deep objects", "at its beginning", "it is nested more than 100 levels deep"),
        ("long text", "at its beginning", "a text or a gap in it is longer than 16 MB"),
        ("blanks", "at its beginning", "a text or a gap in it is longer than 16 MB"),
        ("digits", "at its beginning", "a number has more than 1,000 digits"),
    ],
)
@pytest.mark.parametrize("form", ["chatgpt", "json"])
def test_a_trap_is_refused_in_flat_memory(tmp_path: Path, kind: str, place: str, reason: str, form: str) -> None:
    """In a process of its own that may take no more: what it would take is what ended the gateway."""
    path = tmp_path / "trap.zip"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("conversations.json", "w", force_zip64=True) as member,
    ):
        for piece in pieces_of(kind):
            member.write(piece)
    if form == "json":
        with zipfile.ZipFile(path) as archive:
            path = Path(archive.extract("conversations.json", tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path), form, str(LIMIT_MB)],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2_000:]
    imported, is_broken_off, error = done.stdout.splitlines()
    assert (imported, is_broken_off) == ("0", "True")
    assert f"the file breaks off or is no JSON {place} ({reason})" in error
    assert "conversations.json: " in error


async def test_a_zip_that_grows_too_much_is_refused_before_it_is_read(trace_store: TraceStore, tmp_path: Path) -> None:
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for number in range(2):
            archive.writestr(f"conversations-{number}.json", b"[]")
        for member in archive.infolist():
            member.file_size = 600_000_000  # as its directory says; zipfile reads no more than that
    with pytest.raises(TraceError, match="grows too large when it is unpacked"):
        await import_traces(trace_store, path, bounds=OfPerson(ADA))


@pytest.mark.slow
async def test_a_record_that_is_too_large_is_left_out_and_those_around_it_come_in(
    trace_store: TraceStore, tmp_path: Path
) -> None:
    many = json.dumps([[] for _ in range(400_000)])
    (tmp_path / "x.json").write_text(
        f'{{"traces": [{{"content": "first"}}, {{"content": "x", "metadata": {many}}}, {{"content": "last"}}]}}'
    )
    result = await import_traces(trace_store, tmp_path / "x.json", bounds=OfPerson(ADA))
    assert (result.imported, result.left_out, result.is_broken_off) == (2, 1, False)
    assert result.errors == ["x.json: traces[1]: it is larger than 64 MB; it was left out"]


class Dribble(io.BytesIO):
    """A file of which each read gives a few bytes, so that everything is cut somewhere."""

    def __init__(self, data: bytes, size_bytes: int) -> None:
        super().__init__(data)
        self._size_bytes = size_bytes

    def read(self, _size: int | None = -1) -> bytes:
        return super().read(self._size_bytes)


digits = "7" * 1_001
texts = st.lists(st.sampled_from(["\\", '"', "a", digits, "\\\\", "é", "[", "{"]), max_size=4).map("".join)
leaves = st.one_of(texts, st.integers(-(2**70), 2**70), st.none(), st.booleans())
documents = st.lists(st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(texts, inner)), max_size=6)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(document=documents, size_bytes=st.integers(40, 2_000))
def test_what_is_read_is_what_json_reads_however_the_file_is_cut(document: list[Any], size_bytes: int) -> None:
    data = json.dumps(document).encode()
    assert list(values_at(Dribble(data, size_bytes), "item")) == document
    assert list(values_at(Dribble(b'{"x": [7], "traces": ' + data + b"}", size_bytes), "traces.item")) == document
    assert list(values_at(Dribble(data, size_bytes), "")) == [document]


@settings(max_examples=40, deadline=None)
@given(before=st.lists(leaves, max_size=4), size_bytes=st.integers(40, 2_000))
def test_a_number_of_too_many_digits_is_found_wherever_it_stands(before: list[Any], size_bytes: int) -> None:
    """It is looked for before ijson sees it, whose C part ends the process."""
    data = f"[{json.dumps(before)}, {digits}]".encode()
    found: list[Any] = []
    with pytest.raises(BrokenJson, match="digits"):
        found.extend(values_at(Dribble(data, size_bytes), "item"))
    assert not any(isinstance(value, TooLarge) for value in found)
