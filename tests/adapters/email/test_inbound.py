"""The mailbox, on a real Dovecot: nothing is lost, nothing is answered twice, nothing is fetched for ever."""

from __future__ import annotations

import asyncio
import imaplib
import json
import logging
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from email.utils import format_datetime

import pytest

from adapters.email.imap_client import MailboxConnection, open_mailbox
from gateway.errors import AdapterNotReady, StoreUnavailable
from gateway.testing.adapters import Inbox, running, soon
from tests.adapters.email.harness import (
    EmailHarness,
    OpenHarness,
    Person,
    WatchedNotes,
    a_mail,
    kept,
    make_adapter,
    new_address,
    new_message_id,
)
from tests.adapters.email.mail_server import MailServer

# ---- news -----------------------------------------------------------------------------------------------------------


async def test_new_mail_is_told_by_the_server_and_not_asked_for(open_harness: OpenHarness) -> None:
    harness = await open_harness(idle_s=300.0)
    async with running(harness) as inbox:
        await harness.person_says("first")
        await inbox.has(1)
        await harness.person_says("second")
        assert [message.text for message in await inbox.has(2)] == ["first", "second"]
    assert harness.line.calls == 1


async def test_without_idle_the_mailbox_is_asked(harness: EmailHarness) -> None:
    async with running(harness) as inbox:
        connection = harness.adapter._connection
        assert connection is not None
        connection._client.protocol.capabilities.discard("IDLE")
        await harness.person_says("hello")
        assert (await inbox.has(1))[0].text == "hello"


async def test_mail_that_comes_while_another_one_is_being_accepted_is_taken_next(open_harness: OpenHarness) -> None:
    """The server tells of it while FETCH or SEARCH runs, and only once."""
    harness = await open_harness(idle_s=300.0)
    async with running(harness) as inbox:
        inbox.gate.clear()
        await harness.person_says("first")
        await inbox.tried(1)
        await harness.person_says("second")
        inbox.gate.set()
        assert [message.text for message in await inbox.has(2)] == ["first", "second"]


async def test_a_server_that_is_restarted_while_we_wait_is_found_again_with_what_came_meanwhile(
    open_harness: OpenHarness,
    mail_server: MailServer,
) -> None:
    harness = await open_harness(idle_s=300.0)
    async with kept(harness) as inbox:
        await harness.person_says("before")
        await inbox.has(1)
        await asyncio.to_thread(mail_server.restart_dovecot)
        await harness.person_says("after")
        assert [message.text for message in await inbox.has(2)] == ["before", "after"]


