"""Whatever stands in a payload: it is a message that can be stored, or it is passed over; the next one is read."""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import UTC, datetime
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from adapters.discord import convert as discord
from adapters.email import convert as email
from adapters.email.mail_authentication import AuthservTrust
from adapters.email.threads import Threads
from adapters.slack import convert as slack
from adapters.telegram import convert as telegram
from adapters.telegram.inbound import group_parts, join_parts, part_of
from gateway.messages import InboundMessage
from tests.adapters.mutated import SEED, TEXTS, Mutator, check

HERE = Path(__file__).parent
TRIES = 4_000
AT = datetime(2026, 11, 21, 12, tzinfo=UTC)


def recorded(platform: str, key: str | None) -> list[tuple[str, Any]]:
    found = []
    for path in sorted((HERE / platform / "payloads").glob("*.json")):
        payload = json.loads(path.read_text(encoding="utf-8"))
        found.append((path.stem, payload if key is None else payload[key]))
    return found


def test_telegram() -> None:
    """Only `UNREADABLE` is raised, which the receiver passes over."""
    change, seen = Mutator(random.Random(SEED)), Counter[str]()
    reader = telegram.Reader(
        channel="phone",
        bot=telegram.Account(id=123456, username="ethos_test_bot"),
        aliases={"start": "help"},
        original_chat=lambda chat: chat,
        command={"/help": "help"}.get,
        now=lambda: AT,
    )
    payloads = recorded("telegram", "update")
    for number in range(TRIES):
        _, payload = payloads[number % len(payloads)]
        update = change.changed(payload)
        telegram.chat_id_of(update), telegram.callback_query_id(update), telegram.migration_of(update)
        try:
            message = reader.message_from(update)
        except telegram.UNREADABLE:
            seen["unreadable"] += 1
            continue
        seen["nobody's" if message is None else "read"] += 1
        if message is not None:
            check(message)
            for group in group_parts([part_of(update, message)]):
                check(join_parts(group))
    assert min(seen["unreadable"], seen["nobody's"], seen["read"]) > TRIES / 20, seen


def test_slack() -> None:
    """Only what `UNREADABLE` names is raised, for events, commands, buttons and what stands in the history."""
    change, seen = Mutator(random.Random(SEED + 1)), Counter[str]()
    home = slack.Installation(team="T061EG9R6", enterprise=None, user="U0LAN0Z89", bot="B0LAN")
    payloads = recorded("slack", "payload")

    def read(name: str, body: Any) -> InboundMessage | None:
        if name == "slash_command":
            return slack.message_from_command("office", home, body, conversation="D1", commands={"help"}, sent_at=AT)
        if name == "block_actions":
            return slack.message_from_action("office", home, body, sent_at=AT)
        place = slack.conversation_of(body)
        if place is None or not slack.is_for_installation(home, body):
            return None
        slack.message_from_history("office", home, place, body["event"])
        return slack.message_from_event("office", home, body, slack_connect=True)

    for number in range(TRIES):
        name, payload = payloads[number % len(payloads)]
        try:
            message = read(name, change.changed(payload))
        except slack.UNREADABLE:
            seen["unreadable"] += 1
            continue
        seen["nobody's" if message is None else "read"] += 1
        if message is not None:
            check(message)
    assert min(seen["unreadable"], seen["nobody's"], seen["read"]) > TRIES / 20, seen


def test_discord() -> None:
    """Only what `UNREADABLE` names is raised, for messages, commands and buttons."""
    change, seen = Mutator(random.Random(SEED + 2)), Counter[str]()
    contexts = [
        discord.ReadContext(channel="discord", user="1", guild=guild, roles=frozenset({"98"}))
        for guild in (None, "2002")
    ]
    payloads = recorded("discord", None)
    for number in range(TRIES):
        name, payload = payloads[number % len(payloads)]
        body, context = change.changed(payload), contexts[number % 2]
        try:
            if name == "interaction":
                discord.to_interaction(body)
                message: InboundMessage | None = discord.command_to_inbound(body, context)
            else:
                message = discord.to_inbound(body, context)
        except discord.UNREADABLE:
            seen["unreadable"] += 1
            continue
        seen["nobody's" if message is None else "read"] += 1
        if message is not None:
            check(message)
            for file in message.attachments:
                discord.parse_file_ref(file.ref)
    assert min(seen["unreadable"], seen["nobody's"], seen["read"]) > TRIES / 20, seen


RULES = email.Rules(
    channel="mail",
    own_addresses=frozenset({"bot@example.net"}),
    trust=AuthservTrust(authserv_id="mx.example.net"),
    unproved="stranger",
    max_mail_bytes=1_000_000,
)


def disturbed(mail: bytes, choose: random.Random) -> bytes:
    """Bytes changed, cut out, repeated, and fields put in front."""
    content = bytearray(mail)
    for _ in range(choose.randint(1, 6)):
        start = choose.randrange(len(content) + 1)
        end = min(len(content), start + choose.choice([1, 2, 10, 200]))
        match choose.randrange(5):
            case 0:
                content[start:end] = choose.randbytes(end - start)
            case 1:
                del content[start:end]
            case 2:
                content[start:start] = content[start:end] * choose.choice([1, 50])
            case 3:
                content[start:start] = choose.choice(TEXTS).encode("utf-8", "surrogatepass")
            case _:
                name = choose.choice(["From", "Message-ID", "References", "Date", "Subject", "Content-Type", "To"])
                value = choose.choice([*TEXTS, "=?utf-8?b?7aCA?=", "=?x-unknown?q?=00?=", "multipart/mixed"])
                field = f"{name}: {value}\r\n".encode("utf-8", "surrogatepass")
                content[:] = field + content if choose.random() < 0.5 else content.replace(b"Date:", field + b"X:", 1)
    return bytes(content)


def with_file(choose: random.Random) -> bytes:
    """A mail with a file of a hostile name, made by the library and so well formed."""
    mail = EmailMessage()
    mail["From"], mail["Message-ID"] = "Ada <ada@example.org>", "<1@example.org>"
    mail.set_content("see")
    name = "".join(choose.choices("a./\\\0 \"'", k=choose.randint(0, 8))) + choose.choice(["", "/../x.txt", ".."])
    mail.add_attachment(b"abc", maintype="text", subtype="plain", filename=name)
    return mail.as_bytes()


@pytest.mark.slow
def test_mail() -> None:
    """Nothing is raised at all."""
    choose, seen = random.Random(SEED + 3), Counter[str]()
    threads = Threads(b"k" * 32, "bot@example.net")
    mails = [path.read_bytes() for path in sorted((HERE / "email" / "payloads").glob("*.eml"))]
    for number in range(TRIES):
        whole = with_file(choose) if number % 6 == 5 else disturbed(mails[number % 6 % len(mails)], choose)
        header = whole.replace(b"\r\n", b"\n").partition(b"\n\n")[0] + b"\n\n"
        place = email.Location(uid_validity=7, uid=number + 1, size_bytes=len(whole), arrived_at=AT)
        envelope = email.read_header(header, place, RULES)
        if isinstance(envelope, email.Skipped):
            seen["passed over"] += 1
            continue
        seen["read"] += 1
        message = email.read_mail(envelope, whole, RULES, threads, {"search", "new"})
        assert not isinstance(message, email.Skipped)
        check(message)
    assert min(seen["passed over"], seen["read"]) > TRIES / 20, seen
