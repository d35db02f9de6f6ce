"""How one person writes to the agent, and reads what it answers, on each channel."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from email.message import EmailMessage
from typing import Any, Protocol

from gateway.sdk.client import AsyncEthos
from gateway.sdk.models.chat import ChatMessage, Live
from tests.adapters.discord.fake_discord import Channel
from tests.adapters.discord.world import user
from tests.adapters.email.harness import Person, a_mail, new_address, plain_text
from tests.adapters.slack.fake_slack import TEAM
from tests.adapters.telegram.harness import is_filled
from tests.scenarios.platforms import PATIENCE_S, Platforms, Served
from tests.scenarios.process import Ethos

MAIL_LOOK_S = 0.05
OPERATOR = "local:operator"


class Way(Protocol):
    """One account on one channel.

    Attributes:
        account: its key in the identity map.
    """

    @property
    def account(self) -> str: ...

    async def say(self, text: str) -> None:
        """Write to the agent; it may not have arrived when this returns."""

    async def heard(self) -> list[str]:
        """All that the agent has written there, as it stands now."""

    async def until(self, is_so: Callable[[list[str]], bool]) -> list[str]:
        """Wait for what is heard."""


async def ask(way: Way, text: str, expected: str) -> str:
    """Say something, and return the answer, which has `expected` in it."""
    before = len(await way.heard())
    await way.say(text)
    heard = await way.until(lambda heard: any(expected in each for each in heard[before:]))
    return next(each for each in heard[before:] if expected in each)


async def changed(condition: asyncio.Condition, is_so: Callable[[], object]) -> None:
    """Wait for something on a fake, which says when anything has changed there."""
    async with asyncio.timeout(PATIENCE_S), condition:
        await condition.wait_for(is_so)


class _Fake:
    """What the agent has written to one account on a fake."""

    def __init__(self, changed: asyncio.Condition, read: Callable[[], list[str]]) -> None:
        self._changed = changed
        self._read = read

    async def heard(self) -> list[str]:
        return self._read()

    async def until(self, is_so: Callable[[list[str]], bool]) -> list[str]:
        try:
            await changed(self._changed, lambda: is_so(self._read()))
        except TimeoutError as error:
            raise AssertionError(f"only this was heard: {self._read()}") from error
        return self._read()


class OnTelegram(_Fake):
    def __init__(self, platforms: Platforms, number: int, name: str) -> None:
        self.account = f"telegram:{number}"
        self._telegram = platforms.telegram
        self._fields: dict[str, Any] = {
            "from": {"id": number, "is_bot": False, "first_name": name},
            "chat": {"id": number, "type": "private", "first_name": name},
        }
        self._telegram.chats.setdefault(number, [])
        super().__init__(self._telegram._changed, lambda: self._filled(number))

    def _filled(self, number: int) -> list[str]:
        """What is more than the first words of an answer."""
        return [shown.text for shown in self._telegram.bot_messages(number) if is_filled(shown)]

    async def say(self, text: str) -> None:
        await self._telegram.say(text, **self._fields)


class OnSlack(_Fake):
    def __init__(self, platforms: Platforms, member: str) -> None:
        self.account = f"slack:{TEAM}/{member}"
        self._member = member
        self._slack = platforms.slack
        self.channel = f"D{member[1:]}"
        self._slack.channels.setdefault(self.channel, {})
        super().__init__(self._slack._changed, lambda: [str(each["text"]) for each in self._slack.ours(self.channel)])

    async def say(self, text: str) -> None:
        """Slack takes nothing that begins with `/` but the commands of its apps."""
        await changed(self._slack._changed, lambda: self._slack.sockets)
        if text.startswith("/"):
            command, _, words = text.partition(" ")
            assert command == "/ethos", f"{command} is not a valid command"
            payload = self._slack.command(words, channel=self.channel, user=self._member)
            await self._slack.deliver(payload, kind="slash_commands")
            return
        message = self._slack.write(self.channel, text, user=self._member)
        await self._slack.deliver(self._slack.event(message, self.channel))


class OnDiscord(_Fake):
    def __init__(self, platforms: Platforms, number: int, name: str) -> None:
        self.account = f"discord:{number}"
        self._discord = platforms.discord
        self._author = user(str(number), name.lower(), name)
        self.channel = str(number + 1_000_000)
        self._discord.channels.setdefault(self.channel, Channel(None))
        super().__init__(self._discord._changed, lambda: self._discord.texts(self.channel))

    async def say(self, text: str) -> None:
        self._discord.say(self.channel, text, author=self._author)


class ByMail:
    def __init__(self, platforms: Platforms, name: str) -> None:
        assert platforms.mail is not None
        self._agent = platforms.agent
        self._person = Person(platforms.mail, new_address(name.lower()))
        self.account = f"email:{self._person.address}"

    async def say(self, text: str) -> None:
        """As a mail program does; the server states what it knows of the author."""
        await self._person.submit(self.mail(text, proof=None), self._agent)

    def mail(self, text: str, *, proof: str | None = "dmarc=pass") -> EmailMessage:
        """With the server's statement, as it lies in the agent's mailbox; without, as it is sent."""
        return a_mail(text, sender=self._person.address, recipient=self._agent, proof=proof)

    async def heard(self) -> list[str]:
        """A mail that was sent twice has one Message-ID, and is shown once."""
        return list({mail["Message-ID"]: plain_text(mail) for _, mail in await self._person.mails()}.values())

    async def until(self, is_so: Callable[[list[str]], bool]) -> list[str]:
        return await _look(self.heard, is_so, MAIL_LOOK_S)


class InTerminal:
    """`ethos chat`, which attaches to the gateway that runs."""

    account = OPERATOR

    def __init__(self, served: Served) -> None:
        self._ethos = Ethos(served.home)
        self._shown: list[str] = []

    async def say(self, text: str) -> None:
        done = await asyncio.to_thread(self._ethos.run, "chat", text, timeout_s=PATIENCE_S)
        assert done.returncode == 0, done.stderr
        self._shown.append(done.stdout)

    async def heard(self) -> list[str]:
        return list(self._shown)

    async def until(self, is_so: Callable[[list[str]], bool]) -> list[str]:
        """The command ends with the answer."""
        assert is_so(self._shown), self._shown
        return list(self._shown)


class OnPage:
    """A conversation of its own, as the web page has it."""

    account = OPERATOR
    _conversation = "page"

    def __init__(self, served: Served) -> None:
        self._client = AsyncEthos(home=served.home)

    async def say(self, text: str) -> None:
        await self._client.chat.send(text, conversation=self._conversation)

    async def heard(self) -> list[str]:
        """The history, as a page that is opened now shows it."""
        found: list[str] = []
        async with aclosing(self._client.chat.events(conversation=self._conversation)) as events:
            async for event in events:
                if isinstance(event, Live):
                    break
                if isinstance(event, ChatMessage) and event.author == "agent":
                    found.append(event.text)
        return found

    async def until(self, is_so: Callable[[list[str]], bool]) -> list[str]:
        return await _look(self.heard, is_so, MAIL_LOOK_S)

    async def close(self) -> None:
        await self._client.close()


async def _look(
    read: Callable[[], Awaitable[list[str]]], is_so: Callable[[list[str]], bool], pause_s: float
) -> list[str]:
    """Until it is so; nothing tells when another program has done its part."""
    heard: list[str] = []
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not is_so(heard := await read()):
                await asyncio.sleep(pause_s)
    except TimeoutError as error:
        raise AssertionError(f"only this was heard: {heard}") from error
    return heard
