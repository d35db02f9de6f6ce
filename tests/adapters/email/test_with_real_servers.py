"""A person and the agent write to each other through real servers, with TLS, passwords and access tokens."""

from __future__ import annotations

import asyncio
import dataclasses
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import (
    AdapterAuthFailed,
    AdapterNotReady,
    PermanentSendError,
    TransientSendError,
)
from gateway.messages import Attachment, ConversationRef, InboundMessage, OutboundMessage
from gateway.testing.adapters import Inbox, running, soon
from tests.adapters.email.harness import (
    CHANNEL,
    EmailHarness,
    OpenHarness,
    Person,
    WatchedNotes,
    a_mail,
    kept,
    make_adapter,
    new_address,
    plain_text,
)
from tests.adapters.email.mail_server import GOOD_TOKEN, PASSWORD, MailServer, OAuthProvider


def reply_to(message: InboundMessage, text: str, *, outbox_id: str = "t_1.reply", **changes: Any) -> OutboundMessage:
    answer = OutboundMessage(id=outbox_id, conversation=message.conversation, text=text, reply_to=message.id)
    return dataclasses.replace(answer, **changes)


def answering(mail: EmailMessage, text: str, sender: str, *, keeps_references: bool = True) -> EmailMessage:
    """What the person's program makes of an answer to this mail."""
    references = [*str(mail["References"] or "").split(), mail["Message-ID"]] if keeps_references else []
    reply = a_mail(
        text, sender=sender, recipient=str(mail["Reply-To"] or mail["From"]), references=references, proof=None
    )
    reply["Subject"] = f"Re: {mail['Subject']}"
    return reply


def address_in(field: str) -> str:
    return field.rpartition("<")[2].rstrip(">")


# ---- to and fro -----------------------------------------------------------------------------------------------------


async def test_a_first_mail_is_answered_in_its_thread_and_the_talk_goes_on_in_it(harness: EmailHarness) -> None:
    person = harness.person
    async with running(harness) as inbox:
        first = a_mail("Is there a later train?", sender=person.address, recipient=harness.bot, subject="Tickets")
        del first["Authentication-Results"]  # Exim, which takes it, says who wrote it
        await person.submit(first, harness.bot)
        asked = (await inbox.has(1))[0]
        assert asked.text == "Subject: Tickets\n\nIs there a later train?"
        assert asked.id == first["Message-ID"]

        await harness.adapter.send(reply_to(asked, "Yes, at **five**."))
        ((_, answer),) = await person.mails()
        assert answer["Subject"] == "Re: Tickets"
        assert answer["In-Reply-To"] == first["Message-ID"]
        assert answer["References"].split() == [first["Message-ID"]]
        assert address_in(answer["From"]) == harness.bot
        assert answer["Auto-Submitted"] == "auto-replied"
        assert answer["Reply-To"] is None
        assert plain_text(answer) == "Yes, at **five**."

        await person.submit(
            answering(answer, "Then that one.\n\nOn 20.11.2026, Ethos wrote:\n> Yes", person.address), harness.bot
        )
        again = (await inbox.has(2))[1]
        assert again.text == "Then that one."
        assert again.is_trusted_text
        assert again.reply_to == answer["Message-ID"]
        assert again.conversation == asked.conversation

        await harness.adapter.send(reply_to(again, "Booked.", outbox_id="t_2.reply"))
        second = (await person.mails())[1][1]
        assert second["References"].split() == [first["Message-ID"], answer["Message-ID"], again.id]


async def test_an_answer_without_references_finds_its_thread_by_the_plus_address(open_harness: OpenHarness) -> None:
    harness = await open_harness(plus_address=True)
    async with running(harness) as inbox:
        await harness.person_says("hello")
        asked = (await inbox.has(1))[0]
        await harness.adapter.send(reply_to(asked, "hi"))
        ((_, answer),) = await harness.person.mails()
        assert "+c." in answer["Reply-To"]
        lost = answering(answer, "me again", harness.person.address, keeps_references=False)
        await harness.person.submit(lost, address_in(lost["To"]))
        assert (await inbox.has(2))[1].conversation == asked.conversation
        other = a_mail("something else", sender=harness.person.address, recipient=harness.bot, subject="Re: hello")
        await harness.person.deliver(other, harness.bot)
        assert (await inbox.has(3))[2].conversation != asked.conversation, "a subject makes no thread"


