"""Talking through the SDK: nothing is lost or doubled when the line or the gateway breaks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ethos import Answer, AnswerTimeoutError, AsyncEthos, Ethos, NotFoundError, file
from gateway.app.gateway import Gateway
from gateway.sdk.chat import _pieces
from gateway.sdk.models.chat import ChatMessage, Event, Live, Preview, Reset, Tool, Typing

from .conftest import WAIT_S, KillableGateway
from .servers import cutting


def port_of(gateway: Gateway) -> int:
    return int(gateway.web.url.rstrip("/").rpartition(":")[2])


def token_of(home: Path) -> str:
    return (home / "web-token").read_text().strip()


def texts(events: list[Event], author: str = "agent") -> list[str]:
    return [event.text for event in events if isinstance(event, ChatMessage) and event.author == author]


def first_line(answer: Answer) -> str:
    """Without what the offline model says of itself."""
    return answer.text.split("\n")[0]


async def test_a_question_is_answered_and_a_session_goes_on(client: AsyncEthos) -> None:
    answer = await client.chat.ask("Remember that my name is Ada")
    assert "Ada" in str(answer)
    again = await client.chat.ask("What is my name?", session=answer.session)
    assert again.session == answer.session
    assert "Ada" in again.text
    messages = [message.text async for message in client.sessions.messages(answer.session) if message.role == "user"]
    assert messages == ["Remember that my name is Ada", "What is my name?"]


async def test_the_events_of_an_answer_are_typed_and_end_with_it(client: AsyncEthos) -> None:
    first = await client.chat.ask("Hello")
    said = await client.chat.send("Remember that I like green tea", session=first.session)
    events = [event async for event in said.events(wait_s=WAIT_S)]
    assert isinstance(events[-1], ChatMessage)
    assert events[-1].reply_to == said.message
    assert "Hello" not in texts(events, "person"), "what was said before is not told again"
    assert {type(event) for event in events} <= {ChatMessage, Live, Preview, Tool, Typing}


def test_the_blocking_client_talks_too(blocking: Ethos) -> None:
    answer = blocking.chat.ask("My name is Ada", wait_s=WAIT_S)
    said = blocking.chat.send("Hello again", session=answer.session)
    with said.events(wait_s=WAIT_S) as events:
        kinds = [type(event) for event in events]
    assert kinds[-1] is ChatMessage
    assert said.answer(wait_s=WAIT_S).text
    with blocking.chat.events(answer.session) as followed:
        before = []
        for event in followed:
            before.append(event)
            if isinstance(event, Live):
                break
    assert texts(before, "person") == ["My name is Ada", "Hello again"]
    blocking.chat.stop(answer.session)


async def test_the_blocking_client_works_where_an_event_loop_runs(gateway: Gateway) -> None:
    """As in a notebook. The gateway needs the same loop here, so the client is in another thread that has one, too."""

    def talk() -> str:
        async def within() -> str:
            with Ethos(home=gateway.home) as client:
                return client.chat.ask("Hello", wait_s=WAIT_S).text

        return asyncio.run(within())

    assert await asyncio.to_thread(talk)


async def test_the_pieces_of_a_stream_are_the_answer(client: AsyncEthos) -> None:
    words = "tea " * 300
    pieces = [piece async for piece in client.chat.stream(f"repeat after me: {words}", wait_s=WAIT_S)]
    [session] = [one async for one in client.sessions.list()]
    [answer] = [one.text async for one in client.sessions.messages(session.id) if one.role == "assistant"]
    assert "".join(pieces) == answer
    assert words.strip() in answer


def test_the_blocking_client_streams_text_too(blocking: Ethos) -> None:
    answer = blocking.chat.ask("repeat after me: tea", wait_s=WAIT_S)
    with blocking.chat.stream("repeat after me: tea", session=answer.session, wait_s=WAIT_S) as pieces:
        assert "".join(pieces) == first_line(answer)


AT = datetime(2026, 11, 1, tzinfo=UTC)


def preview(offset: int, delta: str, reply_to: str = "m") -> Preview:
    return Preview(id=f"{reply_to}.reply", reply_to=reply_to, offset=offset, delta=delta)


def reply(text: str) -> ChatMessage:
    return ChatMessage(id="m.reply", sequence=2, author="agent", text=text, at=AT, reply_to="m")


@pytest.mark.parametrize(
    ("events", "pieces"),
    [
        ([reply("Hello")], ["Hello"]),
        ([preview(0, "He"), Typing(), preview(2, "llo"), reply("Hello!")], ["He", "llo", "!"]),
        ([preview(0, "Hello"), preview(0, "Hello, you"), reply("Hello, you")], ["Hello", ", you"]),
        ([preview(0, "Looking"), preview(0, ""), preview(0, "It is 5"), reply("It is 5")], ["Looking", "\n\nIt is 5"]),
        ([preview(0, "Another's", "n"), preview(0, "Mine"), reply("Mine")], ["Mine"]),
        ([preview(0, "Stopped"), reply("")], ["Stopped"]),
    ],
    ids=["no preview", "grows", "reconnects", "is discarded", "of another answer", "is stopped"],
)
async def test_what_was_given_is_not_given_again(events: list[Event], pieces: list[str]) -> None:
    async def told() -> AsyncIterator[Event]:
        for event in events:
            yield event

    assert [piece async for piece in _pieces(told(), "m")] == pieces


def test_several_threads_use_one_blocking_client(blocking: Ethos) -> None:
    answers: list[str] = []
    threads = [
        threading.Thread(
            target=lambda number=number: answers.append(first_line(blocking.chat.ask(f"repeat after me: {number}")))
        )
        for number in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert sorted(answers) == ["0", "1", "2", "3"]


async def test_a_line_that_breaks_all_the_time_neither_loses_nor_repeats(gateway: Gateway, client: AsyncEthos) -> None:
    """Each connection ends some bytes later than the one before: within a frame, between two, in the middle of one."""
    session = (await client.chat.ask("Start")).session
    said = ["Start", *(f"repeat after me: {number} {'tea ' * 30}" for number in range(8))]
    async with (
        cutting(port_of(gateway), 97) as way,
        AsyncEthos(base_url=way.url, api_key=token_of(gateway.home), max_retries=10) as far,
        asyncio.timeout(300),
    ):
        talking = asyncio.create_task(talk(client, session, said[1:]))
        events: list[Event] = []
        async with far.chat.events(session) as heard:
            async for event in heard:
                events.append(event)
                if len(texts(events)) == len(said):
                    break
        await talking
        assert way.cuts > 5
    assert texts(events, "person") == said
    places = [event.sequence for event in events if isinstance(event, ChatMessage)]
    assert places == sorted(set(places))
    assert len(places) == 2 * len(said)


async def talk(client: AsyncEthos, session: str, said: list[str]) -> None:
    for text in said:
        await client.chat.ask(text, session=session)


async def test_a_program_that_begins_again_goes_on_behind_its_place(client: AsyncEthos) -> None:
    first = await client.chat.ask("One")
    async with client.chat.events(first.session) as heard:
        places = [event.sequence async for event in until_live(heard) if isinstance(event, ChatMessage)]
    await client.chat.ask("Two", session=first.session)
    async with client.chat.events(first.session, after=places[-1]) as heard:
        news = [event async for event in until_live(heard)]
    assert texts(news, "person") == ["Two"]
    async with client.chat.events(first.session, after=10**9) as heard:
        anew = [event async for event in until_live(heard)]
    assert isinstance(anew[0], Reset)
    assert texts(anew, "person") == ["One", "Two"]


async def until_live(heard):  # type: ignore[no-untyped-def]
    async for event in heard:
        if isinstance(event, Live):
            return
        yield event


async def test_what_is_not_answered_in_time_says_where_the_answer_will_be(client: AsyncEthos) -> None:
    said = await client.chat.send("Hello")
    with pytest.raises(AnswerTimeoutError) as caught:
        await client.chat.ask("Hello", session=said.session, wait_s=0)
    assert caught.value.session == said.session


async def test_a_session_that_is_not_there_is_not_found(client: AsyncEthos) -> None:
    with pytest.raises(NotFoundError):
        await client.chat.send("Hello", session="s_nothing")
    with pytest.raises(NotFoundError):
        await anext(client.chat.events("s_nothing"))


async def test_a_file_goes_along(client: AsyncEthos, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("The kettle is red.")
    answer = await client.chat.ask("Look", attachments=[file(tmp_path / "note.txt")])
    [asked, *_] = [message async for message in client.sessions.messages(answer.session)]
    assert "note.txt" in asked.text


@pytest.mark.slow
async def test_an_answer_comes_although_the_gateway_was_killed_before_it(killable: KillableGateway) -> None:
    """Killed when the answer is made and not yet on disk; the stream is taken up again, at the gateway's new port."""
    killable.start("turn.committing 1")
    async with AsyncEthos(home=killable.home, max_retries=12) as client, asyncio.timeout(300):
        asking = asyncio.create_task(client.chat.ask("repeat after me: tea", wait_s=80))
        await asyncio.to_thread(killable.wait_until_dead)
        await asyncio.to_thread(killable.start)
        assert first_line(await asking) == "tea"
        sessions = [one async for one in client.sessions.list()]
        assert len(sessions) == 1


@pytest.mark.slow
@pytest.mark.parametrize("point", ["inbox.accepting", "inbox.committed"])
async def test_what_was_said_while_the_gateway_was_killed_is_said_once(killable: KillableGateway, point: str) -> None:
    killable.start(f"{point} 1")
    async with AsyncEthos(home=killable.home, max_retries=12) as client, asyncio.timeout(300):
        sending = asyncio.create_task(client.chat.send("repeat after me: once"))
        await asyncio.to_thread(killable.wait_until_dead)
        await asyncio.to_thread(killable.start)
        said = await sending
        assert first_line(await said.answer(wait_s=60)) == "once"
        messages = [one.text async for one in client.sessions.messages(said.session) if one.role == "user"]
        assert messages == ["repeat after me: once"]
        assert len([one async for one in client.sessions.list()]) == 1
