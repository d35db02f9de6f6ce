"""A login is tried without a channel: who it is, and what is missing, in words for people."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.email import trial
from gateway.errors import AdapterAuthFailed, AdapterNotReady
from gateway.protocols import Trial
from tests.adapters.email.harness import EmailHarness, Person, a_mail, config_of, new_address
from tests.adapters.email.mail_server import MailServer, OAuthProvider


async def tried(server: MailServer, address: str | None = None, **keys: Any) -> Trial:
    return await trial(config_of(server, address or new_address("bot"), **keys))


async def test_it_names_the_mailbox_and_sends_nothing(mail_server: MailServer) -> None:
    address = new_address("bot")
    found = await tried(mail_server, address, sent_mailbox="Sent")
    assert (found.account, found.address) == (address, f"mailto:{address}")
    assert (found.problems, found.hints) == ((), ())
    assert await Person(mail_server, address).mails() == []


async def test_new_mail_stays_new(harness: EmailHarness) -> None:
    person = Person(harness.server, harness.bot)
    await person.deliver(a_mail(sender=harness.person.address, recipient=harness.bot), harness.bot)
    await harness.trial()
    assert await person.recent() == 1


async def test_a_wrong_password_is_refused_by_the_server_that_is_named(mail_server: MailServer) -> None:
    with pytest.raises(AdapterAuthFailed, match=r"the IMAP server .* refuses the login") as caught:
        await tried(mail_server, password="canary")
    assert "canary" not in str(caught.value)


async def test_a_mailbox_that_is_not_there_is_said(mail_server: MailServer) -> None:
    with pytest.raises(AdapterNotReady, match="no mailbox 'Agents'"):
        await tried(mail_server, mailbox="Agents")
    (problem,) = (await tried(mail_server, sent_mailbox="Gesendet")).problems
    assert "no mailbox 'Gesendet'" in problem
    assert "`sent_mailbox`" in problem


async def test_mail_that_could_be_read_and_not_sent_is_a_problem(mail_server: MailServer) -> None:
    (problem,) = (await tried(mail_server, smtp_port=mail_server.ports["smtp_clear"])).problems
    assert problem.startswith("Mail can be read, but not sent: the SMTP server")


async def test_access_tokens_are_tried_too_and_not_shown(mail_server: MailServer) -> None:
    provider = OAuthProvider()
    try:
        login = {"token_url": provider.token_url, "client_id": "bot", "refresh_token": "r-canary"}
        address = new_address("bot")
        assert (await tried(mail_server, address, password=None, oauth={**login, "client_id": address})).problems == ()
        provider.answers = [(400, {"error": "invalid_grant", "error_description": "r-canary"})] * 2
        with pytest.raises(AdapterAuthFailed, match="invalid_grant") as caught:
            await tried(mail_server, password=None, oauth=login)
        assert "canary" not in str(caught.value)
    finally:
        provider.close()
