"""`ethos people pairing`, `role`, `revoke` and `owner-code`, and what `ethos doctor` says of them."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gateway.app.gateway import Gateway
from gateway.config.file import load_config
from gateway.domain.codes import PEPPER_NAME
from gateway.store.stores import open_store
from tests.fake_channel import FakeChannel
from tests.gateway.cli.commands.conftest import Ethos

CODE = re.compile(r"\b[A-Z0-9]{4}-[A-Z0-9]{4}\b")
PAIRED = "web: {port: 0}\nchannels:\n  fake: {kind: tests.fake_channel, access: pairing}\n"


async def say(home: Path, *messages: tuple[str, str, str]) -> list[str]:
    """Run a gateway for as long as somebody says something to it: user, text, the message's id. The answers."""
    stop = asyncio.Event()
    async with Gateway(home, load_config(home=home).config, is_served=False) as gateway:
        running = asyncio.create_task(gateway.run(stop))
        channel = gateway.adapters[0]
        assert isinstance(channel, FakeChannel)
        answers = []
        for user, text, name in messages:
            said = channel.message(text, user=user, conversation=f"dm-{user}", id=name, event_id=name)
            await channel.deliver(said)
            answers.append((await channel.answers_to(said))[0])
        await gateway.dispatcher.idle()
        await gateway.outbox._queue.idle()
        answers += [one.text for one in channel.sent if one.reply_to is None]
        stop.set()
        await running
    return answers


@pytest.fixture
def paired(home: Path) -> Path:
    """Strangers have to ask here."""
    (home / "config.yaml").write_text(PAIRED)
    return home


def test_a_stranger_is_listed_approved_and_answered(paired: Path, ethos: Ethos) -> None:
    code = CODE.search(asyncio.run(say(paired, ("7", "Hello", "x1")))[0])
    assert code
    (waiting,) = ethos("people", "pairing", "list", "--json").value
    assert (waiting["code"], waiting["account"], waiting["messages"]) == (code[0], "fake:7", 1)
    assert code[0] in ethos("people", "pairing", "list").out
    answer = ethos("people", "pairing", "approve", code[0].lower(), "--role", "guest")
    assert answer.out == "fake:7 (which calls itself Person 7) is let in on the channel fake, as a guest.\n"
    assert ethos("people", "pairing", "list").out == "There are no pending requests.\n"
    answers = asyncio.run(say(paired, ("7", "/whoami", "x2")))
    assert "guest here" in answers[0]
    assert "You are let in. I answer what you wrote." in answers


def test_a_stranger_is_refused_by_account(paired: Path, ethos: Ethos) -> None:
    asyncio.run(say(paired, ("7", "Hello", "x1")))
    answer = ethos("people", "pairing", "refuse", "fake:7", "--json")
    assert answer.value == {"account": "fake:7", "channel": "fake", "outcome": "refused"}
    assert ethos("people", "pairing", "list", "--json").value == []


@pytest.mark.parametrize("what", ["approve", "refuse"])
def test_who_does_not_wait_cannot_be_decided_about(paired: Path, ethos: Ethos, what: str) -> None:
    for named in ("ACDE-FGHJ", "fake:1", "x"):
        answer = ethos("people", "pairing", what, named)
        assert answer.code == 1
        assert answer.err.strip().endswith("`ethos people pairing list` shows those that wait")


def test_the_owners_code_makes_whoever_sends_it_the_owner(paired: Path, ethos: Ethos) -> None:
    code = ethos("people", "owner-code", "--json").value["code"]
    shown = ethos("people", "owner-code").out
    assert "/owner" in shown
    newer = CODE.search(shown)
    assert newer
    answers = asyncio.run(say(paired, ("7", f"/owner {code}", "x1"), ("7", f"/owner {newer[0]}", "x2")))
    assert "This is not the code" in answers[0]
    assert "You are an owner" in answers[1]


def test_a_code_can_be_made_before_the_first_start(fresh_home: Path, ethos: Ethos) -> None:
    code = ethos("people", "owner-code", "--json").value["code"]
    (fresh_home / "config.yaml").write_text(PAIRED)
    assert "You are an owner" in asyncio.run(say(fresh_home, ("7", f"/owner {code}", "x1")))[0]
    assert fresh_home.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("source", ["environment", "file"])
