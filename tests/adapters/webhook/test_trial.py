"""Nothing can be asked of the other side, because each request may have an effect; whether it is there can be seen."""

from __future__ import annotations

import socket

import pytest
from pydantic import ValidationError

from adapters.webhook import Config, trial
from gateway.protocols import Trial
from tests.adapters.webhook.other_side import SECRET, ReplyReceiver


async def tried(url: str) -> Trial:
    return await trial(Config.model_validate({"secret": SECRET, "reply_url": url}))


async def test_it_says_where_answers_go_and_posts_nothing() -> None:
    async with ReplyReceiver() as receiver:
        found = await tried(receiver.url)
        assert found.account.startswith("answers go to 127.0.0.1:")
        assert "canary" not in str(found), "the rest of the address may hold a key"
        assert "same secret" in found.hints[0]
        assert receiver.requests == []


async def test_that_nobody_listens_is_a_hint_because_answers_wait() -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        found = await tried(f"http://127.0.0.1:{unheard.getsockname()[1]}/replies")
    assert found.problems == ()
    assert "cannot be reached (ConnectionRefusedError)" in found.hints[0]


async def test_a_secret_of_another_form_never_gets_so_far() -> None:
    with pytest.raises(ValidationError, match="24 to 64 random bytes") as caught:
        Config.model_validate({"secret": "whsec_canary", "reply_url": "http://127.0.0.1:1/"})
    assert "canary" not in str(caught.value)
