"""The log: one id from accept to receipt, no text and no secret, and what goes on failing is told once."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from pydantic import BaseModel, SecretStr

from gateway.cli.running import _open_log
from gateway.domain.codes import HIDDEN
from gateway.errors import FileError, ModelUnavailable, PermanentSendError, StoreUnavailable, TransientSendError
from gateway.memory import sync as memory_sync
from gateway.pipeline import parking
from gateway.runtime import logs
from gateway.runtime.logs import REPEAT_S, Repeats, configure_logs, secrets_in
from gateway.runtime.observe import opaque
from gateway.store.sqlite.engine import SqliteEngine
from tests.gateway.way.conftest import House, settled
from tests.scripted_model import ScriptedModel, call

ROOT = Path(__file__).parents[2]
SECRET = 'canary "secret" / with signs'
REMEMBER = call("update_memory", '{"action": "add", "store": "user", "content": "CANARY-MEMORY"}')
_log = structlog.get_logger("gateway.test")


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path / "home")


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parking, "FIRST_RETRY_S", 0.001)
    monkeypatch.setattr(memory_sync, "RETRY_S", 0.01)


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    yield io.StringIO()
    structlog.reset_defaults()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


# ---- a whole conversation -------------------------------------------------------------------------------------------


async def converse(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that can go wrong with a message goes wrong, each with a canary in what was said."""
    model = ScriptedModel(
        [ModelUnavailable("no line")], [REMEMBER], "CANARY-ANSWER", [RuntimeError("a fault")], "CANARY-LATER", "gone"
    )
    async with house.gateway(model) as (gateway, channel):
        whole, failures = gateway.memory_provider.sync, [FileError("the file is locked")]

        async def sync(scope: Any, updates: Any) -> Any:
            if failures:
                raise failures.pop()
            return await whole(scope, updates)

        monkeypatch.setattr(gateway.memory_provider, "sync", sync)
        channel.failures.append(TransientSendError("busy"))
        first = await channel.say("CANARY-QUESTION", user="CANARY-PERSON", conversation="CANARY-PLACE")
        await channel.answers_to(first, amount=2)
        second = await channel.say("CANARY-AGAIN", user="CANARY-PERSON", conversation="CANARY-PLACE")
        await channel.answers_to(second)
        await channel.ask("/memory", user="CANARY-PERSON", conversation="CANARY-PLACE")
        channel.failures.append(PermanentSendError("they have left"))
        await channel.say("CANARY-LAST", user="CANARY-PERSON", conversation="CANARY-PLACE")
        await settled(gateway)


@pytest.mark.parametrize("style", ["json", "text"])
async def test_nothing_that_was_said_and_nobody_who_said_it_is_in_the_log(
    house: House, stream: io.StringIO, monkeypatch: pytest.MonkeyPatch, style: str
) -> None:
    configure_logs("debug", style, stream=stream)
    await converse(house, monkeypatch)
    written = stream.getvalue()
    for event in ("message_accepted", "turn_parked", "turn_failed", "memory_late", "reply_retry", "reply_dead"):
        assert event in written, event
    assert "CANARY" not in written


async def test_one_id_leads_from_the_accept_of_a_message_to_its_receipt(house: House, stream: io.StringIO) -> None:
    configure_logs("debug", "json", stream=stream)
    async with house.gateway(ScriptedModel("one", "two")) as (gateway, channel):
        await channel.ask("hello", conversation="c1")
        await channel.ask("hello", conversation="c2")
        await settled(gateway)
    by_turn: dict[str, list[dict[str, Any]]] = {}
    for line in lines(stream):
        if "turn_id" in line:
            by_turn.setdefault(line["turn_id"], []).append(line)
    assert len(by_turn) == 2
    for turn in by_turn.values():
        assert [line["event"] for line in turn] == ["message_accepted", "turn_committed", "reply_sent"]
        assert {line["channel"] for line in turn} == {"fake"}
        assert len({line["conversation"] for line in turn}) == 1
    first, second = (turn[0]["conversation"] for turn in by_turn.values())
    assert first != second
    assert "c1" not in (first, second)


async def test_a_library_that_complains_in_a_turn_carries_the_turns_id(house: House, stream: io.StringIO) -> None:
    configure_logs("info", "json", stream=stream)

    class Complaining(ScriptedModel):
        async def stream(self, request: Any) -> Any:
            logging.getLogger("some.library").warning("this is deprecated")
            async for event in super().stream(request):
                yield event

    async with house.gateway(Complaining("one")) as (gateway, channel):
        await channel.ask("hello")
        await settled(gateway)
    (complaint,) = [line for line in lines(stream) if line["event"] == "this is deprecated"]
    assert complaint["turn_id"].startswith("t_")


