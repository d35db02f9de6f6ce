"""A mail server that misbehaves (aiosmtpd, on request), and what an answer's fate is then: certain, or looked into."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import MISSING, SMTP, AuthResult, Envelope, Session

from adapters.email import Config, build
from adapters.email.adapter import EmailAdapter
from gateway.errors import (
    AdapterAuthFailed,
    AdapterNotReady,
    PermanentSendError,
    TransientSendError,
    UncertainSendError,
)
from gateway.messages import Attachment, ConversationRef, OutboundMessage
from gateway.protocols import AdapterServices
from gateway.testing.adapters import soon
from tests.conformance.conversation_log import FakeLog
from tests.conformance.notes import FakeNotes

MESSAGE = OutboundMessage(
    id="t_1.reply",
    conversation=ConversationRef(channel="mail", conversation="ada@example.org"),
    text="the answer",
    reply_to="<1@example.org>",
)
Hook = Callable[[SMTP], Awaitable[str]]


class _Smtp(SMTP):
    """The library's, with a word in what follows DATA; an answer that is empty has been given by the hook."""

    async def smtp_DATA(self, arg: str) -> None:  # noqa: N802 (the library's name)
        answer = await self.event_handler._hook("DATA", self)
        if answer is None:
            await super().smtp_DATA(arg)
        elif answer:
            await self.push(answer)