@pytest.mark.slow
async def test_a_line_that_is_dead_without_a_word_is_given_up(
    open_harness: OpenHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adapters.email.imap_client._GRACE_S", 0.5)
    harness = await open_harness()
    server = harness.adapter._imap
    patience_s = server.timeout_s
    async with running(harness) as inbox:
        await harness.person_says("before")
        await inbox.has(1)
        harness.line.called.clear()
        harness.line.is_mute = True
        object.__setattr__(server, "timeout_s", 0.5)
        await soon(harness.line.called.wait())
        object.__setattr__(server, "timeout_s", patience_s)
        harness.line.is_mute = False
        await harness.person_says("after")
        assert [message.text for message in await inbox.has(2)] == ["before", "after"]


async def test_what_came_while_we_were_away_is_taken_up_in_order(harness: EmailHarness) -> None:
    async with running(harness) as inbox:
        await harness.person_says("0")
        await inbox.has(1)
    for number in range(1, 6):
        await harness.person_says(str(number))
    async with running(harness) as inbox:
        assert [message.text for message in await inbox.has(5)] == ["1", "2", "3", "4", "5"]


async def test_the_flag_seen_means_nothing_and_is_set_for_people_afterwards(harness: EmailHarness) -> None:
    async with running(harness):
        pass
    mail = a_mail("read on the phone first", sender=harness.person.address, recipient=harness.bot)
    await harness.person.file(mail.as_bytes(), "INBOX", harness.bot)
    with harness.person._mailbox(harness.bot) as mailbox:
        mailbox.store("1", "+FLAGS", "(\\Seen)")
    async with running(harness) as inbox:
        assert (await inbox.has(1))[0].text == "read on the phone first"
        await harness.person_says("another")
        await inbox.has(2)
        await harness.notes.until(lambda: harness.notes.progress["mark"] == 2)
        await harness.person_says("and one to wait for")
        await inbox.has(3)
    message_id = next(iter(harness._said.values()))[1]
    assert await harness.person.uids_of(message_id, harness.bot, flag="SEEN") == [2]


# ---- the mark -------------------------------------------------------------------------------------------------------


async def test_what_was_in_the_mailbox_before_us_is_none_of_our_business(
    open_harness: OpenHarness, mail_server: MailServer
) -> None:
    """Five thousand old mails, of which not one is fetched."""
    harness = await open_harness()
    old = a_mail("old", sender=harness.person.address, recipient=harness.bot).as_bytes()
    mail_server.fill(harness.bot, [old] * 5_000)
    async with running(harness) as inbox:
        await harness.person_says("new")
        assert [message.text for message in await inbox.has(1)] == ["new"]
        assert harness.notes.progress["mark"] == 5_001
        assert inbox.tries == 1


async def test_old_mail_that_is_copied_into_the_mailbox_afterwards_is_not_answered(
    harness: EmailHarness, caplog: pytest.LogCaptureFixture
) -> None:
    """By a mail program, which keeps the times of arrival, or by one that does not; and what comes then is."""
    caplog.set_level(logging.INFO)
    long_ago = datetime.now(UTC) - timedelta(days=3)

    def old(number: int, *, days: int) -> bytes:
        mail = a_mail(f"old {number}", sender=harness.person.address, recipient=harness.bot)
        mail.replace_header("Date", format_datetime(datetime.now(UTC) - timedelta(days=days)))
        return mail.as_bytes()

    delivered = f"Received: from a by mx.example.test; {format_datetime(long_ago)}\r\n".encode()
    async with running(harness) as inbox:
        await harness.person_says("before")
        await inbox.has(1)
        with harness.person._mailbox(harness.bot) as mailbox:
            mailbox.create("Archive")
            for number in range(5):
                mailbox.append("Archive", "", imaplib.Time2Internaldate(long_ago), old(number, days=3))
            mailbox.select("Archive")
            mailbox.copy("1:*", "INBOX")
            for number in range(5, 10):
                mailbox.append("INBOX", "", imaplib.Time2Internaldate(long_ago), old(number, days=3))
                mailbox.append("INBOX", "", "", old(number, days=30))
                mailbox.append("INBOX", "", "", delivered + old(number, days=3))
        await harness.person_says("after")
        assert [message.text for message in await inbox.has(2)] == ["before", "after"]
        await harness.notes.until(lambda: harness.notes.progress["mark"] == 22)
    assert len(inbox.messages) == 2
    assert caplog.text.count("it is old") >= 20


async def test_mail_that_was_passed_over_stays_so_when_the_mailbox_is_numbered_anew(open_harness: OpenHarness) -> None:
    harness = await open_harness(mailbox="Bot")
    with harness.person._mailbox(harness.bot) as mailbox:
        mailbox.create("Bot")
    forged = a_mail("forged", sender=harness.person.address, recipient=harness.bot, proof="dmarc=fail")
    async with running(harness):
        await harness.person.file(forged.as_bytes(), "Bot", harness.bot)
        await harness.notes.until(lambda: harness.notes.progress["mark"] == 1)
    with harness.person._mailbox(harness.bot) as mailbox:
        mailbox.delete("Bot")
        mailbox.create("Bot")
    good = a_mail("forged", sender=harness.person.address, recipient=harness.bot, references=[harness.root]).as_bytes()
    with harness.person._mailbox(harness.bot) as mailbox:  # the same mail, which would be believed now
        mailbox.append("Bot", "", imaplib.Time2Internaldate(datetime.now(UTC) - timedelta(minutes=1)), good)
    async with running(harness) as inbox:
        again = a_mail("again", sender=harness.person.address, recipient=harness.bot, references=[harness.root])
        await harness.person.file(again.as_bytes(), "Bot", harness.bot)
        assert [message.text for message in await inbox.has(1)] == ["again"]


async def test_a_wrong_sent_mailbox_is_noticed_at_the_start(open_harness: OpenHarness) -> None:
    harness = await open_harness(sent_mailbox="Gesendet")
    with pytest.raises(AdapterNotReady, match="there is no mailbox 'Gesendet'"):
        await soon(harness.adapter.connect())


@pytest.mark.slow
async def test_a_backlog_of_a_thousand_is_taken_one_by_one(open_harness: OpenHarness, mail_server: MailServer) -> None:
    """More than about a thousand response lines at once break the library, so it is never given as many."""
    harness = await open_harness(mails_per_hour=100_000)
    async with running(harness):
        pass
    backlog = [
        a_mail(str(number), sender=harness.person.address, recipient=harness.bot, references=[harness.root]).as_bytes()
        for number in range(1_100)
    ]
    mail_server.fill(harness.bot, backlog)
    async with kept(harness) as inbox:
        await harness.notes.until(lambda: harness.notes.progress["mark"] == 1_100, patience_s=120.0)
        assert [message.text for message in inbox.messages] == [str(number) for number in range(1_100)]
    assert harness.line.calls == 2


async def test_a_mailbox_that_somebody_empties_by_the_thousand_breaks_nothing_for_good(
    open_harness: OpenHarness, mail_server: MailServer
) -> None:
    """Thousands of EXPUNGE lines while we wait are too much for the library; a new connection mends it."""
    harness = await open_harness(idle_s=300.0)
    mail_server.fill(harness.bot, [b"From: x\r\n\r\nold\r\n"] * 2_500)
    async with running(harness) as inbox:
        await harness.person_says("before")
        await inbox.has(1)
        await harness.person.expunge_all(harness.bot)
        await harness.person_says("after")
        assert [message.text for message in await inbox.has(2)] == ["before", "after"]
    assert harness.line.calls == 2


async def test_the_mark_moves_only_after_the_message_is_kept(harness: EmailHarness) -> None:
    async with running(harness) as inbox:
        inbox.failure = StoreUnavailable("the disk is full")
        await harness.person_says("one")
        await inbox.tried(3)
        assert harness.notes.progress["mark"] == 0
        inbox.failure = None
        assert [message.text for message in await inbox.has(1)] == ["one"]
        await harness.notes.until(lambda: harness.notes.progress["mark"] == 1)
    assert not harness.notes.named("tries/")
    assert not harness.notes.named("quarantine/")


async def test_a_message_that_shows_up_below_the_mark_is_taken_too(harness: EmailHarness) -> None:
    async with running(harness) as inbox:
        await harness.person_says("one")
        await harness.person_says("two")
        await inbox.has(2)
        await harness.notes.until(lambda: harness.notes.progress["mark"] == 2)
    progress = json.loads(harness.notes.texts["progress"])
    assert sorted(progress["done"]) == [1, 2]
    harness.notes.texts["progress"] = json.dumps({**progress, "done": [2]})  # as if 1 had not been there
    async with running(harness) as inbox:
        assert [message.text for message in await inbox.has(1)] == ["one"]


async def test_a_mailbox_that_is_numbered_anew_is_read_again_without_old_mail_and_under_the_same_event_ids(
    open_harness: OpenHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness = await open_harness(mailbox="Bot")
    to = {"sender": harness.person.address, "recipient": harness.bot, "references": [harness.root]}

    async def file(mail: EmailMessage) -> None:
        await harness.person.file(mail.as_bytes(), "Bot", harness.bot)

    with harness.person._mailbox(harness.bot) as mailbox:
        mailbox.create("Bot")
    old = a_mail("old", **to)
    old.replace_header("Date", format_datetime(datetime.now(UTC) - timedelta(days=300)))
    await file(old)
    async with running(harness) as inbox:
        await file(a_mail("first", **to))
        before = (await inbox.has(1))[0]
        uid_validity = harness.notes.progress["uid_validity"]
    with harness.person._mailbox(harness.bot) as mailbox:  # a provider that moves its mailboxes
        mailbox.create("Moved")
        mailbox.select("Bot")
        mailbox.copy("1:*", "Moved")
        mailbox.close()
        mailbox.delete("Bot")
        mailbox.rename("Moved", "Bot")
    await file(a_mail("second", **to))
    async with running(harness) as inbox:
        await inbox.has(2)
        await file(a_mail("third", **to))
        found = await inbox.has(3)
    assert harness.notes.progress["uid_validity"] != uid_validity
    assert [message.text for message in found] == ["first", "second", "third"], (
        "the gateway knows the first one already"
    )
    assert found[0].event_id == before.event_id
    assert "renumbered the mailbox" in caplog.text


# ---- what cannot be read --------------------------------------------------------------------------------------------


async def test_a_mail_that_cannot_be_parsed_is_noted_and_left_and_those_behind_it_are_taken(
    harness: EmailHarness, caplog: pytest.LogCaptureFixture
) -> None:
    nested = "".join(f"Content-Type: multipart/mixed; boundary=b{n}\r\n\r\n--b{n}\r\n" for n in range(90))
    head = a_mail("", sender=harness.person.address, recipient=harness.bot).as_bytes().partition(b"Content-Type")[0]
    async with running(harness) as inbox:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("adapters.email.mime.read_body", _raise_a_recursion_error)
            await harness.person.deliver(head + nested.encode() + b"x", harness.bot)
            await harness.notes.until(lambda: bool(harness.notes.named("quarantine/")))
        await harness.person.deliver(head + nested.encode() + b"x", harness.bot)
        await harness.person_says("behind it")
        assert (await inbox.has(2))[-1].text == "behind it"
    ((key, note),) = harness.notes.named("quarantine/").items()
    assert key.endswith(".1")
    assert "RecursionError" in note
    assert "is left alone" in caplog.text


def _raise_a_recursion_error(_content: bytes) -> None:
    raise RecursionError("maximum recursion depth exceeded")


async def test_a_mail_that_breaks_the_connection_each_time_keeps_none_waiting_and_is_left_alone_in_the_end(
    harness: EmailHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adapters.email.mailbox_position.SUSPICIOUS_AFTER", timedelta(0))
    read = MailboxConnection.content
    inbox = Inbox()
    tries_before_others = 0

    async def content(connection: MailboxConnection, uid: int, max_bytes: int | None = None) -> bytes | None:
        nonlocal tries_before_others
        if uid == 1:
            tries_before_others += not inbox.messages
            connection.abort()
        return await read(connection, uid, max_bytes)

    monkeypatch.setattr(MailboxConnection, "content", content)
    async with running(harness):
        await harness.notes.until(lambda: bool(harness.notes.progress))
    await harness.person_says("poison")
    for number in range(60):  # more than are looked back over
        await harness.person_says(str(number))
    async with kept(harness, inbox):
        assert [message.text for message in await inbox.has(60)] == [str(number) for number in range(60)]
        assert tries_before_others == 3
        assert not harness.notes.named("quarantine/"), "it might have been chance"
        monkeypatch.setattr("adapters.email.mailbox_position.PATIENCE", timedelta(0))
        await harness.notes.until(lambda: bool(harness.notes.named("quarantine/")))
        await harness.person_says("behind it")
        assert (await inbox.has(61))[-1].text == "behind it"
    assert not harness.notes.named("tries/")


async def test_breaks_in_quick_succession_while_a_mail_is_read_do_not_let_the_next_one_overtake_it(
    harness: EmailHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = MailboxConnection.content
    breaks = iter(range(6))

    async def content(connection: MailboxConnection, uid: int, max_bytes: int | None = None) -> bytes | None:
        if uid == 1 and next(breaks, None) is not None:
            connection.abort()
        return await read(connection, uid, max_bytes)

    monkeypatch.setattr(MailboxConnection, "content", content)
    async with running(harness):
        await harness.notes.until(lambda: bool(harness.notes.progress))
    for text in ("first", "second"):
        await harness.person_says(text)
    async with kept(harness) as inbox:
        assert [message.text for message in await inbox.has(2)] == ["first", "second"]


async def test_a_mail_that_was_in_the_way_of_breaks_by_chance_is_read_after_the_others(
    harness: EmailHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = MailboxConnection.content
    breaks = iter(range(7))

    async def content(connection: MailboxConnection, uid: int, max_bytes: int | None = None) -> bytes | None:
        if uid == 1 and next(breaks, None) is not None:
            connection.abort()
        return await read(connection, uid, max_bytes)

    monkeypatch.setattr(MailboxConnection, "content", content)
    async with kept(harness) as inbox:
        await harness.person_says("unlucky")
        assert [message.text for message in await inbox.has(1)] == ["unlucky"]
    assert not harness.notes.named("quarantine/")


@pytest.mark.parametrize("megabytes", [1, 25])
async def test_a_large_mail_is_read_whole_within_the_limit_and_at_its_beginning_beyond_it(
    open_harness: OpenHarness, megabytes: int
) -> None:
    harness = await open_harness(max_mail_bytes=2_000_000)
    async with running(harness) as inbox:
        mail = a_mail("see the film", sender=harness.person.address, recipient=harness.bot, references=[harness.root])
        mail.add_attachment(b"x" * (megabytes * 700_000), maintype="video", subtype="mp4", filename="film.mp4")
        await harness.person.deliver(mail, harness.bot)
        message = (await inbox.has(1))[0]
    assert message.text == "see the film"
    (file,) = message.attachments
    if megabytes == 1:
        assert (file.filename, file.size_bytes) == ("film.mp4", 700_000)
    else:
        assert (file.filename, file.size_bytes > 20_000_000) == ("whole mail.eml", True)


async def test_broken_mails_are_answered_or_passed_over_and_none_stops_the_others(harness: EmailHarness) -> None:
    head = a_mail("", sender=harness.person.address, recipient=harness.bot).as_bytes().partition(b"Content-Type")[0]
    broken = [
        b"",
        b"\r\n",
        b"no header at all",
        b"From: \xff\xfe\r\nSubject: \xff\r\n\r\n\xff",
        head + b"Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n",
        head + b"Content-Type: text/html; charset=klingon\r\n\r\n<p>gr\xfc\xdfe",
        head + b"Content-Transfer-Encoding: base64\r\n\r\n=!=!=",
        head.replace(b"Message-ID", b"X-No-Id") + b"\r\n\r\n",
        head + b"X-Long: " + b"x" * 400_000 + b"\r\n\r\nhello",
    ]
    async with running(harness) as inbox:
        for content in broken:
            await harness.person.deliver(content, harness.bot)
        await harness.person_says("the end")
        await inbox.has(1)
        await harness.notes.until(lambda: harness.notes.progress["mark"] == len(broken) + 1)
        assert inbox.messages[-1].text == "the end"
        assert "gr\u00fc\u00dfe" in [message.text for message in inbox.messages]
    assert not harness.notes.named("quarantine/")


# ---- who is not answered --------------------------------------------------------------------------------------------


async def test_machines_strangers_and_ourselves_are_passed_over_and_the_log_says_why(
    harness: EmailHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    to = {"sender": harness.person.address, "recipient": harness.bot}
    async with running(harness) as inbox:
        for mail in (
            a_mail("on holiday", **to, fields=[("Auto-Submitted", "auto-replied")]),
            a_mail("forged", **to, proof="dmarc=fail"),
            a_mail("unproved", **to, proof=None),
            a_mail("our own", sender=harness.bot, recipient=harness.bot),
        ):
            await harness.person.deliver(mail, harness.bot)
        await harness.person_says("a person")
        assert [message.text for message in await inbox.has(1)] == ["a person"]
        await harness.notes.until(lambda: harness.notes.progress["mark"] == 5)
    for reason in ("written by a machine", "DMARC says fail", "no Authentication-Results", "we wrote it ourselves"):
        assert reason in caplog.text


async def test_an_unproved_author_is_handed_over_as_nobody_where_that_is_configured(open_harness: OpenHarness) -> None:
    harness = await open_harness(unproved_sender="stranger")
    async with running(harness) as inbox:
        mail = a_mail("forged", sender=harness.person.address, recipient=harness.bot, proof="dmarc=fail")
        await harness.person.deliver(mail, harness.bot)
        await harness.person.deliver(a_mail("forged", sender=harness.person.address, recipient=harness.bot,
                                            message_id=mail["Message-ID"]), harness.bot)  # fmt: skip
        forged, genuine = await inbox.has(2)
    assert not forged.sender.is_verified
    assert genuine.sender.is_verified
    assert forged.event_id != genuine.event_id


async def test_more_mails_of_one_sender_than_an_hour_may_have_are_passed_over_and_others_are_not(
    open_harness: OpenHarness, mail_server: MailServer, caplog: pytest.LogCaptureFixture
) -> None:
    harness = await open_harness(mails_per_hour=3)
    other = Person(mail_server, new_address("bob"))
    async with running(harness) as inbox:
        for number in range(5):
            await harness.person_says(f"ada {number}")
        await other.deliver(
            a_mail("bob", sender=other.address, recipient=harness.bot, references=["<r@x>"]), harness.bot
        )
        texts = [message.text for message in await inbox.has(4)]
    assert texts == ["ada 0", "ada 1", "ada 2", "bob"]
    assert "mails_per_hour" in caplog.text


# ---- the client -----------------------------------------------------------------------------------------------------


async def test_the_mail_is_only_looked_at(harness: EmailHarness) -> None:
    """BODY.PEEK: to fetch a mail does not mark it, so that one that was not accepted stays unread for people."""
    async with running(harness) as inbox:
        inbox.gate.clear()
        await harness.person_says("hello")
        await inbox.tried(1)
        message_id = next(iter(harness._said.values()))[1]
        assert await harness.person.uids_of(message_id, harness.bot, flag="UNSEEN") == [1]


async def test_a_mailbox_of_any_name_is_opened(open_harness: OpenHarness) -> None:
    harness = await open_harness(mailbox='Gr\u00fc\u00dfe & "so" \\ weiter')
    with pytest.raises(AdapterNotReady, match="there is no mailbox"):
        await soon(harness.adapter.connect())
    with harness.person._mailbox(harness.bot) as mailbox:
        mailbox.create('"Gr&APwA3w-e &- \\"so\\" \\\\ weiter"')
    await soon(harness.adapter.connect())
    await harness.adapter.close()


async def test_searches_answer_with_what_is_there(mail_server: MailServer) -> None:
    address, notes = new_address("bot"), WatchedNotes()
    person = Person(mail_server, new_address("ada"))
    ids = [new_message_id() for _ in range(3)]
    for message_id in ids:
        await person.deliver(a_mail(sender=person.address, recipient=address, message_id=message_id), address)
    adapter = make_adapter(mail_server, address, notes, idle_s=0.1)
    connection = await open_mailbox(adapter._imap, adapter._credentials, "INBOX")
    assert await connection.uids_from(1) == [1, 2, 3]
    assert await connection.uids_from(3) == [3]
    assert await connection.uids_from(4) == [], "the server answers 3 to `4:*`"
    assert await connection.uids_with("Message-ID", ids[1]) == [2]
    assert await connection.uids_since(datetime.now(UTC).date() - timedelta(days=1)) == [1, 2, 3]
    assert await connection.header(99) is None
    assert await connection.content(99) is None
    found = await connection.header(2)
    assert found is not None
    place, header = found
    assert abs(place.arrived_at - datetime.now(UTC)) < timedelta(minutes=5)
    assert ids[1].encode() in header
    content = await connection.content(2)
    assert content is not None
    assert len(content) == place.size_bytes
    assert await connection.content(2, 10) == content[:10]
    await connection.close()
    with pytest.raises(AdapterNotReady):
        await connection.uids_from(1)
