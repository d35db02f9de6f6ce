"""The mail by which the gateway learns what its server's word is worth, on a real Exim and Dovecot."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from adapters.email import mime
from adapters.email.dkim_verification import DkimKeys
from adapters.email.mail_authentication import METHODS, filtered_methods
from adapters.email.server_probe import probe_mail
from gateway.protocols import ReportsProblems
from gateway.testing.adapters import PATIENCE_S, Inbox, soon
from tests.adapters.email.forgeries import BOT, TOKEN, US, Mail, from_alice, txt
from tests.adapters.email.harness import (
    EmailHarness,
    OpenHarness,
    WatchedNotes,
    a_mail,
    make_adapter,
    new_address,
)
from tests.adapters.email.mail_server import MailServer


def learned(notes: WatchedNotes) -> list[str] | None:
    note = notes.texts.get("server")
    methods: list[str] | None = json.loads(note)["methods"] if note is not None else None
    return None if methods is None else sorted(methods)


@contextlib.asynccontextmanager
async def reading(harness: EmailHarness) -> AsyncIterator[Inbox]:
    """As `running`, which lets the server deliver what it has taken."""
    inbox = Inbox()
    await soon(harness.adapter.connect())
    task = asyncio.create_task(harness.adapter.run(inbox.accept))
    try:
        yield inbox
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        await asyncio.wait({task})


async def asked(harness: EmailHarness) -> None:
    """The mail is on its way."""
    await harness.notes.until(lambda: "server" in harness.notes.texts)
    async with asyncio.timeout(PATIENCE_S):
        while not await asyncio.to_thread(harness.server.queued):
            await asyncio.sleep(0.05)  # nothing tells when a foreign server has taken a mail


async def test_a_server_that_removes_forged_results_is_believed_once_the_mail_is_back(
    open_harness: OpenHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    harness = await open_harness(is_server_known=False)
    async with reading(harness) as inbox:
        await asked(harness)
        await harness.person_says("hello")
        await harness.notes.until(lambda: "1" in harness.notes.progress["waiting"])
        assert not inbox.messages, "it is not known yet whether a forger wrote the result"
        await asyncio.to_thread(harness.server.deliver_queue)
        assert [message.text for message in await inbox.has(1)] == ["hello"]
    assert learned(harness.notes) == sorted(METHODS)
    assert harness.adapter.problems == []
    assert "vm" not in caplog.text
    left = await harness.person.mails(account=harness.bot)
    assert [mail["Subject"] for _, mail in left] == [None], "the mail that asked is gone"


async def test_a_server_that_delivers_the_mail_twice_is_judged_by_both(open_harness: OpenHarness) -> None:
    harness = await open_harness(is_server_known=False)
    async with reading(harness):
        await asked(harness)
    token = json.loads(harness.notes.texts["server"])["token"]
    own = "Authentication-Results: mx.example.test; spf=none smtp.mailfrom=bot@example.test"
    sent = Mail.of(probe_mail(harness.bot, token, "mx.example.test", datetime.now(UTC)))
    copy = sent.without("Authentication-Results").on_top(own).content
    await harness.person.file(copy, "INBOX", harness.bot)
    await harness.person.file(copy, "INBOX", harness.bot)
    harness.notes.texts.pop("progress", None)
    async with reading(harness):
        await harness.notes.until(lambda: "progress" in harness.notes.texts)  # which comes after both
    assert learned(harness.notes) == sorted(METHODS)
    await asyncio.to_thread(harness.server.deliver_queue)  # nothing is left of it for whoever comes next


@pytest.mark.parametrize(
    "careless",
    [
        r"Authentication-Results: mx\.example\.net; ",
        r"Authentication-Results:\s+mx\.example\.net;",
        r"(?-i:Authentication-Results|authentication-results):\s*mx\.example\.net;",
    ],
)
def test_a_server_that_removes_only_one_way_to_write_it_is_not_believed(careless: str) -> None:
    asked_with = Mail.of(probe_mail(BOT, TOKEN, US, datetime.now(UTC)))
    assert not filtered_methods(mime.header_fields(asked_with.without(careless).content), TOKEN, US)


async def test_a_server_that_keeps_forged_results_is_not_believed_and_the_channel_stays_up_and_says_so(
    open_harness: OpenHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness = await open_harness(address=new_address("careless"), is_server_known=False)
    async with reading(harness) as inbox:
        await asked(harness)
        await asyncio.to_thread(harness.server.deliver_queue)
        await harness.notes.until(lambda: learned(harness.notes) is not None)
        await harness.person_says("forged or not, nobody knows")
        await harness.notes.until(lambda: harness.notes.progress["mark"] == 2)
        assert not inbox.messages
        assert isinstance(harness.adapter, ReportsProblems)
        assert "does not remove Authentication-Results of mx.example.test that senders forge" in str(
            harness.adapter.problems
        )
    assert learned(harness.notes) == []
    assert "does not remove" in caplog.text


async def test_who_signs_is_heard_behind_a_server_that_is_not_believed(open_harness: OpenHarness) -> None:
    """Her provider's signature is verified by the gateway itself."""
    harness = await open_harness(address=BOT, username=new_address("bot"), trusted_authserv_id=None)
    harness.adapter._keys = DkimKeys(txt)
    harness.bot = harness.adapter._imap.username
    async with reading(harness) as inbox:
        signed = from_alice(to=BOT, body="--inner\r\nContent-Type: text/plain\r\n\r\nhello\r\n--inner--\r\n")
        await harness.person.deliver(signed.replace(b"hello\r\n--", b"changed\r\n--"), harness.bot)
        await harness.person.deliver(signed, harness.bot)
        message = (await inbox.has(1))[0]
        await harness.notes.until(lambda: harness.notes.progress["mark"] == 2)
    assert (message.text, message.sender.user) == ("Subject: hello\n\nhello", "alice@example.org")
    assert message.is_trusted_text