def test_a_code_that_is_made_while_no_gateway_runs_is_made_with_the_secret(
    paired: Path, ethos: Ethos, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    (paired / "root").touch(0o600)
    (paired / "root").write_text(bytes(range(32)).hex())
    monkeypatch.setenv("ROOT_SECRET", bytes(range(32)).hex())
    written = "${ROOT_SECRET}" if source == "environment" else "{file: root}"
    (paired / "config.yaml").write_text(f"secret: {written}\n{PAIRED}")
    code = ethos("people", "owner-code", "--json").value["code"]
    assert "You are an owner" in asyncio.run(say(paired, ("7", f"/owner {code}", "x1")))[0]
    assert not (paired / PEPPER_NAME).exists()


def test_no_code_is_made_with_another_key_where_the_shell_lacks_the_secret(
    paired: Path, ethos: Ethos, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ROOT_SECRET", raising=False)
    (paired / "config.yaml").write_text(f"secret: ${{ROOT_SECRET}}\n{PAIRED}")
    answer = ethos("people", "owner-code")
    assert (answer.code, answer.out) == (78, "")
    assert "secret: the environment variable ROOT_SECRET is not set" in answer.err
    assert not (paired / PEPPER_NAME).exists()


def test_a_role_is_a_persons_on_all_their_accounts(home: Path, ethos: Ethos, people: dict[str, str]) -> None:
    assert ethos("people", "role", people["fake:1"], "guest").out == "fake:1: guest, from the next message on.\n"
    assert "guest here" in asyncio.run(say(home, ("1", "/whoami", "x1")))[0]
    assert ethos("people", "role", "fake:1", "owner", "--json").value == {"accounts": ["fake:1"], "rank": "owner"}
    assert "owner here" in asyncio.run(say(home, ("1", "/whoami", "x2")))[0]


def test_who_is_revoked_is_not_answered_though_the_channel_is_open(home: Path, ethos: Ethos) -> None:
    assert (
        ethos("people", "revoke", "fake:1").out == "fake:1: access is revoked everywhere, from the next message on.\n"
    )
    assert "You are not let in any more" in asyncio.run(say(home, ("1", "Hello", "x1")))[0]


def test_nobody_can_be_given_a_role_who_is_not_known(home: Path, ethos: Ethos) -> None:
    answer = ethos("people", "role", "fake:99", "owner")
    assert answer.code == 1
    assert "there is no user fake:99" in answer.err
    assert ethos("people", "role", "fake:1", "king").code == 2


@pytest.fixture(params=[False, True], ids=["alone", "beside a running gateway"])
def either(home: Path, request: pytest.FixtureRequest) -> None:
    """No gateway runs, or one does."""
    if request.param:
        request.getfixturevalue("serving")


@pytest.mark.usefixtures("either")
def test_the_last_owner_stays_one_until_there_is_another(ethos: Ethos, people: dict[str, str]) -> None:
    assert ethos("people", "role", "fake:1", "owner").code == 0
    for arguments in (("role", "fake:1", "member"), ("revoke", people["fake:1"]), ("erase", "fake:1", "--yes")):
        answer = ethos("people", *arguments)
        assert (answer.code, answer.out) == (1, ""), arguments
        assert answer.err == "ethos: this is the last owner; make somebody else an owner first\n"
    listed = {one["id"]: one["role"] for one in ethos("people", "list", "--json").value}
    assert listed == {people["fake:1"]: "owner", people["fake:2"]: None}
    assert ethos("people", "role", "fake:2", "owner").code == 0
    assert ethos("people", "revoke", "fake:1").code == 0
    assert ethos("people", "erase", "fake:1", "--yes").code == 0


@pytest.mark.usefixtures("either")
def test_somebody_who_is_barred_bars_nobody_else_by_a_link(ethos: Ethos, people: dict[str, str]) -> None:
    assert ethos("people", "revoke", "fake:2").code == 0
    for what in ("link", "merge"):
        answer = ethos("people", what, "fake:1", "fake:2")
        assert answer.code == 1
        assert f"give {people['fake:2']} a role first" in answer.err
    assert ethos("people", "role", "fake:2", "member").code == 0
    assert ethos("people", "link", "fake:1", "fake:2").code == 0


def test_who_was_let_in_and_has_not_written_since_is_given_a_role(paired: Path, ethos: Ethos) -> None:
    """There is no user of that account before."""
    asyncio.run(say(paired, ("7", "Hello", "x1")))
    assert ethos("people", "pairing", "approve", "fake:7").code == 0
    assert "there is no user fake:7" in ethos("people", "show", "fake:7").err
    assert ethos("people", "role", "fake:7", "guest", "--json").value == {"accounts": ["fake:7"], "rank": "guest"}
    assert "guest here" in asyncio.run(say(paired, ("7", "/whoami", "x2")))[0]


def test_secrets_that_only_the_gateways_process_has_are_not_needed(home: Path, ethos: Ethos) -> None:
    """And what the configuration says of who may talk is known all the same."""
    (home / "config.yaml").write_text(
        f"{PAIRED}  bot: {{kind: telegram, token: '${{NOT_SET}}', access: allowlist, allow: ['42']}}\n"
    )
    assert ethos("people", "link", "fake:1", "telegram:42").code == 0
    assert ethos("people", "show", "fake:1", "--json").value["accounts"][1]["key"] == "telegram:42"
    assert "still names telegram:42" in ethos("people", "erase", "fake:1", "--yes").out


def test_these_commands_only_look_where_there_is_nothing(fresh_home: Path, ethos: Ethos) -> None:
    assert ethos("people", "pairing", "list", "--json").value == []
    assert ethos("people", "pairing", "approve", "ACDE-FGHJ").code == 1
    assert not fresh_home.exists()


# ---- doctor and serve -----------------------------------------------------------------------------------------------

REACHABLE = "web: {port: 0}\nchannels:\n  bot:\n    kind: telegram\n    token: ${T}\n"


def found(ethos: Ethos, level: str) -> list[str]:
    return [f"{one['what']} → {one['advice']}" for one in ethos("doctor", "--json").value if one["level"] == level]


def test_the_doctor_says_that_nobody_is_the_owner_until_somebody_is(
    home: Path, ethos: Ethos, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("T", "1:t")
    (home / "config.yaml").write_text(REACHABLE)
    assert (
        "There is no owner on bot yet, so requests to talk wait there. → `ethos people owner-code` makes a code; "
        "send it to the agent there."
    ) in found(ethos, "warning")
    ethos("people", "role", "fake:1", "owner")
    assert not [text for text in found(ethos, "warning") if "owner" in text]


def test_the_doctor_warns_of_a_channel_that_is_open_to_all(
    home: Path, ethos: Ethos, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("T", "1:t")
    (home / "config.yaml").write_text(f"{REACHABLE}    access_in_groups: open\n")
    (text,) = [text for text in found(ethos, "warning") if "channels.bot.access_in_groups" in text]
    assert "anybody on the platform who finds the agent may talk to it" in text


def test_serve_says_how_to_become_the_owner_and_keeps_the_code_out_of_a_services_log(paired: Path) -> None:
    program = [sys.executable, "-m", "gateway.cli", "serve", "--no-chat"]
    (paired / "config.yaml").write_text(PAIRED)
    with subprocess.Popen(program, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if line.startswith("Owner:"):
                break
        process.terminate()
        process.communicate(timeout=60)
    assert lines[-1] == "Owner:    none yet; `ethos people owner-code` makes a code that makes you the owner\n"
    store: Any = open_store(paired / "ethos.sqlite")

    async def offered() -> Any:
        try:
            return await store.people.owner_code(datetime.now(UTC))
        finally:
            await store.close()

    assert asyncio.run(offered()) is None


def test_a_person_is_invited_to_the_pages_and_the_invitation_is_ended(home: Path, ethos: Ethos) -> None:
    (home / "config.yaml").write_text("web: {public_url: 'https://ethos.example.org'}\n")
    made = ethos("people", "invite", "--new", "Ada", "--role", "guest", "--json").value
    assert re.fullmatch(r"https://ethos\.example\.org/join/[\w-]{43}", made["url"])
    shown = ethos("people", "invite", made["user"]).out
    assert "works once" in shown
    assert made["url"] not in shown, "a new link ends the one before it"
    assert "guest" in ethos("people", "list", "--json").out
    assert ethos("people", "end-sign-ins", made["user"]).out == "There was no password; 0 browsers are signed out.\n"
    wrong = ethos("people", "invite")
    assert wrong.code == 2
    assert "--new NAME" in wrong.err