async def test_whoever_asks_for_texts_gets_them_at_debug_only(
    house: House, stream: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure_logs("info", "json", stream=stream, is_text_shown=True)
    await converse(house, monkeypatch)
    assert "CANARY" not in stream.getvalue()


async def test_texts_that_were_asked_for_are_shown_beside_their_ids(house: House, stream: io.StringIO) -> None:
    configure_logs("debug", "json", stream=stream, is_text_shown=True)
    async with house.gateway(ScriptedModel("fine")) as (gateway, channel):
        await channel.ask("how are you?")
        await settled(gateway)
    told = {line["event"]: line["text"] for line in lines(stream) if "text" in line}
    assert told == {"message_accepted": "how are you?", "reply_sent": "fine"}


async def test_no_code_is_in_the_texts_that_were_asked_for(house: House, stream: io.StringIO) -> None:
    configure_logs("debug", "json", stream=stream, is_text_shown=True)
    async with house.gateway(fake={"access": "pairing"}) as (gateway, channel):
        owners = await gateway.admission.pairing.offer_owner()
        answer = await channel.ask("hello")
        await channel.ask(f"/owner {owners}")
        await settled(gateway)
    assert "Your code is **" in answer
    told = stream.getvalue()
    assert f"Your code is **{HIDDEN}**" in told
    assert f"/owner {HIDDEN}" in told
    assert owners not in told


# ---- secrets --------------------------------------------------------------------------------------------------------


class Inner(BaseModel):
    key: SecretStr | None = None
    many: tuple[SecretStr, ...] = ()


class Outer(BaseModel):
    plain: str = "seen"
    inner: dict[str, Inner] = {}
    whatever: Any = None


def test_every_secret_of_a_configuration_is_found_wherever_it_stands() -> None:
    whole = Outer(
        inner={"a": Inner(key=SecretStr("one")), "b": Inner(many=(SecretStr("two"), SecretStr("three")))},
        whatever=Inner(key=SecretStr("four")),
    )
    assert list(secrets_in(whole)) == ["one", "two", "three", "four"]


@pytest.mark.parametrize("style", ["json", "text"])
def test_a_secret_is_cut_out_of_every_line_whoever_writes_it_and_in_whichever_form(
    stream: io.StringIO, style: str
) -> None:
    configure_logs("debug", style, stream=stream, secrets=[SECRET, "short"])
    _log.info("ours", value=SECRET, inside=f"before{SECRET}after", nested={"deep": [SECRET]})
    _log.info("address", url="https://example.org/canary%20%22secret%22%20%2F%20with%20signs/send")
    logging.getLogger("library").warning("theirs %s", SECRET)
    error = ValueError(f"wrong: {SECRET}")
    _log.error("raised", exc_info=error)
    logging.getLogger("library").error("raised there", exc_info=error)
    written = stream.getvalue()
    assert "canary" not in written
    assert written.count("***") >= 6
    assert len(written.splitlines()) >= 5


def test_a_word_that_is_too_short_to_be_a_secret_is_left_alone(stream: io.StringIO) -> None:
    configure_logs("info", "json", stream=stream, secrets=["up", ""])
    _log.info("channel_up")
    assert "channel_up" in stream.getvalue()


# ---- levels and repetitions -----------------------------------------------------------------------------------------


def test_libraries_are_heard_from_warning_on_and_our_own_from_the_level_that_is_set(stream: io.StringIO) -> None:
    configure_logs("debug", "json", stream=stream)
    logging.getLogger("httpx").setLevel(logging.DEBUG)
    logging.getLogger("httpx").info("GET https://api.example.org/bot-token/getMe")
    logging.getLogger("httpx").warning("heard")
    adapter = logging.getLogger("adapters.fake")
    adapter.debug("a library writes to the logger that an adapter gave it")
    ours = adapter.makeRecord(adapter.name, logging.DEBUG, f"{ROOT}/adapters/slack/client.py", 1, "ours", (), None)
    adapter.handle(ours)
    logging.getLogger("httpx").setLevel(logging.NOTSET)
    assert [line["event"] for line in lines(stream)] == ["heard", "ours"]
    configure_logs("warning", "json", stream=stream)
    assert not adapter.isEnabledFor(logging.INFO)


def test_what_goes_on_failing_is_told_once_and_then_with_its_number(
    stream: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [0.0]
    monkeypatch.setattr(logs, "Repeats", lambda: Repeats(lambda: now_s[0]))
    configure_logs("info", "json", stream=stream)
    for _ in range(50):
        _log.error("store_failed", error="full", again_s=now_s[0])
        logging.getLogger("library").warning("no line")
        now_s[0] += 1
    _log.error("store_failed", error="another reason")
    _log.error("turn_failed", turn_id="t_1", error="full")
    _log.error("turn_failed", turn_id="t_2", error="full")
    _log.info("channel_up")
    _log.info("channel_up")
    assert [line["event"] for line in lines(stream)] == [
        "store_failed", "no line", "store_failed", "turn_failed", "turn_failed", "channel_up", "channel_up",
    ]  # fmt: skip
    now_s[0] += REPEAT_S
    _log.error("store_failed", error="full")
    assert lines(stream)[-1]["repeated"] == 49


async def test_a_log_on_the_full_disk_stops_nothing_but_itself(tmp_path: Path) -> None:
    """The database reports a failure in its only writer thread: were the line an error there, nobody would commit."""

    def fail(_: sqlite3.Connection) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode, error.sqlite_errorname = sqlite3.SQLITE_FULL, "SQLITE_FULL"
        raise error

    database = SqliteEngine(tmp_path / "d.db")
    try:
        with Path("/dev/full").open("w") as full:
            configure_logs("info", "json", stream=full)
            _log.warning("said by anybody")
            async with asyncio.timeout(60):
                with pytest.raises(StoreUnavailable):
                    await database.write(fail)
                await database.write(lambda connection: connection.execute("CREATE TABLE t (x)"))
            os.dup2(os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT), full.fileno())  # there is room again
            _log.warning("and so on")
        assert (tmp_path / "log").read_text().splitlines()[-1].startswith('{"event": "and so on"')
    finally:
        structlog.reset_defaults()
        await database.close()


def test_what_is_said_while_the_gateway_of_a_chat_is_put_away_breaks_nothing(tmp_path: Path) -> None:
    """Its log is closed by then."""
    with _open_log(tmp_path) as stream:
        configure_logs("info", "json", stream=stream)
    _log.warning("said too late")
    structlog.reset_defaults()


def test_the_log_of_the_chat_takes_the_name_of_any_file(tmp_path: Path) -> None:
    with _open_log(tmp_path) as stream:
        configure_logs("info", "json", stream=stream)
        _log.warning("unreadable", path="users/\udcff")
        structlog.reset_defaults()
    assert "users/\\udcff" in (tmp_path / "gateway.log").read_text()


def test_a_channel_that_goes_down_again_for_the_same_reason_is_told_each_time(stream: io.StringIO) -> None:
    configure_logs("info", "json", stream=stream)
    for connection in (1, 2):
        _log.info("channel_up", channel="a", connection=connection)
        for _ in range(2):
            _log.warning("channel_down", channel="a", connection=connection, error="the line was cut")
    assert [line["event"] for line in lines(stream)] == ["channel_up", "channel_down"] * 2


def test_faults_of_different_kinds_are_each_told(stream: io.StringIO) -> None:
    configure_logs("info", "json", stream=stream)
    for error in (ValueError("a"), ValueError("b"), ValueError("a")):
        try:
            raise error
        except ValueError as caught:
            _log.exception("fault")
            _log.error("other_fault", exc_info=caught)
            _log.error("third_fault", exc_info=(type(caught), caught, caught.__traceback__))
    assert [line["event"] for line in lines(stream)] == ["fault", "other_fault", "third_fault"] * 2


def test_what_was_told_long_ago_is_forgotten_so_that_memory_is_bounded() -> None:
    repeats = Repeats(lambda: 0.0)
    for number in range(5000):
        assert repeats.count(number) == 0
    assert len(repeats._told) <= 512
    assert repeats.count(4999) is None


def test_conversations_are_told_apart_and_cannot_be_found_by_trying() -> None:
    from gateway.messages import ConversationRef

    here = ConversationRef(channel="a", conversation="1")
    assert opaque(here) == opaque(ConversationRef(channel="a", conversation="1"))
    others = [
        ConversationRef(channel="a", conversation="1", thread="t"),
        ConversationRef(channel="b", conversation="1"),
    ]
    assert len({opaque(each) for each in (here, *others)}) == 3
