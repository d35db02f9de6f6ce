"""Traces in and out by HTTP: the same after a round trip, bounded, flat in memory, and whole after a kill."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings

from gateway.traces.transfer import source
from gateway.traces.transfer.detection import EXPORT_FORMATS, ExportFormat
from tests.gateway.api.traces import Traced, traced
from tests.gateway.memory.traces.transfer import corpora
from tests.gateway.memory.traces.transfer.corpora import Held, all_of, fill

WAIT_S = 60
MIB = 1 << 20


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Traced]:
    async with traced(tmp_path / "home") as found:
        yield found


async def sent(desk: Traced, content: bytes, **params: Any) -> dict[str, Any]:
    answer = await desk.api.post("/traces/import", content=content, params=params)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


@pytest.mark.parametrize("form", EXPORT_FORMATS)
@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(held=corpora.trace_stores())
@pytest.mark.slow
async def test_an_export_imported_into_an_empty_gateway_gives_the_same_export(form: ExportFormat, held: Held) -> None:
    with tempfile.TemporaryDirectory() as name:
        async with traced(Path(name, "one")) as full:
            await fill(full.trace_store, held)
            params = {"format": form, "embeddings": "true"}
            out = await full.api.get("/traces/export", params=params)
            assert (out.status_code, out.headers["x-ethos-traces"]) == (200, str(len(held.traces)))
            before = await all_of(full.trace_store)
            assert (await sent(full, out.content))["imported"] == 0
        async with traced(Path(name, "two")) as empty:
            report = await sent(empty, out.content, name=out.headers["content-disposition"].split('"')[1])
            assert (report["imported"], report["skipped"], report["errors"]) == (len(held.traces), 0, [])
            assert await all_of(empty.trace_store) == before
            again = await empty.api.get("/traces/export", params=params)
            if form != "sqlite":
                assert without_time(again.content) == without_time(out.content)


def without_time(data: bytes) -> Any:
    """What a file says, but for the moment at which it was made."""
    if data[:2] != b"PK":
        found = json.loads(data)
        found["meta"].pop("exportedAt", None)
        return found
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        texts = {name: archive.read(name).decode() for name in archive.namelist()}
    return {name: re.sub(r'"exportedAt": ?\d+', "", text) for name, text in texts.items()}


async def test_each_export_has_a_content_type_that_the_document_names(desk: Traced) -> None:
    document = (await desk.api.get("/openapi.json")).json()
    operation = next(item for path, item in document["paths"].items() if path.endswith("/traces/export"))["get"]
    sent_as = set()
    for form in EXPORT_FORMATS:
        sent_as.add((await desk.api.get("/traces/export", params={"format": form})).headers["content-type"])
    assert sent_as == set(operation["responses"]["200"]["content"])
    assert "application/octet-stream" not in sent_as


async def test_errors_of_an_import_name_no_option_of_the_command_line(desk: Traced) -> None:
    answer = await desk.api.post("/traces/import", content=b"what is this", params={"name": "x.bin"})
    assert answer.status_code == 422
    told = answer.json()["detail"] + "".join((await sent(desk, b'{"traces": [7, {}, {"content": "x"}]}'))["errors"])
    assert "--" not in told
    assert "`ethos" not in told


async def test_a_dry_run_says_what_would_happen_and_changes_nothing(desk: Traced) -> None:
    await desk.add("I like tea")
    body = b"content,tags\nI like tea,warm\nI like trains,\n,lost\n"
    said = await sent(desk, body, name="facts.csv", dryRun="true", user=desk.ada)
    assert (said["format"], said["imported"], said["skipped"], said["isDryRun"]) == ("csv", 1, 1, True)
    assert said["errors"] == ["facts.csv: line 4: it has no content; it was left out"]
    assert await desk.contents() == ["I like tea"]
    done = await sent(desk, body, name="facts.csv", user=desk.ada)
    assert done == {**said, "isDryRun": False}
    again = await sent(desk, body, name="facts.csv", user=desk.ada)
    assert (again["imported"], again["skipped"]) == (0, 2)
    assert set(await desk.contents(user=desk.ada)) == {"I like tea", "I like trains"}


async def test_a_file_of_nothing_known_is_refused_with_its_name_and_no_path(desk: Traced) -> None:
    answer = await desk.api.post("/traces/import", content=b"\x00\x01 nothing", params={"name": "../../etc/passwd"})
    assert answer.status_code == 422
    assert "passwd is none of sqlite, json" in answer.json()["detail"]
    assert str(desk.gateway.home) not in answer.text
    damaged = await desk.api.post("/traces/import", content=b"PK\x03\x04 broken", params={"name": "x.zip"})
    assert (damaged.json()["imported"], damaged.json()["skipped"], len(damaged.json()["errors"])) == (0, 0, 1)
    assert left_over(desk) == []


async def test_a_file_that_does_not_say_whose_it_is_needs_a_name_where_there_are_several(desk: Traced) -> None:
    report = await sent(desk, json.dumps({"traces": [{"content": "whose?"}]}).encode())
    assert (report["imported"], len(report["errors"])) == (0, 1)


async def test_a_larger_file_than_is_allowed_is_refused_and_gone(tmp_path: Path) -> None:
    async with traced(tmp_path / "home", web={"port": 0, "max_upload_bytes": MIB}) as desk:

        async def of_no_known_length() -> AsyncIterator[bytes]:
            for _ in range(64):
                yield b"x" * 65_536

        answer = await desk.api.post("/traces/import", content=of_no_known_length())
        assert answer.status_code == 413
        assert "web.max_upload_bytes" in answer.json()["detail"]
        answer = await desk.api.post("/traces/import", content=b"x" * (MIB + 1))
        assert (answer.status_code, answer.headers["content-type"]) == (413, "application/problem+json")
        assert left_over(desk) == []
        assert (await sent(desk, b"content\ntea\n", user=desk.ada))["imported"] == 1


async def test_an_upload_that_breaks_off_leaves_nothing(desk: Traced) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"content\n" + b"x" * (2 * MIB)
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError):
        await desk.api.post("/traces/import", content=broken())
    async with asyncio.timeout(WAIT_S):
        while left_over(desk):
            await desk.api.get("/traces")
    assert await desk.contents() == []


def left_over(desk: Traced) -> list[Path]:
    place = desk.gateway.home / "run" / "transfers"
    return list(place.iterdir()) if place.exists() else []


async def test_the_same_idempotency_key_imports_once_and_answers_the_same(desk: Traced) -> None:
    body, headers = b"content\ntea\n", {"idempotency-key": "once"}
    params = {"user": desk.ada, "name": "a.csv"}
    first = await desk.api.post("/traces/import", content=body, params=params, headers=headers)
    again = await desk.api.post("/traces/import", content=body, params=params, headers=headers)
    assert (first.json()["imported"], again.json()) == (1, first.json())
    assert again.headers["idempotency-replayed"] == "true"
    other = await desk.api.post("/traces/import", content=body + b"more\n", params=params, headers=headers)
    assert other.status_code == 422


async def test_a_person_s_import_becomes_theirs_and_reaches_nobody_else(desk: Traced) -> None:
    bens = await desk.add("the same", user=desk.ben)
    owner = {"scope": "user", "scopeId": desk.ben}
    body = json.dumps({"traces": [{"id": bens["id"], "content": "planted", **owner}, {"content": "the same", **owner}]})
    key = await desk.of(desk.ada)
    answer = await key.post("/traces/import", content=body.encode())
    assert answer.json()["imported"] == 2
    assert await desk.contents(user=desk.ben) == ["the same"]
    assert set(await desk.contents(user=desk.ada)) == {"planted", "the same"}
    assert (await key.post("/traces/import", content=b"{}", params={"user": desk.ben})).status_code == 403


async def test_zips_that_are_traps_are_refused(desk: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
    escaping = io.BytesIO()
    with zipfile.ZipFile(escaping, "w") as archive:
        archive.writestr("../../../escaped.md", "out")
        archive.writestr("/abs.md", "out")
        archive.writestr("notes/fine.md", "a fine note")
    report = await sent(desk, escaping.getvalue(), user=desk.ada, name="vault.zip")
    assert report["imported"] == 1
    assert list(desk.gateway.home.parent.rglob("escaped.md")) == []
    monkeypatch.setattr(source, "_LEAST_UNPACKED_BYTES", 64 * MIB)
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("big.md", "w") as file:
        for _ in range(65):
            file.write(b"\0" * MIB)
    answer = await desk.api.post("/traces/import", content=bomb.getvalue(), params={"name": "bomb.zip"})
    assert answer.status_code == 422
    assert "too large when it is unpacked" in answer.json()["detail"]
    assert left_over(desk) == []


# ---- a gateway in a process of its own ------------------------------------------------------------------------------

PROGRAM = """
import asyncio, sys
from pathlib import Path
from gateway.app.gateway import Gateway
from gateway.config.file import load_config

