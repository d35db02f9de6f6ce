"""A login is tried without a channel: who it is, and what is missing, in words for people."""

from __future__ import annotations

import pytest

from gateway.errors import AdapterAuthFailed
from tests.adapters.slack.fake_slack import Fault
from tests.adapters.slack.harness import HttpHarness, SocketHarness


async def test_it_names_the_app_and_its_workspace(person: SocketHarness) -> None:
    found = await person.trial()
    assert found.account == "@ethos in the workspace Home"
    assert found.address == person.slack.url
    assert (found.problems, found.hints) == ((), ())


async def test_no_socket_is_opened_over_which_slack_would_send_events(person: SocketHarness) -> None:
    await person.trial()
    assert [method for method, _ in person.slack.calls] == ["auth.test", "apps.connections.open"]
    assert person.slack.handshakes == []


async def test_it_names_the_scopes_that_the_app_lacks(person: SocketHarness) -> None:
    person.slack.scopes -= {"files:read", "users:read"}
    (problem,) = (await person.trial()).problems
    assert "`files:read`, `users:read`" in problem
    assert "manifest" in problem


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        ("not_allowed_token_type", "App-Level Tokens"),
        ("missing_scope", "connections:write"),
        ("access_denied", "Switch on Socket Mode"),
        ("invalid_auth", "Copy the token again"),
        ("a_code_of_tomorrow", "Socket Mode must be on"),
    ],
)
async def test_what_is_wrong_with_the_app_level_token_is_a_problem_with_advice(
    person: SocketHarness, code: str, advice: str
) -> None:
    person.slack.fail("apps.connections.open", Fault(error=code))
    found = await person.trial()
    assert found.account == "@ethos in the workspace Home", "the other token is good"
    assert code in found.problems[0]
    assert advice in found.problems[0]


async def test_over_http_it_says_that_the_way_in_is_not_tried(web_person: HttpHarness) -> None:
    found = await web_person.trial()
    assert found.problems == ()
    assert "not tried" in found.hints[0]
    assert [method for method, _ in web_person.slack.calls] == ["auth.test"]


async def test_a_bot_token_that_slack_refuses_names_its_key(person: SocketHarness) -> None:
    with pytest.raises(AdapterAuthFailed, match="`bot_token`: invalid_auth"):
        await person.trial(is_wrong=True)
