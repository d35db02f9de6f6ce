"""A file may be larger than memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import asyncio, re, sys
from pathlib import Path
from gateway.traces.trace_store import open_trace_store
from gateway.traces.trace import Viewer
from gateway.traces.transfer.bounds import OfPerson
from gateway.traces.transfer.importing import import_traces

async def main():
    path = Path(sys.argv[1])
    viewer = Viewer(user_id="u", personality_id="assistant", session_id=None)
    async with open_trace_store(path.with_suffix(".sqlite")) as trace_store:
        result = await import_traces(trace_store, path, bounds=OfPerson(viewer), is_dry_run=True)
    # of this program alone; what getrusage says begins with the size of the parent
    used_kb = re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]
    print(result.imported, int(used_kb) // 1024)

asyncio.run(main())
"""
TEXT = "tea and cake " * 800


def traces(count: int) -> str:
    rows = (json.dumps({"content": f"{index} {TEXT}"}) for index in range(count))
    return f'{{"traces": [{",".join(rows)}]}}'


def conversations(count: int) -> str:
    def one(index: int) -> dict[str, object]:
        message = {"author": {"role": "user"}, "content": {"content_type": "text", "parts": [f"{index} {TEXT}"]}}
        return {"title": "t", "mapping": {"a": {"parent": None, "message": message}}, "current_node": "a"}

    return f"[{','.join(json.dumps(one(index)) for index in range(count))}]"


@pytest.mark.parametrize("write", [traces, conversations])
@pytest.mark.slow
def test_reading_sixty_megabytes_takes_no_sixty_megabytes(write: object, tmp_path: Path) -> None:
    """A tenth of the file and the file need about the same memory, and far less than the 300 MB that are allowed."""
    used_mb = {}
    for count in (600, 6_000):
        path = tmp_path / f"{count}.json"
        path.write_text(write(count))  # type: ignore[operator]
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(path)], capture_output=True, text=True, check=True, timeout=120
        )
        imported, used_mb[count] = map(int, done.stdout.split())
        assert imported == count
    assert path.stat().st_size > 60_000_000
    assert used_mb[6_000] < used_mb[600] + 40
    assert used_mb[6_000] < 300
