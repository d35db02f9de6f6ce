"""How far a mailbox has been read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from adapters.email.mailbox_position import POSITION_JSON, MailboxPosition


def test_a_mail_from_the_future_does_not_make_those_behind_it_old() -> None:
    """A server's clock was wrong for an hour, or a program put a mail there with a time of its own."""
    now = datetime.now(UTC)
    position = MailboxPosition.initial(uid_validity=1, last_uid=0).with_done(1, now + timedelta(days=300))
    assert not position.is_old(2, now)
    assert position.is_old(2, now - timedelta(hours=2))
    assert POSITION_JSON.validate_json(POSITION_JSON.dump_json(position)) == position
