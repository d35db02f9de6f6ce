"""Mail: the real Dovecot and Exim. Each person is one address, and one mail thread."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from email.message import EmailMessage
from pathlib import Path
from typing import Any

from gateway.pipeline.outbox import REPEAT_NOTE
from tests.adapters.email.correspondents import Person, a_mail, new_message_id
from tests.adapters.email.mail_server import AUTHSERV_ID, DOMAIN, PASSWORD, MailServer
from tests.faults.platform import Effect, unwatched

_LOOK_S = 0.2
"""Between two looks into the mailbox of the people: a foreign server tells nobody what it has delivered."""


class Mail:
    name = "mail"
    effects: Sequence[Effect] = ()
    prepare: Sequence[str] = ()
    environment: Mapping[str, str] = {}
    # What lies in a mailbox before the gateway first looks into it is none of its business.
    is_met_first = True
    # A mail whose second try is not confirmed either becomes a dead letter, rather than a third copy.
    gives_up = True
    # A mail whose reading was cut off is suspected of it, and read behind those that came after it.
    keeps_order = False

    def __init__(self) -> None:
        self.on_effect: Callable[[Effect], None] = unwatched
        self._agent = f"agent@{DOMAIN}"
        self._roots: dict[int, str] = {}
        self._shown: list[tuple[tuple[str, str], int, str]] = []
        self._ids: list[str] = []
        self._last_uid = 0
        self._news = asyncio.Event()
        self._reading = asyncio.Lock()

    async def start(self, directory: Path) -> None:
        self._database = directory / "home" / "ethos.sqlite"
        self._server = await asyncio.to_thread(MailServer)
        await asyncio.to_thread(self._server.start)
        self._people = Person(self._server, f"people@{DOMAIN}")
        self._looking = asyncio.create_task(self._look())

    async def close(self) -> None:
        self._looking.cancel()
        await asyncio.wait([self._looking])
        try:
            await self._read()
        finally:
            await asyncio.to_thread(self._server.close)

    def settings(self) -> Mapping[str, Any]:
        ports = self._server.ports
        return {
            "kind": "email",
            "address": self._agent,
            "imap_host": "127.0.0.1",
            "imap_port": ports["imaps"],
            "smtp_host": "127.0.0.1",
            "smtp_port": ports["smtps"],
            "ca_file": str(self._server.ca_file),
            "password": PASSWORD,
            "trusted_authserv_id": AUTHSERV_ID,
            "mails_per_hour": 1000,
        }

    def account(self, person: int) -> str:
        return f"email:people+{person}@{DOMAIN}"

    async def _looked_once(self) -> None:
        while not self._roots:
            with contextlib.suppress(sqlite3.OperationalError), closing(sqlite3.connect(self._database)) as database:
                if database.execute("SELECT 1 FROM adapter_notes WHERE key = 'progress'").fetchone():
                    return
            await asyncio.sleep(_LOOK_S)

    async def say_as(self, person: int, text: str) -> None:
        await self._looked_once()
        message_id = new_message_id()
        root = self._roots.setdefault(person, message_id)
        mail = a_mail(
            text,
            sender=f"people+{person}@{DOMAIN}",
            recipient=self._agent,
            message_id=message_id,
            references=[] if root == message_id else [root],
            subject="talk",
        )
        await asyncio.to_thread(self._server.fill, "agent", [mail.as_bytes()])

    def shown(self) -> Sequence[tuple[int, str]]:
        return [(person, text) for _, person, text in sorted(self._shown)]

    def uncertain(self) -> tuple[int, int]:
        again = len(self._ids) - len(set(self._ids))
        return again, 0

    async def changed(self) -> None:
        self._news.clear()
        await self._news.wait()

    async def settle(self) -> None:
        await self._read()

    async def _look(self) -> None:
        while True:
            await self._read()
            await asyncio.sleep(_LOOK_S)

    async def _read(self) -> None:
        async with self._reading:
            await self._read_new()

    async def _read_new(self) -> None:
        for uid, mail in await self._people.mails(after_uid=self._last_uid):
            self._last_uid = uid
            body = mail.get_body(("plain",))
            text = body.get_content() if body is not None else ""
            person = int(str(mail["To"]).partition("+")[2].partition("@")[0])
            if mail["Message-ID"] in self._ids:  # by which a mail program tells that it is a repetition
                text = REPEAT_NOTE + text
            self._ids.append(str(mail["Message-ID"]))
            self._shown.append((_taken(mail), person, text))
            self._news.set()


def _taken(mail: EmailMessage) -> tuple[str, str]:
    """When Exim took it: the first and the last part of its id. In which order it delivers is its own affair."""
    found = re.search(r"\bid (\w{6})-\w{6,11}-(\w{2,4})\b", "\n".join(map(str, mail.get_all("Received", []))))
    assert found is not None, "this mail did not come through Exim"
    return found[1], found[2]
