"""Who is not heard, on a real mailbox: forgers, machines that answer machines, and whoever writes too much."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta

import pytest

from adapters.email.inbound import SenderLimits
from gateway.messages import OutboundMessage
from gateway.testing.adapters import running, soon
from tests.adapters.email.harness import (
    CHANNEL,
    EmailHarness,
    OpenHarness,
    Person,
    WatchedNotes,
    a_mail,
    make_adapter,
    new_address,
)
from tests.adapters.email.mail_server import DOMAIN
from tests.adapters.email.test_mail_authentication import FORGED, PROVED, US

NOW = datetime(2026, 11, 20, 10, tzinfo=UTC)


async def test_of_every_kind_of_forged_mail_none_is_accepted(open_harness: OpenHarness) -> None:
    """They lie in the mailbox as the receiving server left them, with what LMTP puts on top of them."""
    harness = await open_harness(trusted_authserv_id=US, own_hosts=[DOMAIN])
    async with running(harness) as inbox:
        for number, lines in enumerate(FORGED.values()):
            mail = "\r\n".join((*lines, f"Message-ID: <forged-{number}@example.org>", "", "obey me", ""))
            await harness.person.deliver(mail.encode(), harness.bot)
        honest = "\r\n".join((*next(iter(PROVED.values())), "Message-ID: <1@example.org>", "", "good morning", ""))
        await harness.person.deliver(honest.encode(), harness.bot)
        await harness.notes.until(lambda: harness.notes.progress["mark"] == len(FORGED) + 1)
        assert [message.text for message in inbox.messages] == ["good morning"]
    assert len(FORGED) >= 12


async def test_two_gateways_do_not_answer_each_other(harness: EmailHarness) -> None:
    other = make_adapter(harness.server, new_address("otherbot"), WatchedNotes())
    message = OutboundMessage(
        id="t_1.reply",
        conversation=harness.conversation.__class__(channel=CHANNEL, conversation=harness.bot),
        text="hi",
    )
    async with running(harness) as inbox:
        await soon(other.send(message))
        await asyncio.to_thread(harness.server.deliver_queue)
        await harness.person_says("a person")
        assert [each.text for each in await inbox.has(1)] == ["a person"]
        await harness.notes.until(lambda: harness.notes.progress["mark"] == 2)
    await other.close()


async def test_a_program_that_answers_everything_and_hides_it_is_soon_not_answered(
    open_harness: OpenHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness = await open_harness()
    async with running(harness) as inbox:
        for number in range(1, 8):
            away = a_mail("I am on holiday until December.", sender=harness.person.address, recipient=harness.bot)
            await harness.person.deliver(away, harness.bot)
            await harness.notes.until(lambda number=number: harness.notes.progress["mark"] == number)  # type: ignore[misc]
            if number <= 5:
                message = (await inbox.has(number))[-1]
                answer = OutboundMessage(id=f"t_{number}", conversation=message.conversation, text="enjoy")
                await soon(harness.adapter.send(answer))
        assert len(inbox.messages) == 5
    assert "the same again and again" in caplog.text
    assert len(await harness.person.mails()) == 5


async def test_a_mail_too_many_is_answered_later_and_not_lost(open_harness: OpenHarness) -> None:
    harness = await open_harness(mails_per_hour=2)
    async with running(harness) as inbox:
        for number in range(3):
            await harness.person_says(str(number))
        await harness.notes.until(lambda: "3" in harness.notes.progress["waiting"])
        assert harness.adapter._inbound is not None
        harness.adapter._inbound._limits = SenderLimits(2)  # as if an hour had passed
        harness.adapter._inbound._next_look.clear()
        await harness.person_says("3")
        assert sorted([message.text for message in await inbox.has(4)]) == ["0", "1", "2", "3"]
        await harness.notes.until(lambda: not harness.notes.progress["waiting"])


def test_a_person_may_say_the_same_more_often_than_a_program() -> None:
    limits = SenderLimits(1_000)
    short = [limits.is_repeating("ada", str(number), "yes", NOW) for number in range(21)]
    assert short == [False] * 20 + [True]
    long = "Thank you for your mail. Your number is {}."
    assert not any(limits.is_repeating("bob", str(number), long.format(number), NOW) for number in range(20))
    assert limits.is_repeating("bob", "21", long.format(21), NOW)
    assert not limits.is_repeating("bob", "22", long.format(22), NOW + timedelta(hours=2))
    assert not limits.is_repeating("eve", "1", long.format(1), NOW)


async def test_somebody_unproved_cannot_use_up_what_the_real_author_may_send(open_harness: OpenHarness) -> None:
    harness = await open_harness(mails_per_hour=2, unproved_sender="stranger")
    async with running(harness) as inbox:
        for _ in range(4):
            forged = a_mail("x", sender=harness.person.address, recipient=harness.bot, proof="dmarc=fail")
            await harness.person.deliver(forged, harness.bot)
        await harness.person_says("the real one")
        assert (await inbox.has(3))[-1].sender.is_verified


async def test_a_quoted_star_in_a_mail_is_kept_and_a_subject_too(harness: EmailHarness) -> None:
    """The library leaves out `* ` wherever it stands in a line of the protocol; a mail is no such line."""
    async with running(harness) as inbox:
        mail = a_mail("x", sender=harness.person.address, recipient=harness.bot, subject="* star * subject")
        del mail["Content-Transfer-Encoding"]
        mail.set_payload("* one\r\n* 5 EXISTS\r\n")
        await harness.person.deliver(mail, harness.bot)
        assert (await inbox.has(1))[0].text == "Subject: * star * subject\n\n* one\n* 5 EXISTS"


async def test_everybody_may_write_again_an_hour_later_and_a_backlog_is_no_flood() -> None:
    limits = SenderLimits(2)
    at = [NOW + timedelta(minutes=minutes) for minutes in (0, 10, 20, 61, 65, 71)]
    assert [limits.admits("ada", str(each), each) for each in at] == [True, True, False, True, False, True]
    assert limits.admits("bob", "1", NOW)
    assert limits.admits("ada", str(at[-1]), at[-1]), "the same mail again, after a broken line, counts once"


async def test_senders_of_long_ago_are_forgotten() -> None:
    limits = SenderLimits(2)
    for number in range(10_000):
        limits.admits(f"{number}@x.org", "1", NOW + timedelta(minutes=number))
    assert len(limits._senders) < 3_000


async def test_the_reason_is_in_the_log_with_the_mails_number_and_never_its_text(
    harness: EmailHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    eve = Person(harness.server, new_address("eve"))
    async with running(harness) as inbox:
        await eve.deliver(
            a_mail("my secret words", sender=eve.address, recipient=harness.bot, proof=None, subject="secret subject"),
            harness.bot,
        )
        await harness.person_says("hello")
        await inbox.has(1)
    assert f"{eve.address} is not proved to have written it" in caplog.text
    assert "secret" not in caplog.text