async def test_what_was_learned_is_kept_for_a_day_and_asked_anew_of_another_server(
    mail_server: MailServer, open_harness: OpenHarness
) -> None:
    harness = await open_harness(is_server_known=False)
    async with reading(harness):
        await asked(harness)
        await asyncio.to_thread(harness.server.deliver_queue)
        await harness.notes.until(lambda: learned(harness.notes) is not None)
    known = json.loads(harness.notes.texts["server"])
    port = harness.line.port
    again = make_adapter(mail_server, harness.bot, harness.notes, imap_port=port, is_server_known=False)
    await again._probe.load()
    await again._probe.send_if_due()
    assert await asyncio.to_thread(mail_server.queued) == 0
    assert again._probe.trust.methods == METHODS
    elsewhere = make_adapter(mail_server, harness.bot, harness.notes, is_server_known=False)
    await elsewhere._probe.load()
    assert elsewhere._probe.trust.methods is None
    week = datetime.now(UTC) - timedelta(days=7)
    harness.notes.texts["server"] = json.dumps({**known, "learned_at": week.isoformat(), "again_at": week.isoformat()})
    late = make_adapter(mail_server, harness.bot, harness.notes, imap_port=port, is_server_known=False)
    await late._probe.load()
    assert late._probe.trust.methods is None, "a server may have been set up anew"
    await late._probe.send_if_due()
    assert await asyncio.to_thread(mail_server.queued) == 1
    await asyncio.to_thread(mail_server.deliver_queue)


async def test_a_mail_that_does_not_come_back_lets_nobody_in_and_the_error_says_so(
    open_harness: OpenHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adapters.email.server_probe.PATIENCE", timedelta(0))
    harness = await open_harness(username=new_address("another"), is_server_known=False)
    harness.bot = harness.adapter._imap.username  # the mail goes to an address that is not of this mailbox
    async with reading(harness) as inbox:
        await asked(harness)
        await harness.person_says("hello")
        await harness.notes.until(lambda: harness.notes.progress["mark"] == 1)
        assert not inbox.messages
        assert "has not come back" in str(harness.adapter.problems)
    await asyncio.to_thread(harness.server.deliver_queue)


async def test_a_server_that_refuses_the_mail_lets_nobody_in_and_the_error_has_its_words(
    open_harness: OpenHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adapters.email.server_probe.PATIENCE", timedelta(0))
    bot = f"nobody@{new_address('x').partition('@')[2]}"
    harness = await open_harness(address=bot, username=new_address("bot"), is_server_known=False)
    await harness.adapter._probe.send_if_due()
    assert "no such user" in str(harness.adapter.problems)
    assert a_mail(sender=bot, recipient=bot)["To"] == bot