async def test_a_forged_author_is_found_out_by_the_server_and_not_heard(harness: EmailHarness) -> None:
    eve = Person(harness.server, new_address("eve"))
    forged = a_mail("it is me, Ada", sender=harness.person.address, recipient=harness.bot, proof="dmarc=pass")
    async with running(harness) as inbox:
        await eve.submit(forged, harness.bot)
        await harness.person_says("the real one")
        assert [message.text for message in await inbox.has(1)] == ["the real one"]


async def test_the_answer_goes_to_the_author_and_not_to_a_reply_to(harness: EmailHarness) -> None:
    eve = Person(harness.server, new_address("eve"))
    async with running(harness) as inbox:
        mail = a_mail(
            "secret?", sender=harness.person.address, recipient=harness.bot, fields=[("Reply-To", eve.address)]
        )
        await harness.person.deliver(mail, harness.bot)
        await harness.adapter.send(reply_to((await inbox.has(1))[0], "for Ada only"))
        assert len(await harness.person.mails()) == 1
        assert await eve.mails() == []


async def test_after_a_restart_the_answer_still_belongs_to_its_thread(harness: EmailHarness) -> None:
    async with running(harness) as inbox:
        first = a_mail("hello", sender=harness.person.address, recipient=harness.bot, subject="Plan")
        await harness.person.deliver(first, harness.bot)
        asked = (await inbox.has(1))[0]
    later = make_adapter(harness.server, harness.bot, harness.notes)
    receipt = await soon(later.send(reply_to(asked, "late")))
    ((_, answer),) = await harness.person.mails()
    assert answer["Subject"] == "Re: Plan"
    assert answer["In-Reply-To"] == first["Message-ID"]
    assert receipt.message_ids == (answer["Message-ID"],)


async def test_a_mail_without_an_id_is_answered_without_referring_to_it(harness: EmailHarness) -> None:
    async with running(harness) as inbox:
        mail = a_mail("hello", sender=harness.person.address, recipient=harness.bot)
        del mail["Message-ID"]
        await harness.person.deliver(mail, harness.bot)
        await harness.adapter.send(reply_to((await inbox.has(1))[0], "hi"))
        ((_, answer),) = await harness.person.mails()
        assert answer["In-Reply-To"] is None


async def test_what_the_agent_says_of_itself_begins_a_mail_of_its_own(harness: EmailHarness) -> None:
    conversation = ConversationRef(channel=CHANNEL, conversation=harness.person.address)
    await soon(harness.adapter.send(OutboundMessage(id="reminder-1", conversation=conversation, text="tea time")))
    ((_, mail),) = await harness.person.mails()
    assert mail["Auto-Submitted"] == "auto-generated"
    assert plain_text(mail) == "tea time"


# ---- files ----------------------------------------------------------------------------------------------------------


async def test_files_that_came_are_fetched_when_they_are_wanted(harness: EmailHarness) -> None:
    picture = bytes(range(256)) * 100
    async with running(harness) as inbox:
        mail = a_mail("see", sender=harness.person.address, recipient=harness.bot)
        mail.add_attachment(picture, maintype="image", subtype="png", filename="cat.png")
        mail.add_attachment("a,b", subtype="csv", filename="t.csv")
        await harness.person.deliver(mail, harness.bot)
        cat, table = (await inbox.has(1))[0].attachments
        assert (cat.media_type, cat.filename, cat.size_bytes) == ("image/png", "cat.png", len(picture))
        assert await soon(harness.adapter.fetch(cat, 1_000_000)) == picture
        assert (await soon(harness.adapter.fetch(table, 1_000))).strip() == b"a,b"
        with pytest.raises(PermanentSendError, match="too large"):
            await harness.adapter.fetch(cat, 1_000)
        for ref in ("1/1/0", f"{cat.ref[:-1]}9", cat.ref.replace("/1/", "/99/")):
            with pytest.raises(PermanentSendError, match="not in the mailbox any more"):
                await soon(harness.adapter.fetch(dataclasses.replace(cat, ref=ref), 1_000_000))
        await harness.line.close()
        with pytest.raises(TransientSendError):
            await soon(harness.adapter.fetch(cat, 1_000_000))


