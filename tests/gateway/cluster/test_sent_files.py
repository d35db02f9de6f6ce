"""A worker that answers makes files, and another one, on another machine, sends them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gateway.messages import Attachment, OutboundMessage
from gateway.people.access_records import SetRank
from gateway.store.blobs import SqlBlobs
from tests.fake_channel import FakeChannel
from tests.gateway.cluster.test_gateways import config, reaches
from tests.gateway.cluster.test_turns import serving
from tests.gateway.way.test_approvals import Post
from tests.scripted_model import ScriptedModel, call

PATIENCE_S = 60.0
LONG = "tea and cake, " * 200 + "END"


def worker(home: Path, url: str, name: str, role: str) -> Path:
    """One that has the channel, or one that answers."""
    more = "limits: {lease_s: 5}\nshutdown_s: 2\n"
    text = (config(home, url, name, more) / "config.yaml").read_text()
    text = text.replace(f"name: {name}", f"name: {name}, roles: [{role}]")
    text = text.replace("tests.fake_channel", "tests.fake_channel, max_attachment_bytes: 100000")
    (home / "config.yaml").write_text(text)
    return home


async def test_whole_arguments_and_files_of_tools_are_sent_by_the_worker_that_has_the_channel(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Post(monkeypatch)
    wanted = [
        [*(call("post", json.dumps({"to": "ada", "text": LONG}), id=f"p{number}") for number in range(2))],
        "Soon.",
    ]
    sent: list[OutboundMessage] = []
    read: list[tuple[str, bytes, Path]] = []
    async with (
        asyncio.timeout(PATIENCE_S),
        serving(worker(tmp_path / "north", postgres_url, "north", "channels"), ScriptedModel()) as north,
        serving(worker(tmp_path / "south", postgres_url, "south", "turns"), ScriptedModel(*wanted)) as south,
    ):
        fetched = north.outbox.fetched

        @asynccontextmanager
        async def seen(message: OutboundMessage) -> AsyncGenerator[OutboundMessage]:
            async with fetched(message) as whole:
                read.extend((one.filename, Path(one.ref).read_bytes(), Path(one.ref)) for one in whole.attachments)
                sent.append(message)
                yield whole

        north.outbox.fetched = seen
        await reaches(north, "up")
        user = await north.identities.resolve("fake:1", "Ada")
        change = SetRank(accounts=("fake:1",), rank="owner", via="test", at=datetime.now(UTC))
        await north.store.people.change(change)
        south.admission.people.changed()
        channel: Any = north.channels.if_up("web")
        assert isinstance(channel, FakeChannel)
        await channel.deliver(channel.message("send it", user="1"))
        while not sent:
            await asyncio.sleep(0.02)
        kept = await south.turns._parts.keep_file(user, "1.txt", b"tea")
        assert await south.keep_file(user, "1.txt", b"tea") == kept, "it is there, and stays longer"
        file = Attachment(media_type="text/plain", filename="a.txt", size_bytes=3, ref=kept)
        where = sent[0].conversation
        await south.outbox.post(OutboundMessage(id="f1", conversation=where, text="here", attachments=(file,)))
        while len(sent) < 2:
            await asyncio.sleep(0.02)
        text = f"text: {LONG}\nto: ada".encode()
        assert [(name, data) for name, data, _ in read] == [
            ("number-1.txt", text),
            ("number-2.txt", text),
            ("a.txt", b"tea"),
        ]
        assert all(path.is_relative_to(north.home) for *_, path in read)
        while any(path.exists() for *_, path in read):
            await asyncio.sleep(0.02)
        refs = {one.ref for message in sent for one in message.attachments}
        assert {ref.rpartition("/")[0] for ref in refs} == {f"exports/{user}"}
        assert len(refs) == 2, "the same call twice is one file"
        assert not (south.home / "exports").exists(), "no machine keeps what another one must have"
        blobs = SqlBlobs(south.store.engine)
        assert set(await blobs.ids("exports/")) == refs
        await south.privacy.schedule_erasure(user)
        while await blobs.ids("exports/"):
            await asyncio.sleep(0.05)
