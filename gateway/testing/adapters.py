"""What every adapter must do, whatever its platform.

A test module gives a `Harness`, the adapter together with the platform's side of it, and inherits the tests::

    class TestMyAdapter(AdapterSuite):
        @pytest.fixture
        async def harness(self, tmp_path):  # asynchronous with pytest-asyncio
            harness = MyHarness(tmp_path)
            yield harness
            await harness.close()

Without pytest-asyncio the fixture returns a function without arguments, which makes an asynchronous context manager of
a harness: `return partial(my_harness, tmp_path)`.

What a platform can do besides is a small protocol more (`CanRedeliver`, `CanDropConnection`, ...), and is declared with
`class TestMyAdapter(AdapterSuite, abilities={"redelivers"})`; the tests that need it come with it.

What the suite imports is in the extra `testing`: `pip install "ethos-gateway[testing]"`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from datetime import timedelta
from itertools import count
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from gateway.errors import (
    AdapterAuthFailed,
    AdapterError,
    AdapterNotReady,
    EthosError,
    PermanentSendError,
    StoreUnavailable,
)
from gateway.messages import Capabilities, ConversationRef, InboundMessage, OutboundMessage
from gateway.protocols import ChannelAdapter, SupportsPreview, Trial
from gateway.testing.async_suite import AsyncSuite, in_a_loop

PATIENCE_S = 60.0

_T = TypeVar("_T")


class Harness(Protocol):
    """An adapter, not connected yet, and the platform's side of it."""

    @property
    def adapter(self) -> ChannelAdapter:
        """The one under test."""

    @property
    def conversation(self) -> ConversationRef:
        """Where the person of this harness writes and reads."""

    @property
    def longest_text_chars(self) -> int:
        """Of a text that arrives whole, both ways."""

    def carries(self, text: str) -> bool:
        """The platform can carry this text, which is valid Unicode and not blank."""

    async def attach(self) -> None:
        """The person comes; the adapter runs already."""

    async def person_says(self, text: str) -> str:
        """Hand one message to the platform; returns the event id that the adapter is to give it."""

    def is_acknowledged(self, event_id: str) -> bool:
        """The platform was told that we have it."""

    async def wait_acknowledged(self, event_id: str) -> None:
        """Return once it was."""

    async def settle(self) -> None:
        """Return once whatever the adapter has told the platform so far has arrived there."""

    async def record(self, message: OutboundMessage) -> None:
        """What the gateway commits before it sends; nothing for a platform that has its own memory."""

    async def saw(self, amount: int) -> Sequence[tuple[str, str]]:
        """What the person can read, (id, text) in order; waits until it is `amount` messages or more."""

    async def close(self) -> None:
        """Let go of the platform's side; the adapter is closed by the test."""


@runtime_checkable
class CanRedeliver(Protocol):
    """The platform delivers an event again."""

    async def redeliver(self, event_id: str) -> None: ...


@runtime_checkable
class CanDropConnection(Protocol):
    """The connection can break and come back."""

    async def drop_connection(self) -> None: ...


@runtime_checkable
class CanBeDown(Protocol):
    """The platform can be out of reach, so that `connect` fails."""

    async def go_down(self) -> None: ...

    async def come_up(self) -> None: ...


@runtime_checkable
class ShowsPreviews(Protocol):
    """The person sees an answer while it is written."""

    async def previewed(self, message_id: str, text: str) -> None:
        """Return once this preview is seen; an empty text: once it is withdrawn."""


@runtime_checkable
class KnowsStrangers(Protocol):
    """There are conversations that the platform does not have."""

    @property
    def unknown_conversation(self) -> ConversationRef: ...

    @property
    def is_unknown_refused(self) -> bool:
        """`send` raises PermanentSendError; else the message waits, and `send` returns."""


@runtime_checkable
class CanTry(Protocol):
    """The package can try a login without a channel: it has `trial(config)`."""

    @property
    def wrong_secret(self) -> str:
        """In place of a secret of the configuration; the platform does not take it."""

    async def trial(self, *, is_wrong: bool = False) -> Trial:
        """What the package's `trial` gives for the login of the adapter, or for the wrong one."""