async def test_files_go_along_with_an_answer_within_the_limit(open_harness: OpenHarness, tmp_path: Path) -> None:
    harness = await open_harness(max_attachment_bytes=1_000)
    path = tmp_path / "table.csv"
    path.write_bytes(b"a,b\n1,2\n")
    file = Attachment(media_type="text/csv", filename="table.csv", size_bytes=8, ref=str(path))
    message = OutboundMessage(id="x", conversation=harness.conversation, text="here", attachments=(file,))
    await soon(harness.adapter.send(message))
    ((_, mail),) = await harness.person.mails()
    (part,) = mail.iter_attachments()
    assert (part.get_filename(), part.get_payload(decode=True)) == ("table.csv", b"a,b\n1,2\n")
    for bad in (dataclasses.replace(file, size_bytes=1_001), dataclasses.replace(file, ref=str(tmp_path / "gone"))):
        with pytest.raises(PermanentSendError):
            await soon(harness.adapter.send(dataclasses.replace(message, attachments=(bad,))))


# ---- sending --------------------------------------------------------------------------------------------------------


async def test_a_recipient_that_is_refused_is_refused_for_good(harness: EmailHarness) -> None:
    message = OutboundMessage(
        id="x", conversation=ConversationRef(channel=CHANNEL, conversation="nobody@example.test"), text="hi"
    )
    with pytest.raises(PermanentSendError, match="550"):
        await soon(harness.adapter.send(message))


@pytest.mark.parametrize("address", ["Ada@example.test", "ada", "", "ada@example.test\r\nDATA", "<ada@example.test>"])
async def test_a_conversation_that_is_no_address_is_refused_for_good(harness: EmailHarness, address: str) -> None:
    message = OutboundMessage(id="x", conversation=ConversationRef(channel=CHANNEL, conversation=address), text="hi")
    with pytest.raises(PermanentSendError):
        await soon(harness.adapter.send(message))
    with pytest.raises(PermanentSendError):
        await soon(harness.adapter.find_sent(message))


async def test_while_the_server_is_away_nothing_is_sent_and_nothing_is_uncertain(
    open_harness: OpenHarness, mail_server: MailServer
) -> None:
    harness = await open_harness()
    message = OutboundMessage(id="x", conversation=harness.conversation, text="hi")
    mail_server.stop_exim()
    try:
        with pytest.raises(TransientSendError):
            await soon(harness.adapter.send(message))
        with pytest.raises(AdapterNotReady):
            await soon(harness.adapter.connect())
    finally:
        await asyncio.to_thread(mail_server.start_exim)
    await soon(harness.adapter.send(message))
    assert len(await harness.person.mails()) == 1


async def test_an_uncertain_mail_is_looked_for_where_the_server_files_what_was_sent(open_harness: OpenHarness) -> None:
    harness = await open_harness(sent_mailbox="Sent")
    message = OutboundMessage(id="t_9.reply", conversation=harness.conversation, text="hi")
    assert await soon(harness.adapter.find_sent(message)) is None
    receipt = await soon(harness.adapter.send(message))
    ((_, mail),) = await harness.person.mails()
    await harness.person.file(mail.as_bytes(), "Sent", harness.bot)  # Gmail and Microsoft do this by themselves
    assert await soon(harness.adapter.find_sent(message)) == receipt
    await harness.line.close()
    with pytest.raises(TransientSendError):
        await soon(harness.adapter.find_sent(message))