class Server:
    """Takes mail, until it is told to do something else.

    Attributes:
        taken: the raw mails.
        envelopes: sender, its options, and recipients of each.
        hooks: by command (`AUTH`, `MAIL`, `RCPT`, `DATA`, `TEXT`, `QUIT`): what to answer instead, once for each entry.
        logins: how many there were.
    """

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.envelopes: list[tuple[str | None, list[str], list[str]]] = []
        self.hooks: dict[str, list[Hook]] = {}
        self.logins = 0
        self.is_busy = 0
        self.busiest = 0
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self) -> None:
        def make() -> SMTP:
            return _Smtp(
                self, auth_require_tls=False, authenticator=self._log_in, hostname="mx.test", data_size_limit=5_000_000
            )

        self._server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    def on(self, command: str, *hooks: Hook) -> None:
        self.hooks[command] = list(hooks)

    @property
    def message_ids(self) -> list[str]:
        return [message_from_bytes(each)["Message-ID"] for each in self.taken]

    async def _hook(self, command: str, smtp: SMTP) -> str | None:
        waiting = self.hooks.get(command)
        return await waiting.pop(0)(smtp) if waiting else None

    def _log_in(self, _server: SMTP, _session: Session, _envelope: Envelope, _mechanism: str, data: Any) -> AuthResult:
        self.logins += 1
        return AuthResult(success=data.password == b"good", handled=False)

    async def handle_AUTH(self, smtp: SMTP, *_: Any) -> Any:  # noqa: N802 (the library's name)
        answer = await self._hook("AUTH", smtp)
        return answer if answer is not None else MISSING

    async def handle_MAIL(  # noqa: N802 (the library's name)
        self, smtp: SMTP, _session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        envelope.mail_from, envelope.mail_options = address, options
        return await self._hook("MAIL", smtp) or "250 OK"

    async def handle_RCPT(  # noqa: N802 (the library's name)
        self, smtp: SMTP, _session: Session, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        envelope.rcpt_tos.append(address)
        return await self._hook("RCPT", smtp) or "250 OK"

    async def handle_DATA(self, smtp: SMTP, _session: Session, envelope: Envelope) -> str:  # noqa: N802 (the library's name)
        self.is_busy += 1
        self.busiest = max(self.busiest, self.is_busy)
        assert isinstance(envelope.content, bytes)
        try:
            answer = await self._hook("TEXT", smtp)
        finally:
            self.is_busy -= 1
        if answer is None or answer.startswith("taken"):
            self.taken.append(envelope.content)
            self.envelopes.append((envelope.mail_from, envelope.mail_options, envelope.rcpt_tos))
        if answer == "taken, and gone":
            _drop(smtp)
        return answer if answer is not None and answer[0].isdigit() else "250 taken"

    async def handle_QUIT(self, smtp: SMTP, *_: Any) -> str:  # noqa: N802 (the library's name)
        return await self._hook("QUIT", smtp) or "221 Bye"


def _drop(smtp: SMTP) -> None:
    transport = smtp.transport
    assert transport is not None
    transport.abort()


def says(answer: str) -> Hook:
    async def hook(_smtp: SMTP) -> str:
        return answer

    return hook


async def hangs_up(smtp: SMTP) -> str:
    _drop(smtp)
    return "421 gone"


async def hangs_up_in_the_middle_of_the_text(smtp: SMTP) -> str:
    await smtp.push("354 go on")
    await smtp._reader.read(100)
    _drop(smtp)
    return ""


async def says_nothing(_smtp: SMTP) -> str:
    await asyncio.Event().wait()  # it is cancelled when the client hangs up
    return "421 never"


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    await server.start()
    yield server
    server.close()


@pytest.fixture
async def notes() -> FakeNotes:
    return FakeNotes()


@pytest.fixture
async def adapter(server: Server, notes: FakeNotes) -> AsyncIterator[EmailAdapter]:
    adapter = make_adapter(server, notes)
    yield adapter
    await adapter.close()


def make_adapter(server: Server, notes: FakeNotes, password: str = "good") -> EmailAdapter:  # noqa: S107 (made up)
    config = Config.model_validate(
        {
            "address": "bot@example.net",
            "imap_host": "127.0.0.1",
            "imap_port": 1,
            "smtp_host": "127.0.0.1",
            "smtp_port": server.port,
            "smtp_tls": "none",
            "password": password,
            "trusted_authserv_id": "mx.example.net",
        }
    )
    services = AdapterServices(name="mail", state_dir=Path("/nonexistent"), log=FakeLog(), notes=notes, commands=())
    adapter = build(config, services)
    object.__setattr__(adapter._smtp._server, "timeout_s", 0.5)
    return adapter


async def test_a_mail_is_handed_over_from_us_to_the_person(server: Server, adapter: EmailAdapter) -> None:
    receipt = await soon(adapter.send(MESSAGE))
    assert list(receipt.message_ids) == server.message_ids
    mail = message_from_bytes(server.taken[0])
    assert (mail["From"], mail["To"]) == ("Ethos <bot@example.net>", "ada@example.org")
    assert mail["In-Reply-To"] == "<1@example.org>"
    size = f"SIZE={len(server.taken[0])}"
    assert server.envelopes == [("bot@example.net", [size], ["ada@example.org"])]


@pytest.mark.parametrize("command", ["MAIL", "RCPT", "DATA", "TEXT"])
@pytest.mark.parametrize("answer", ["421 closing", "450 busy", "451 try later", "452 full"])
async def test_what_is_put_off_is_certainly_not_delivered(
    server: Server, adapter: EmailAdapter, notes: FakeNotes, command: str, answer: str
) -> None:
    server.on(command, says(answer))
    with pytest.raises(TransientSendError, match=answer[:3]):
        await soon(adapter.send(MESSAGE))
    assert server.taken == []
    await soon(adapter.send(MESSAGE))
    assert len(server.taken) == 1
    assert notes.texts.keys() <= {"key"}


@pytest.mark.parametrize("command", ["MAIL", "RCPT", "DATA", "TEXT"])
@pytest.mark.parametrize("answer", ["550 no such user", "552 too large", "554 spam", "501 bad address"])
async def test_what_is_refused_is_refused_for_good(
    server: Server, adapter: EmailAdapter, command: str, answer: str
) -> None:
    server.on(command, says(answer))
    with pytest.raises(PermanentSendError, match=answer[:3]):
        await soon(adapter.send(MESSAGE))
    assert server.taken == []


@pytest.mark.parametrize("command", ["MAIL", "RCPT", "DATA"])
@pytest.mark.parametrize("happens", [hangs_up, says_nothing])
async def test_a_line_that_breaks_before_the_text_went_out_has_delivered_nothing(
    server: Server, adapter: EmailAdapter, command: str, happens: Hook
) -> None:
    server.on(command, happens)
    with pytest.raises(TransientSendError):
        await soon(adapter.send(MESSAGE))
    assert server.taken == []


@pytest.mark.parametrize("happens", [hangs_up, says_nothing, says("taken, and gone")])
async def test_a_line_that_breaks_after_the_text_went_out_leaves_us_unsure(
    server: Server, adapter: EmailAdapter, happens: Hook
) -> None:
    server.on("TEXT", happens)
    with pytest.raises(UncertainSendError):
        await soon(adapter.send(MESSAGE))


async def test_a_line_that_breaks_before_the_final_dot_loses_and_doubles_nothing(
    server: Server, adapter: EmailAdapter
) -> None:
    """The library does not tell how much of the text had gone out, so we are unsure; nothing was taken, though."""
    server.on("DATA", hangs_up_in_the_middle_of_the_text)
    with pytest.raises(UncertainSendError):
        await soon(adapter.send(MESSAGE))
    assert server.taken == []
    assert await soon(adapter.find_sent(MESSAGE)) is None
    receipt = await soon(adapter.send(MESSAGE))
    assert server.message_ids == list(receipt.message_ids)


async def test_an_unsure_mail_is_repeated_once_under_its_message_id_and_not_again(
    server: Server, adapter: EmailAdapter, notes: FakeNotes
) -> None:
    server.on("TEXT", says("taken, and gone"), says("taken, and gone"))
    for _ in range(2):
        assert await soon(adapter.find_sent(MESSAGE)) is None
        with pytest.raises(UncertainSendError):
            await soon(adapter.send(MESSAGE))
    with pytest.raises(PermanentSendError, match=r"2 times as <t_1\.reply"):
        await soon(adapter.find_sent(MESSAGE))
    assert len(server.message_ids) == 2
    assert len(set(server.message_ids)) == 1
    assert await soon(adapter.find_sent(MESSAGE)) is None, "an operator who sends it again is obeyed"
    assert not [key for key in notes.texts if key.startswith("unconfirmed")]


async def test_a_repetition_that_was_certainly_not_delivered_does_not_count(
    server: Server, adapter: EmailAdapter
) -> None:
    server.on("TEXT", hangs_up, says("451 later"), says("451 later"))
    with pytest.raises(UncertainSendError):
        await soon(adapter.send(MESSAGE))
    for _ in range(2):
        assert await soon(adapter.find_sent(MESSAGE)) is None
        with pytest.raises(TransientSendError):
            await soon(adapter.send(MESSAGE))
    assert await soon(adapter.find_sent(MESSAGE)) is None
    await soon(adapter.send(MESSAGE))
    assert len(server.taken) == 1


async def test_a_process_that_died_in_the_middle_leaves_the_try_counted(
    server: Server, adapter: EmailAdapter, notes: FakeNotes
) -> None:
    reached = asyncio.Event()

    async def holds(smtp: SMTP) -> str:
        reached.set()
        return await says_nothing(smtp)

    server.on("TEXT", holds, says("taken, and gone"))
    task = asyncio.create_task(adapter.send(MESSAGE))
    await soon(reached.wait())
    task.cancel()
    await asyncio.wait({task})
    later = make_adapter(server, notes)
    assert await soon(later.find_sent(MESSAGE)) is None
    with pytest.raises(UncertainSendError):
        await soon(later.send(MESSAGE))
    with pytest.raises(PermanentSendError):
        await soon(later.find_sent(MESSAGE))


async def test_a_process_that_died_before_the_server_asked_for_the_text_has_not_tried(
    server: Server, adapter: EmailAdapter, notes: FakeNotes
) -> None:
    """Killed there again and again, it would be called sent twice, and nobody would have got it."""
    for _ in range(3):
        reached = asyncio.Event()

        async def holds(smtp: SMTP, reached: asyncio.Event = reached) -> str:
            reached.set()
            return await says_nothing(smtp)

        server.on("DATA", holds)
        assert await soon(adapter.find_sent(MESSAGE)) is None
        task = asyncio.create_task(adapter.send(MESSAGE))
        await soon(reached.wait())
        assert not [key for key in notes.texts if key.startswith("unconfirmed")]
        task.cancel()
        await asyncio.wait({task})
    await soon(adapter.send(MESSAGE))
    assert len(server.taken) == 1


async def test_a_voice_note_is_a_mail_with_an_audio_file_and_no_words(
    server: Server, adapter: EmailAdapter, tmp_path: Path
) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"OggS\0\r\nOpusHead")
    file = Attachment(
        media_type="audio/ogg", filename="voice.ogg", size_bytes=15, ref=str(path), is_voice=True, duration_s=1.0
    )
    assert adapter.capabilities.voice == "file"
    await adapter.send(replace(MESSAGE, id="t_1.voice", text="", attachments=(file,)))
    mail = message_from_bytes(server.taken[0], policy=policy.default)
    (part,) = mail.iter_attachments()
    assert (part.get_content_type(), part.get_filename()) == ("audio/ogg", "voice.ogg")
    assert part.get_payload(decode=True) == path.read_bytes()
    assert mail.get_body(("plain",)).get_content().strip() == ""


async def test_every_line_of_a_mail_arrives_as_it_was_written(server: Server, adapter: EmailAdapter) -> None:
    text = ".\n..\n.hidden\n\nlast."
    await soon(adapter.send(replace(MESSAGE, text=text)))
    sent = message_from_bytes(server.taken[0], policy=policy.default)
    plain = sent.get_body(preferencelist=("plain",))
    assert plain is not None
    assert plain.get_content().replace("\r\n", "\n").strip() == text


async def test_a_bad_farewell_changes_nothing(server: Server, adapter: EmailAdapter) -> None:
    for happens in (hangs_up, says("500 what?")):
        server.on("QUIT", happens)
        await soon(adapter.send(MESSAGE))
    assert len(server.taken) == 2


async def test_a_wrong_password_needs_an_operator_and_the_mail_waits(server: Server, notes: FakeNotes) -> None:
    adapter = make_adapter(server, notes, password="wrong-and-secret")
    with pytest.raises(AdapterAuthFailed) as caught:
        await soon(adapter._smtp.check())
    assert "wrong-and-secret" not in str(caught.value)
    with pytest.raises(TransientSendError):
        await soon(adapter.send(MESSAGE))


async def test_a_login_that_is_put_off_is_tried_again_later(server: Server, adapter: EmailAdapter) -> None:
    server.on("AUTH", *[says("454 temporary authentication failure")] * 3)
    with pytest.raises(AdapterNotReady):
        await soon(adapter._smtp.check())


async def test_a_burst_takes_a_few_lines_at_a_time_and_each_mail_once(server: Server, adapter: EmailAdapter) -> None:
    people = [ConversationRef(channel="mail", conversation=f"p{number}@example.org") for number in range(40)]
    messages = [OutboundMessage(id=f"o{n}", conversation=who, text="hi") for n, who in enumerate(people)]
    four, released = asyncio.Event(), asyncio.Event()

    async def waits(_smtp: SMTP) -> str:
        if server.is_busy == 4:
            four.set()
        await released.wait()
        return "taken"

    server.on("TEXT", *[waits] * 40)
    sending = asyncio.gather(*(adapter.send(message) for message in messages))
    await soon(four.wait())
    assert server.logins == 4
    released.set()
    await soon(sending)
    assert len(set(server.message_ids)) == len(server.taken) == 40
    assert server.busiest == 4


async def test_one_slow_server_answer_does_not_hold_up_the_others(server: Server, adapter: EmailAdapter) -> None:
    reached, released = asyncio.Event(), asyncio.Event()

    async def waits(_smtp: SMTP) -> str:
        reached.set()
        await released.wait()
        return "taken"

    server.on("TEXT", waits)
    slow = asyncio.create_task(adapter.send(MESSAGE))
    await soon(reached.wait())
    other = OutboundMessage(id="o", conversation=ConversationRef(channel="mail", conversation="bob@x.org"), text="hi")
    await soon(adapter.send(other))
    released.set()
    await soon(slow)