class Inbox:
    """The gateway's side of `accept`.

    Attributes:
        messages: what was accepted.
        gate: closed, `accept` waits.
        failure: what `accept` raises, while it is set.
        tries: how often it was called.
    """

    def __init__(self) -> None:
        self.messages: list[InboundMessage] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.failure: Exception | None = None
        self.tries = 0
        self._changed = asyncio.Condition()

    async def accept(self, message: InboundMessage) -> None:
        self.tries += 1
        async with self._changed:
            self._changed.notify_all()
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        self.messages.append(message)
        async with self._changed:
            self._changed.notify_all()

    async def tried(self, amount: int) -> None:
        await self._until(lambda: self.tries >= amount)

    async def has(self, amount: int) -> list[InboundMessage]:
        await self._until(lambda: len(self.messages) >= amount)
        return self.messages

    async def _until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S), self._changed:
            await self._changed.wait_for(is_so)


async def soon(awaitable: Awaitable[_T]) -> _T:
    """Fail rather than hang."""
    async with asyncio.timeout(PATIENCE_S):
        return await awaitable


async def _supervise(adapter: ChannelAdapter, inbox: Inbox) -> None:
    """Connect again whenever `run` raises, as the gateway does. Only the contract's errors are taken for that."""
    while True:
        with contextlib.suppress(EthosError):
            await adapter.run(inbox.accept)
        await adapter.connect()


@contextlib.asynccontextmanager
async def running(harness: Harness, inbox: Inbox | None = None) -> AsyncIterator[Inbox]:
    """The adapter connected and running, the person attached; stopped and closed at the end."""
    inbox = inbox or Inbox()
    await soon(harness.adapter.connect())
    task = asyncio.create_task(_supervise(harness.adapter, inbox))
    try:
        await soon(harness.attach())
        yield inbox
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        await asyncio.wait({task}, timeout=PATIENCE_S)
        await soon(harness.adapter.close())
    with contextlib.suppress(asyncio.CancelledError):
        await task


_numbers = count(1)


def answer(harness: Harness, text: str, *, conversation: ConversationRef | None = None) -> OutboundMessage:
    """A message of the agent that was never sent before."""
    return OutboundMessage(id=f"out-{next(_numbers)}", conversation=conversation or harness.conversation, text=text)


def _with_texts(test: Any) -> Any:
    """Draw examples for `text`; what the harness's platform cannot carry is skipped."""
    in_loop: Any = in_a_loop(test)
    test = given(text=st.text(min_size=1, max_size=300).filter(str.strip))(in_loop)
    for text in (
        "Ünïcödé 👩‍👩‍👧 \u202e\u05e2\u05d1\u202c 漢字 \t end",
        "line\nline\r\n```\ncode\n```\n\u2028 \u0085 \\ \" ' { } <b> &amp; @all",
    ):
        test = example(text=text)(test)
    return settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])(test)


def needs(*abilities: str) -> Callable[[_T], _T]:
    """Mark a test that only adapters with these abilities have."""

    def mark(test: _T) -> _T:
        test.needs = set(abilities)  # type: ignore[attr-defined]
        return test

    return mark


def abilities_of(harness: Harness) -> set[str]:
    """What the platform and its adapter can do besides the contract."""
    found = {
        "can be down": isinstance(harness, CanBeDown),
        "redelivers": isinstance(harness, CanRedeliver),
        "drops connections": isinstance(harness, CanDropConnection),
        "sends idempotently": harness.adapter.capabilities.is_idempotent_send,
        "shows previews": isinstance(harness.adapter, SupportsPreview) and isinstance(harness, ShowsPreviews),
        "knows strangers": isinstance(harness, KnowsStrangers),
        "tries logins": isinstance(harness, CanTry),
    }
    return {ability for ability, has in found.items() if has}


@contextlib.asynccontextmanager
async def _begun(given: Any) -> AsyncIterator[Harness]:
    """The harness that a fixture gives, or gives a function for."""
    if hasattr(given, "adapter"):
        yield given
    else:
        async with given() as harness:
            yield harness
            await harness.adapter.close()