# ---- TLS and logins -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "keys",
    [
        {"smtp_tls": "starttls", "smtp_port": "smtp"},
        {"smtp_tls": "none", "smtp_port": "smtp_clear", "imap_tls": "none", "imap_port": "imap_clear"},
    ],
    ids=["STARTTLS", "clear text, when told so"],
)
async def test_every_way_to_the_servers_works(
    open_harness: OpenHarness, mail_server: MailServer, keys: dict[str, str]
) -> None:
    settings = {
        key: mail_server.ports.get(value, value) if key.endswith("port") else value for key, value in keys.items()
    }
    harness = await open_harness(**settings)
    async with running(harness) as inbox:
        await harness.person_says("hello")
        await harness.adapter.send(reply_to((await inbox.has(1))[0], "hi"))
        assert len(await harness.saw(1)) == 1


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"smtp_tls": "starttls", "smtp_port": "smtp_clear"}, "STARTTLS"),
        ({"ca_file": None}, "certificate is not trusted .*; see `ca_file`"),
        ({"imap_port": "imap_clear"}, "does not begin with TLS; see `imap_port` and `imap_tls`"),
        ({"smtp_port": "smtp"}, "does not begin with TLS; see `smtp_port` and `smtp_tls`"),
        ({"imap_host": "localhost.invalid"}, "IMAP"),
        ({"mailbox": "Nowhere"}, "no mailbox 'Nowhere'"),
    ],
    ids=str,
)
async def test_a_server_that_does_not_speak_as_configured_is_not_ready_and_nothing_goes_in_clear(
    mail_server: MailServer, keys: dict[str, Any], said: str
) -> None:
    settings = {
        key: mail_server.ports.get(value, value) if key.endswith("port") else value for key, value in keys.items()
    }
    adapter = make_adapter(mail_server, new_address("bot"), WatchedNotes(), **settings)
    object.__setattr__(adapter._imap, "timeout_s", 0.5)
    object.__setattr__(adapter._smtp._server, "timeout_s", 0.5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("adapters.email.imap_client._GRACE_S", 0.2)
        with pytest.raises(AdapterNotReady, match=said):
            await soon(adapter.connect())
    await adapter.close()


async def test_a_wrong_password_is_told_without_being_told(
    mail_server: MailServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    adapter = make_adapter(mail_server, new_address("bot"), WatchedNotes(), password="hunter2-wrong")
    with pytest.raises(AdapterAuthFailed, match="refuses the login") as caught:
        await soon(adapter.connect())
    assert "hunter2-wrong" not in f"{caught.value!r} {caught.value.__cause__!r} {caplog.text}"


async def test_the_password_is_in_no_log_of_the_libraries(
    open_harness: OpenHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    harness = await open_harness()
    async with running(harness) as inbox:
        await harness.person_says("hello")
        await harness.adapter.send(reply_to((await inbox.has(1))[0], "hi"))
    assert "w0rd" not in caplog.text, "however it is quoted"
    assert PASSWORD.endswith("w0rd")


async def test_a_server_that_sends_us_away_is_quoted_and_asked_again_later(mail_server: MailServer) -> None:
    async def refuse(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"* BYE too many connections, come back later\r\n")
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    adapter = make_adapter(
        mail_server, new_address("bot"), WatchedNotes(), imap_tls="none", imap_port=server.sockets[0].getsockname()[1]
    )
    with pytest.raises(AdapterNotReady, match="too many connections"):
        await soon(adapter.connect())
    server.close()


@pytest.fixture
async def provider() -> AsyncIterator[OAuthProvider]:
    provider = OAuthProvider()
    yield provider
    provider.close()


def with_tokens(server: MailServer, provider: OAuthProvider, notes: WatchedNotes, address: str, **keys: Any) -> Any:
    oauth = {"token_url": provider.token_url, "client_id": address, "client_secret": "s3cret", "refresh_token": "r-1"}
    return make_adapter(server, address, notes, password=None, oauth={**oauth, **keys.pop("oauth", {})}, **keys)


async def test_access_tokens_open_both_servers_and_one_token_is_enough(
    mail_server: MailServer, provider: OAuthProvider, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    notes, address = WatchedNotes(), new_address("bot")
    adapter = with_tokens(mail_server, provider, notes, address)
    person = Person(mail_server, new_address("ada"))
    await soon(adapter.connect())
    conversation = ConversationRef(channel=CHANNEL, conversation=person.address)
    await soon(adapter.send(OutboundMessage(id="x", conversation=conversation, text="hi")))
    assert len(await person.mails()) == 1
    assert len(provider.requests) == 1
    assert provider.requests[0]["refresh_token"] == "r-1"
    assert GOOD_TOKEN not in caplog.text
    assert b64encode(b"user=").decode()[:6] not in caplog.text, "nor as it goes over the line"
    await adapter.close()


async def test_a_token_that_the_server_refuses_is_replaced_once(
    mail_server: MailServer, provider: OAuthProvider
) -> None:
    """The challenge with which XOAUTH2 fails is answered, so that it fails at once."""
    adapter = with_tokens(mail_server, provider, WatchedNotes(), new_address("bot"))
    provider.answers = [(200, {"access_token": "expired", "expires_in": 3600})]
    await soon(adapter.connect())
    assert len(provider.requests) == 2
    await adapter.close()
    adapter._credentials._token = "expired"
    await soon(adapter._smtp.check())
    assert len(provider.requests) == 3


async def test_tokens_that_are_refused_for_good_need_an_operator_and_are_not_told(
    mail_server: MailServer, provider: OAuthProvider
) -> None:
    adapter = with_tokens(mail_server, provider, WatchedNotes(), new_address("bot"))
    provider.answers = [(200, {"access_token": "bad-token", "expires_in": 3600})] * 5
    with pytest.raises(AdapterAuthFailed) as caught:
        await soon(adapter.connect())
    assert "bad-token" not in f"{caught.value!r} {caught.value.__cause__!r}"
    await adapter.close()


async def test_the_mailbox_is_opened_anew_before_its_token_ends_and_nobody_notices(
    mail_server: MailServer, provider: OAuthProvider
) -> None:
    notes, address = WatchedNotes(), new_address("bot")
    adapter = with_tokens(mail_server, provider, notes, address, idle_s=0.05)
    token = f"{GOOD_TOKEN}|{address}"
    provider.answers = [(200, {"access_token": token, "expires_in": 120.2})] * 3  # 120 s of it are kept in reserve
    person, inbox = Person(mail_server, new_address("ada")), Inbox()
    await soon(adapter.connect())
    run = asyncio.create_task(adapter.run(inbox.accept))
    try:
        for number in range(1, 5):
            await soon(_until(lambda number=number: len(provider.requests) >= number))  # type: ignore[misc]
            await person.deliver(a_mail(str(number), sender=person.address, recipient=address), address)
            await inbox.has(number)
        assert not run.done(), "a line that breaks would have ended it"
    finally:
        run.cancel()
        await asyncio.wait({run})
        await adapter.close()


async def _until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0.01)  # the provider is a thread of its own


async def test_a_line_that_breaks_again_and_again_loses_nothing(open_harness: OpenHarness) -> None:
    """Twenty breaks while forty mails come in, some of them while we log in."""
    harness = await open_harness()
    async with kept(harness) as inbox:
        for number in range(40):
            await harness.person_says(str(number))
            if number % 2:
                harness.line.cut()
        await harness.notes.until(lambda: len(harness.notes.progress["done"]) == 40)
        # A mail that was in the way of two breaks is read after the others.
        assert {message.text for message in inbox.messages} == {str(number) for number in range(40)}
    assert not harness.notes.named("tries/")
    assert not harness.notes.named("quarantine/")
