"""Row 21 behind every kind of server: no forged mail is heard, and no word that an attacker adds to a signed one."""

from __future__ import annotations

import pytest

from adapters.email.convert import Skipped
from adapters.email.mail_authentication import METHODS
from gateway.messages import InboundMessage
from tests.adapters.email.forgeries import (
    ALICE,
    BOT,
    SET_UPS,
    WITHOUT_REMOVING,
    a_mail,
    forged,
    from_alice,
    heard,
    sent_again,
)


@pytest.mark.parametrize("name", SET_UPS)
def test_of_every_kind_of_forged_mail_none_is_heard_behind_any_server(name: str) -> None:
    set_up = SET_UPS[name]
    kinds = dict(forged(set_up.authserv_id if set_up.authserv_id not in {None, "none"} else "mx.example.net"))
    assert len(kinds) >= 77
    taken = [kind for kind, content in kinds.items() if _is_taken_for_alice(heard(set_up, content))]
    assert taken == []


def _is_taken_for_alice(found: InboundMessage | Skipped) -> bool:
    return isinstance(found, InboundMessage) and found.sender.user == ALICE


@pytest.mark.parametrize("name", SET_UPS)
def test_of_signed_mail_that_is_sent_again_no_word_of_the_attackers_counts(name: str) -> None:
    kinds = dict(sent_again())
    assert len(kinds) >= 60
    original = heard(SET_UPS[name], from_alice(to=BOT))
    assert isinstance(original, InboundMessage)
    words = original.text.removeprefix("Subject: hello\n\n")
    for kind, content in kinds.items():
        found = heard(SET_UPS[name], content)
        if isinstance(found, Skipped):
            continue
        # It says what she said, under the Message-ID that she gave it, and orders and notes nothing if it is not to us.
        assert found.text.removeprefix("Subject: hello\n\n") == words, kind
        assert (found.command, found.attachments, found.event_id) == (None, (), original.event_id), kind
        assert not found.is_trusted_text or kind.endswith("to us"), kind


@pytest.mark.parametrize("name", SET_UPS)
def test_what_the_author_signed_and_sent_to_us_is_heard_behind_every_server(name: str) -> None:
    found = heard(
        SET_UPS[name], from_alice(to=BOT, body="--inner\r\nContent-Type: text/plain\r\n\r\nhello\r\n--inner--\r\n")
    )
    assert isinstance(found, InboundMessage), found
    assert found.sender.is_verified
    assert found.is_trusted_text
    assert found.text == "Subject: hello\n\nhello"


@pytest.mark.parametrize("name", SET_UPS)
def test_what_the_server_vouches_for_is_heard_without_a_signature_where_it_removes_forged_results(name: str) -> None:
    found = heard(SET_UPS[name], a_mail(body="hello"), sender=ALICE)
    is_vouched_for = name in {
        "OpenDKIM and OpenDMARC", "rspamd", "Exim that removes", "LMTP by vm", "Gmail", "Microsoft",
    }  # fmt: skip
    assert isinstance(found, InboundMessage) == is_vouched_for, found


def test_the_gateway_learns_of_each_server_what_its_word_is_worth() -> None:
    learned = {name: set_up.trust().methods for name, set_up in SET_UPS.items() if not set_up.is_famous}
    assert {name for name, methods in learned.items() if not methods} == WITHOUT_REMOVING
    assert learned["OpenDKIM alone"] == {"dkim"}
    assert learned["rspamd"] == METHODS
    assert "vm" in SET_UPS["LMTP by vm"].trust().hosts