class AdapterSuite(AsyncSuite):
    """The tests; a subclass provides the fixture `harness`, and says which abilities it has."""

    abilities: ClassVar[frozenset[str]] = frozenset()
    entered: ClassVar = {"harness": _begun}

    def __init_subclass__(cls, *, abilities: Collection[str] = (), **kwargs: Any) -> None:
        """Leave out the tests of abilities that the adapter does not have.

        Each adapter gets property tests of its own: hypothesis keeps what it has found by function.
        """
        super().__init_subclass__(**kwargs)
        cls.abilities = frozenset(abilities)
        for name, test in list(vars(AdapterSuite).items()):
            if getattr(test, "needs", set()) - cls.abilities:
                setattr(cls, name, None)
        for test in (_any_text_of_the_person_arrives_whole, _any_text_of_the_agent_arrives_whole):
            setattr(cls, f"test{test.__name__}", _with_texts(test))

    async def test_the_declared_abilities_are_those_that_it_has(self, harness: Harness) -> None:
        assert self.abilities == abilities_of(harness)

    # ---- life cycle -------------------------------------------------------------------------------------------------

    async def test_close_may_be_called_before_connect_and_twice(self, harness: Harness) -> None:
        await soon(harness.adapter.close())
        await soon(harness.adapter.connect())
        await soon(harness.adapter.close())
        await soon(harness.adapter.close())

    async def test_run_ends_at_once_when_it_is_cancelled(self, harness: Harness) -> None:
        inbox = Inbox()
        await soon(harness.adapter.connect())
        task = asyncio.create_task(harness.adapter.run(inbox.accept))
        await soon(harness.attach())
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=20.0)
        assert done, "run goes on after it was cancelled"
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await soon(harness.adapter.close())

    async def test_it_may_be_closed_while_it_runs_and_run_ends_when_cancelled_at_the_latest(
        self, harness: Harness
    ) -> None:
        inbox = Inbox()
        await soon(harness.adapter.connect())
        task = asyncio.create_task(harness.adapter.run(inbox.accept))
        await soon(harness.attach())
        await soon(harness.adapter.close())
        task.cancel()
        with contextlib.suppress(AdapterError, asyncio.CancelledError):
            await soon(task)

    async def test_after_close_it_can_be_connected_again_and_works(self, harness: Harness) -> None:
        for number in range(2):
            async with running(harness) as inbox:
                await harness.person_says(f"hello {number}")
                assert (await inbox.has(1))[0].text == f"hello {number}"

    @needs("can be down")
    async def test_a_platform_out_of_reach_is_not_ready_and_can_be_tried_again(self, harness: Harness) -> None:
        assert isinstance(harness, CanBeDown)
        await harness.go_down()
        for _ in range(2):
            with pytest.raises(AdapterNotReady):
                await soon(harness.adapter.connect())
        await harness.come_up()
        async with running(harness) as inbox:
            await harness.person_says("there you are")
            await inbox.has(1)

    @needs("tries logins")
    async def test_a_trial_says_who_the_login_is_and_disturbs_no_channel(self, harness: Harness) -> None:
        assert isinstance(harness, CanTry)
        async with running(harness) as inbox:
            tried = await soon(harness.trial())
            await harness.person_says("hello")
            assert [message.text for message in await inbox.has(1)] == ["hello"]
            said = answer(harness, "and nothing else was said")
            await harness.record(said)
            await soon(harness.adapter.send(said))
            assert [text for _, text in await soon(harness.saw(1))] == [said.text]
        assert isinstance(tried, Trial)
        assert tried.account.strip()
        assert all(text.strip() and text.isprintable() for text in (*tried.problems, *tried.hints))

    @needs("tries logins")
    async def test_a_trial_of_a_wrong_login_is_a_matter_for_the_operator_and_names_no_secret(
        self, harness: Harness, caplog: pytest.LogCaptureFixture
    ) -> None:
        assert isinstance(harness, CanTry)
        caplog.set_level("DEBUG")
        with pytest.raises(AdapterAuthFailed) as caught:
            await soon(harness.trial(is_wrong=True))
        assert harness.wrong_secret not in str(caught.value)
        assert harness.wrong_secret not in caplog.text

    @needs("tries logins", "can be down")
    async def test_a_trial_of_a_platform_out_of_reach_can_be_repeated(self, harness: Harness) -> None:
        assert isinstance(harness, CanTry)
        assert isinstance(harness, CanBeDown)
        await harness.go_down()
        with pytest.raises(AdapterNotReady):
            await soon(harness.trial())
        await harness.come_up()
        assert (await soon(harness.trial())).account

    async def test_nothing_is_left_running_after_close(self, harness: Harness) -> None:
        async with running(harness) as inbox:
            await harness.person_says("hello")
            await inbox.has(1)
            message = answer(harness, "hi")
            await harness.record(message)
            await soon(harness.adapter.send(message))
            await soon(harness.saw(1))
        await harness.close()
        for _ in range(5):  # what was cancelled gets its turn to end
            await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left

    async def test_its_capabilities_are_sane_and_constant(self, harness: Harness) -> None:
        adapter = harness.adapter
        capabilities = adapter.capabilities
        assert isinstance(capabilities, Capabilities)
        assert capabilities == adapter.capabilities
        assert capabilities.max_text_chars > 0
        assert capabilities.max_attachment_bytes >= 0
        assert capabilities.markup in {"markdown", "plain"}
        assert (capabilities.preview_interval_s is not None) == isinstance(adapter, SupportsPreview)
        assert capabilities.preview_interval_s is None or capabilities.preview_interval_s > 0
        assert adapter.name == harness.conversation.channel
        assert adapter.kind
        assert capabilities.command_form.count("{command}") == 1
        assert not capabilities.group_command_form or capabilities.group_command_form.count("{command}") == 1

    # ---- from the person --------------------------------------------------------------------------------------------

    async def test_a_message_arrives_with_who_and_where_and_when(self, harness: Harness) -> None:
        async with running(harness) as inbox:
            event_id = await harness.person_says("hello")
            message = (await inbox.has(1))[0]
        assert message.event_id == event_id
        assert message.text == "hello"
        assert message.conversation == harness.conversation
        assert message.sender.channel == harness.adapter.name
        assert message.sender.user
        assert message.id
        assert message.sent_at.utcoffset() == timedelta(0)

    async def test_it_is_acknowledged_only_after_it_was_accepted(self, harness: Harness) -> None:
        async with running(harness) as inbox:
            inbox.gate.clear()
            event_id = await harness.person_says("hello")
            await inbox.tried(1)
            await soon(harness.settle())
            assert not harness.is_acknowledged(event_id)
            inbox.gate.set()
            await soon(harness.wait_acknowledged(event_id))
            assert [message.event_id for message in inbox.messages] == [event_id]

    @pytest.mark.parametrize("failure", [StoreUnavailable("the disk is full"), RuntimeError("a defect")])
    async def test_what_is_not_accepted_is_not_acknowledged_and_may_come_again(
        self, harness: Harness, failure: Exception
    ) -> None:
        async with running(harness) as inbox:
            inbox.failure = failure
            event_id = await harness.person_says("hello")
            await inbox.tried(1)
            await soon(harness.settle())
            assert not harness.is_acknowledged(event_id)
            inbox.failure = None
            if isinstance(harness, CanRedeliver):
                await soon(harness.redeliver(event_id))
                assert (await inbox.has(1))[0].event_id == event_id
                await soon(harness.wait_acknowledged(event_id))

    async def test_what_was_being_accepted_at_the_stop_is_not_acknowledged(self, harness: Harness) -> None:
        async with running(harness) as inbox:
            inbox.gate.clear()
            event_id = await harness.person_says("hello")
            await inbox.tried(1)
        assert not harness.is_acknowledged(event_id)
        assert inbox.messages == []

    async def test_messages_of_a_conversation_arrive_in_order(self, harness: Harness) -> None:
        texts = [f"message {number}" for number in range(30)]
        async with running(harness) as inbox:
            for text in texts:
                await harness.person_says(text)
            assert [message.text for message in await inbox.has(len(texts))] == texts

    @needs("redelivers")
    async def test_a_redelivery_has_the_same_event_id(self, harness: Harness) -> None:
        assert isinstance(harness, CanRedeliver)
        async with running(harness) as inbox:
            first = await harness.person_says("once")
            second = await harness.person_says("twice")
            await inbox.has(2)
            await harness.redeliver(second)
            await harness.redeliver(first)
            ids = [(message.event_id, message.id) for message in await inbox.has(4)]
        assert [event_id for event_id, _ in ids] == [first, second, second, first]
        assert ids[0] == ids[3]
        assert ids[1] == ids[2]

    async def test_a_long_text_of_the_person_arrives_whole(self, harness: Harness) -> None:
        text = _long_text(harness.longest_text_chars)
        async with running(harness) as inbox:
            await harness.person_says(text)
            assert (await inbox.has(1))[0].text == text

    @needs("drops connections")
    async def test_after_a_broken_connection_messages_arrive_again(self, harness: Harness) -> None:
        assert isinstance(harness, CanDropConnection)
        async with running(harness) as inbox:
            await harness.person_says("before")
            await inbox.has(1)
            await soon(harness.drop_connection())
            await harness.person_says("after")
            assert [message.text for message in await inbox.has(2)] == ["before", "after"]

    # ---- to the person ----------------------------------------------------------------------------------------------

    async def test_answers_arrive_in_order(self, harness: Harness) -> None:
        async with running(harness):
            messages = [answer(harness, f"answer {number}") for number in range(30)]
            for message in messages:
                await harness.record(message)
                receipt = await soon(harness.adapter.send(message))
                assert all(isinstance(each, str) for each in receipt.message_ids)
            seen = await soon(harness.saw(len(messages)))
        assert [text for _, text in seen] == [message.text for message in messages]

    async def test_a_long_text_of_the_agent_arrives_whole(self, harness: Harness) -> None:
        text = _long_text(harness.longest_text_chars)
        async with running(harness):
            message = answer(harness, text)
            await harness.record(message)
            await soon(harness.adapter.send(message))
            assert "".join(part for _, part in await soon(harness.saw(1))) == text

    @needs("sends idempotently")
    async def test_sending_one_id_twice_shows_one_message_where_that_is_declared(self, harness: Harness) -> None:
        async with running(harness):
            first, last = answer(harness, "once"), answer(harness, "the end")
            await harness.record(first)
            receipts = [await soon(harness.adapter.send(first)) for _ in range(3)]
            await harness.record(last)
            await soon(harness.adapter.send(last))
            seen = await soon(harness.saw(2))
        assert [text for _, text in seen] == ["once", "the end"]
        assert receipts[0] == receipts[1] == receipts[2]

    @needs("drops connections", "sends idempotently")
    async def test_what_is_sent_while_the_connection_is_broken_is_shown_once_and_in_order(
        self, harness: Harness
    ) -> None:
        assert isinstance(harness, CanDropConnection)
        async with running(harness):
            messages = [answer(harness, f"answer {number}") for number in range(3)]
            for message in messages:
                await harness.record(message)
                if message is messages[1]:
                    await soon(harness.drop_connection())
                await soon(harness.adapter.send(message))
            seen = await soon(harness.saw(3))
        assert [text for _, text in seen] == [message.text for message in messages]

    @needs("shows previews")
    async def test_the_answer_replaces_its_preview(self, harness: Harness) -> None:
        adapter = harness.adapter
        assert isinstance(adapter, SupportsPreview)
        assert isinstance(harness, ShowsPreviews)
        async with running(harness):
            final = answer(harness, "The answer is 42.")
            for text in ("The", "The answer"):
                await soon(adapter.preview(_with_text(final, text)))
            await soon(harness.previewed(final.id, "The answer"))
            await harness.record(final)
            await soon(harness.adapter.send(final))
            seen = await soon(harness.saw(1))
        assert [text for _, text in seen] == [final.text]

    @needs("shows previews")
    async def test_an_empty_preview_withdraws_it(self, harness: Harness) -> None:
        adapter = harness.adapter
        assert isinstance(adapter, SupportsPreview)
        assert isinstance(harness, ShowsPreviews)
        async with running(harness):
            withdrawn, final = answer(harness, "Never"), answer(harness, "Something else")
            await soon(adapter.preview(withdrawn))
            await soon(harness.previewed(withdrawn.id, "Never"))
            await soon(adapter.preview(_with_text(withdrawn, "")))
            await soon(harness.previewed(withdrawn.id, ""))
            await harness.record(final)
            await soon(harness.adapter.send(final))
            seen = await soon(harness.saw(1))
        assert [text for _, text in seen] == [final.text]

    @needs("shows previews")
    async def test_a_preview_never_fails_not_even_when_the_channel_is_closed(self, harness: Harness) -> None:
        assert isinstance(harness.adapter, SupportsPreview)
        await soon(harness.adapter.preview(answer(harness, "nobody sees it")))

    @needs("knows strangers")
    async def test_a_conversation_that_cannot_be_is_refused_for_good_or_waits(self, harness: Harness) -> None:
        assert isinstance(harness, KnowsStrangers)
        async with running(harness):
            message = answer(harness, "is anybody there?", conversation=harness.unknown_conversation)
            await harness.record(message)
            if harness.is_unknown_refused:
                with pytest.raises(PermanentSendError):
                    await soon(harness.adapter.send(message))
            else:
                await soon(harness.adapter.send(message))


async def _any_text_of_the_person_arrives_whole(self: object, harness: Harness, text: str) -> None:  # noqa: ARG001 (a method)
    assume(harness.carries(text))
    async with running(harness) as inbox:
        await harness.person_says(text)
        assert (await inbox.has(1))[0].text == text


async def _any_text_of_the_agent_arrives_whole(self: object, harness: Harness, text: str) -> None:  # noqa: ARG001 (a method)
    assume(harness.carries(text))
    async with running(harness):
        message = answer(harness, text)
        await harness.record(message)
        await soon(harness.adapter.send(message))
        assert (await soon(harness.saw(1)))[-1][1] == text


def _with_text(message: OutboundMessage, text: str) -> OutboundMessage:
    return OutboundMessage(id=message.id, conversation=message.conversation, text=text)


def _long_text(chars: int) -> str:
    """Words and lines, with characters of every length in UTF-8."""
    line = "The quick brown fox jumps over the lazy dög 漢字 🦊\n"
    return (line * (chars // len(line) + 1))[: chars - 1] + "!"
