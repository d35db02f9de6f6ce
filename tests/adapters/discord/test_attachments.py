"""Files that come with messages: fetched from Discord only, within limits, also when their address has ended."""

from __future__ import annotations

import json

import pytest

from gateway.errors import PermanentSendError, TransientSendError
from gateway.messages import Attachment
from gateway.testing.adapters import running, soon
from tests.adapters.discord.harness import DiscordHarness
from tests.adapters.discord.world import DM


def with_file(harness: DiscordHarness, path: str, *, size: int = 5) -> dict[str, object]:
    return {
        "id": "77",
        "filename": "notes.txt",
        "size": size,
        "content_type": "text/plain; charset=utf-8",
        "url": harness.platform.url(f"/cdn/{path}"),
        "proxy_url": harness.platform.url(f"/cdn/{path}"),
    }


async def received(harness: DiscordHarness, path: str, *, size: int = 5) -> Attachment:
    async with running(harness) as inbox:
        harness.platform.say(DM, "see there", attachments=[with_file(harness, path, size=size)])
        return (await inbox.has(1))[0].attachments[0]


async def test_a_file_is_fetched(harness: DiscordHarness) -> None:
    harness.platform.files["a/notes.txt"] = b"hello"
    attachment = await received(harness, "a/notes.txt")
    assert (attachment.filename, attachment.media_type, attachment.size_bytes) == ("notes.txt", "text/plain", 5)
    assert await soon(harness.adapter.fetch(attachment, 100)) == b"hello"


async def test_a_file_whose_address_has_ended_is_asked_for_anew(harness: DiscordHarness) -> None:
    harness.platform.files["new/notes.txt"] = b"hello"
    async with running(harness) as inbox:
        message = harness.platform.say(DM, "see there", attachments=[with_file(harness, "old/notes.txt")])
        attachment = (await inbox.has(1))[0].attachments[0]
        message["attachments"] = [with_file(harness, "new/notes.txt")]
        assert await soon(harness.adapter.fetch(attachment, 100)) == b"hello"
        message["attachments"] = []
        harness.platform.files.clear()
        with pytest.raises(PermanentSendError, match="gone"):
            await soon(harness.adapter.fetch(attachment, 100))


@pytest.mark.parametrize("declared", [5, 500], ids=["larger than declared", "declared too large"])
async def test_a_file_that_is_too_large_is_refused(harness: DiscordHarness, declared: int) -> None:
    harness.platform.files["a/notes.txt"] = b"x" * 500
    attachment = await received(harness, "a/notes.txt", size=declared)
    with pytest.raises(PermanentSendError, match="larger than 100 bytes"):
        await soon(harness.adapter.fetch(attachment, 100))


@pytest.mark.parametrize(
    "ref",
    [
        json.dumps(["1", "2", "3", "http://169.254.169.254/latest/meta-data"]),
        json.dumps(["1", "2", "3", "http://cdn.discordapp.com.evil.example/x"]),
        json.dumps(["1", "2", "x"]),
        json.dumps(["one", "2", "3", "http://127.0.0.1/x"]),
        "no JSON",
    ],
)
async def test_a_reference_that_is_not_ours_is_not_followed(harness: DiscordHarness, ref: str) -> None:
    attachment = Attachment(media_type="text/plain", filename="notes.txt", size_bytes=1, ref=ref)
    async with running(harness):
        with pytest.raises(PermanentSendError):
            await soon(harness.adapter.fetch(attachment, 100))


async def test_a_server_that_is_down_can_be_asked_later(harness: DiscordHarness) -> None:
    attachment = await received(harness, "a/notes.txt")
    await harness.platform.go_down()
    with pytest.raises(TransientSendError):
        await soon(harness.adapter.fetch(attachment, 100))