async def main():
    home = Path(sys.argv[1])
    async with Gateway(home, load_config(home=home).config, only=set()) as gateway:
        print(gateway.web.url, flush=True)
        await gateway.run(asyncio.Event())

asyncio.run(main())
"""
CONFIG = "web: {port: 0}\nmemory: {traces: {enabled: true, ingest: {enabled: false}}}\n"


@contextlib.contextmanager
def process(home: Path) -> Any:
    """A gateway that can be killed, and a client of its API."""
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "config.yaml").write_text(CONFIG)
    running = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, home], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]
    )
    try:
        assert running.stdout is not None
        url = next(line.strip() for line in running.stdout if line.startswith("http"))
        headers = {"authorization": f"Bearer {(home / 'web-token').read_text().strip()}"}
        with httpx.Client(base_url=url + "api/v1", headers=headers, trust_env=False, timeout=WAIT_S) as client:
            yield running, client
    finally:
        running.kill()
        running.wait()
        if running.stdout is not None:
            running.stdout.close()


@pytest.mark.slow
def test_an_import_that_is_killed_and_sent_again_neither_loses_nor_doubles(tmp_path: Path) -> None:
    count = 6_000
    owner = {"scope": "organization"}
    traces = [{"id": f"mt_{number}", "content": f"fact number {number}", **owner} for number in range(count)]
    body = json.dumps({"traces": traces}).encode()
    home = tmp_path / "home"
    with process(home) as (running, client):
        import threading

        def send() -> None:
            with contextlib.suppress(httpx.HTTPError):
                client.post("/traces/import", content=body)

        sending = threading.Thread(target=send)
        sending.start()
        until = time.monotonic() + WAIT_S
        with httpx.Client(base_url=client.base_url, headers=client.headers, trust_env=False) as looking:
            while time.monotonic() < until:
                if looking.get("/traces", params={"limit": 1}).json()["items"]:
                    break
        running.kill()
        running.wait()
        sending.join()
    assert list((home / "run" / "transfers").iterdir()) != []
    with process(home) as (_, client):
        assert not (home / "run" / "transfers").exists(), "what was left there is removed at the start"
        report = client.post("/traces/import", content=body).json()
        assert (report["imported"] + report["skipped"], report["errors"]) == (count, [])
        assert report["skipped"] >= 500
        out = client.get("/traces/export").json()
        assert sorted(each["content"] for each in out["traces"]) == sorted(each["content"] for each in traces)


@pytest.mark.slow
def test_an_upload_of_two_hundred_megabytes_takes_no_two_hundred_megabytes_of_memory(tmp_path: Path) -> None:
    with process(tmp_path / "home") as (running, client):
        row = json.dumps({"content": "x" * 100_000, "scope": "organization"}).encode()

        def body() -> Any:
            yield b'{"traces": ['
            for number in range(2_000):
                yield (b"," if number else b"") + row
            yield b"]}"

        small = {"traces": [{"content": "warm", "scope": "organization"}]}
        client.post("/traces/import", json=small).raise_for_status()
        before_mb = most_used_mb(running.pid)
        report = client.post("/traces/import", content=body(), timeout=300).json()
        assert (report["imported"], report["skipped"]) == (1, 1_999)
        assert most_used_mb(running.pid) - before_mb < 80


def most_used_mb(pid: int) -> int:
    found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) // 1024
