"""Files, in and out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gateway.errors import PermanentSendError, TransientSendError, UncertainSendError
from gateway.messages import Attachment, OutboundMessage
from gateway.protocols import SupportsAttachments
from gateway.testing.adapters import answer, running, soon
from tests.adapters.slack.fake_slack import DIRECT, Fault, read
from tests.adapters.slack.harness import SocketHarness

CONTENT = bytes(range(256)) * 300


async def received(person: SocketHarness, **more: str) -> Attachment:
    """A file that somebody sent."""
    file = person.slack.add_file(CONTENT, **more)
    return Attachment(media_type="text/plain", filename="notes.txt", size_bytes=len(CONTENT), ref=file["id"])


def with_files(message: OutboundMessage, tmp_path: Path, *names: str) -> OutboundMessage:
    files = []
    for name in names:
        (tmp_path / name).write_bytes(name.encode())
        files.append(Attachment(media_type="text/plain", filename=name, size_bytes=len(name), ref=str(tmp_path / name)))
    return replace(message, attachments=tuple(files))


# ---- in -------------------------------------------------------------------------------------------------------------


async def test_a_file_is_announced_with_its_message_and_fetched_whole(person: SocketHarness) -> None:
    file = person.slack.add_file(CONTENT)
    message = person.slack.write(DIRECT, "look", subtype="file_share", files=[file])
    async with running(person) as inbox:
        await person.deliver(person.slack.event(message))
        (attachment,) = (await inbox.has(1))[0].attachments
        assert isinstance(person.adapter, SupportsAttachments)
        assert await soon(person.adapter.fetch(attachment, len(CONTENT))) == CONTENT


async def test_a_file_that_is_too_large_is_not_taken(person: SocketHarness) -> None:
    async with running(person):
        with pytest.raises(PermanentSendError, match="larger"):
            await soon(person.adapter.fetch(await received(person), len(CONTENT) - 1))


async def test_the_token_goes_to_slack_only(person: SocketHarness) -> None:
    async with running(person):
        for elsewhere in (
            "https://slack.com.example.org/x",
            "http://files.slack.com/x",
            "https://example.org/slack.com",
        ):
            with pytest.raises(PermanentSendError, match="not kept by Slack"):
                await soon(person.adapter.fetch(await received(person, url_private_download=elsewhere), 10**6))


async def test_a_file_that_slack_does_not_hand_out_is_refused(person: SocketHarness) -> None:
    async with running(person):
        attachment = await received(person)
        with pytest.raises(PermanentSendError):
            await soon(person.adapter.fetch(replace(attachment, ref="F0"), 10**6))
        elsewhere = await received(person, url_private_download=f"{person.slack.url}/files/F0")
        with pytest.raises(PermanentSendError, match="302"):
            await soon(person.adapter.fetch(elsewhere, 10**6))
        person.slack.scopes.discard("files:read")
        with pytest.raises(PermanentSendError, match="missing_scope"):
            await soon(person.adapter.fetch(attachment, 10**6))


async def test_a_file_that_cannot_be_had_now_may_be_had_later(person: SocketHarness) -> None:
    async with running(person):
        attachment = await received(person)
        person.slack.fail("files.info", *[Fault(status=500, error="internal_error")] * 2)
        with pytest.raises(TransientSendError):
            await soon(person.adapter.fetch(attachment, 10**6))
    with pytest.raises(TransientSendError):
        await soon(person.adapter.fetch(attachment, 10**6))


# ---- out ------------------------------------------------------------------------------------------------------------


def sent(person: SocketHarness) -> list[bytes]:
    return [
        person.slack.files[file["id"]]["content"]
        for message in person.slack.ours()
        for file in message.get("files", ())
    ]


async def test_files_follow_their_text(person: SocketHarness, tmp_path: Path) -> None:
    async with running(person):
        await soon(person.adapter.send(with_files(answer(person, "Here:"), tmp_path, "a.txt", "b.txt")))
        await soon(person.adapter.send(with_files(answer(person, ""), tmp_path, "c.txt")))
    assert [read(message) for message in person.slack.ours() if message["text"]] == ["Here:"]
    assert sent(person) == [b"a.txt", b"b.txt", b"c.txt"]
    assert not [key for key in person.notes.texts if key.startswith("message/")]


@pytest.mark.parametrize("drop", ["before", "after"])
async def test_a_file_is_shown_once_although_the_line_broke(person: SocketHarness, tmp_path: Path, drop: str) -> None:
    async with running(person):
        message = with_files(answer(person, "Here:"), tmp_path, "a.txt", "b.txt")
        person.slack.fail("files.completeUploadExternal", Fault(drop=drop))
        with pytest.raises(UncertainSendError):
            await soon(person.adapter.send(message))
        assert await soon(person.adapter.find_sent(message)) is None
        await soon(person.adapter.send(message))
    assert sent(person) == [b"a.txt", b"b.txt"]
    assert [read(each) for each in person.slack.ours() if each["text"]] == ["Here:"]


async def test_a_message_whose_last_file_arrived_although_the_line_broke_is_found(
    person: SocketHarness, tmp_path: Path
) -> None:
    async with running(person):
        message = with_files(answer(person, "Here:"), tmp_path, "a.txt")
        person.slack.fail("files.completeUploadExternal", Fault(drop="after"))
        with pytest.raises(UncertainSendError):
            await soon(person.adapter.send(message))
        assert await soon(person.adapter.find_sent(message)) is not None
    assert sent(person) == [b"a.txt"]


async def test_a_voice_note_is_an_audio_file_without_a_message_of_its_own(
    person: SocketHarness, tmp_path: Path
) -> None:
    async with running(person):
        assert person.adapter.capabilities.voice == "file"
        note = with_files(answer(person, ""), tmp_path, "voice.ogg")
        file = replace(note.attachments[0], media_type="audio/ogg", is_voice=True, duration_s=2.5, waveform="AAAA")
        await soon(person.adapter.send(replace(note, attachments=(file,))))
    assert sent(person) == [b"voice.ogg"]
    assert not [each for each in person.slack.ours() if each["text"]]


async def test_a_file_that_is_not_there_is_refused(person: SocketHarness, tmp_path: Path) -> None:
    async with running(person):
        message = with_files(answer(person, "Here:"), tmp_path, "a.txt")
        (tmp_path / "a.txt").unlink()
        with pytest.raises(PermanentSendError, match=r"a\.txt"):
            await soon(person.adapter.send(message))
