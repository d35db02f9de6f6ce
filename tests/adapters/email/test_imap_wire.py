"""The traps of aioimaplib, on a mailbox that says what a test tells it to, and remembers each line that it heard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from pydantic import SecretStr

from adapters.email.credentials import AccessTokens, Credentials, OAuth, Password
from adapters.email.imap_client import ImapServer, MailboxConnection, open_mailbox
from gateway.errors import AdapterAuthFailed, AdapterNotReady
from gateway.testing.adapters import soon
from tests.adapters.email.mail_server import OAuthProvider
from tests.conformance.notes import FakeNotes

HANG_UP = "!"
"""At the end of an answer: and then the line is closed."""
USUAL = {
    "CAPABILITY": "* CAPABILITY IMAP4rev1 IDLE AUTH=XOAUTH2\r\n{tag} OK done\r\n",
    "SELECT": "* 3 EXISTS\r\n* OK [UIDVALIDITY 7] x\r\n* OK [UIDNEXT 4] x\r\n{tag} OK [READ-WRITE] done\r\n",
    "SEARCH": "* SEARCH 1 2 3\r\n{tag} OK done\r\n",
    "IDLE": "+ idling\r\n",
}


class ScriptedMailbox:
    """A server for one test.

    Attributes:
        answers: by command, instead of the usual ones; `{tag}` stands for the command's.
        heard: the commands, without their tags.
    """

    def __init__(self) -> None:
        self.answers: dict[str, str] = {}
        self.heard: list[str] = []
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._answer(reader, writer)
        except ConnectionResetError:
            pass  # the client hangs up as it likes
        finally:
            writer.transport.abort()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"* OK ready\r\n")
        tag = "*"
        while line := (await reader.readline()).decode():
            words = line.split()
            if line.strip() in {"DONE", ""}:
                answer = "{tag} NO refused\r\n" if line.strip() == "" else "{tag} OK done\r\n"
            else:
                tag, command = words[0], words[2] if words[1] == "UID" else words[1]
                self.heard.append(line.partition(" ")[2].rstrip("\r\n"))
                answer = self.answers.get(command, USUAL.get(command, "{tag} OK done\r\n"))
            writer.write(answer.removesuffix(HANG_UP).replace("{tag}", tag).encode())
            if answer.endswith(HANG_UP):
                await writer.drain()
                writer.write_eof()
                return


@pytest.fixture
async def mailbox() -> AsyncIterator[ScriptedMailbox]:
    mailbox = ScriptedMailbox()
    server = await asyncio.start_server(mailbox.serve, "127.0.0.1", 0)
    mailbox.port = server.sockets[0].getsockname()[1]
    yield mailbox
    server.close()
    await mailbox.close()


async def opened(
    mailbox: ScriptedMailbox, credentials: Credentials | None = None, *, username: str = "bot", name: str = "INBOX"
) -> MailboxConnection:
    server = ImapServer(host="127.0.0.1", port=mailbox.port, context=None, username=username, timeout_s=30.0)
    return await soon(open_mailbox(server, credentials or Password("pw"), name))


async def test_names_are_quoted_and_a_search_names_no_charset(mailbox: ScriptedMailbox) -> None:
    connection = await opened(mailbox, Password('p"w\\d'), username='Ada "B" (x)', name="My Mail")
    assert await soon(connection.uids_from(2)) == [2, 3]
    await connection.close()
    assert mailbox.heard == [
        "CAPABILITY",
        'LOGIN "Ada \\"B\\" (x)" "p\\"w\\\\d"',
        "CAPABILITY",
        'SELECT "My Mail"',
        "UID SEARCH UID 2:*",
    ]


async def test_a_server_that_says_goodbye_instead_of_waiting_is_left_at_once(mailbox: ScriptedMailbox) -> None:
    mailbox.answers["IDLE"] = "* BYE back in a minute\r\n" + HANG_UP
    connection = await opened(mailbox)
    await soon(connection.uids_from(1))
    with pytest.raises(AdapterNotReady, match="hung up: back in a minute"):
        await soon(connection.wait_for_mail(300.0))
    await connection.close()


async def test_a_server_that_says_goodbye_while_we_wait_is_left_at_once(mailbox: ScriptedMailbox) -> None:
    mailbox.answers["IDLE"] = "+ idling\r\n* BYE the session is over\r\n" + HANG_UP
    connection = await opened(mailbox)
    await soon(connection.uids_from(1))
    with pytest.raises(AdapterNotReady, match="the session is over"):
        await soon(connection.wait_for_mail(300.0))
    await connection.close()


REQUESTS: dict[str, Callable[[MailboxConnection], Awaitable[object]]] = {
    "IDLE": lambda connection: connection.wait_for_mail(300.0),
    "SEARCH": lambda connection: connection.uids_from(1),
    "FETCH": lambda connection: connection.content(1),
}


@pytest.mark.parametrize("command", REQUESTS)
async def test_a_command_that_is_refused_costs_the_connection(mailbox: ScriptedMailbox, command: str) -> None:
    connection = await opened(mailbox)
    await soon(connection.uids_from(1))
    mailbox.answers[command] = "{tag} NO not now\r\n"
    with pytest.raises(AdapterNotReady, match=command):
        await soon(REQUESTS[command](connection))
    await connection.close()


async def test_a_mark_that_the_server_refuses_to_set_costs_nothing(mailbox: ScriptedMailbox) -> None:
    mailbox.answers["STORE"] = "{tag} NO read-only\r\n"
    connection = await opened(mailbox)
    await soon(connection.mark_seen(1))
    assert await soon(connection.uids_from(1)) == [1, 2, 3]
    await connection.close()


async def test_two_thousand_lines_at_once_cost_the_connection_and_nobody_waits(mailbox: ScriptedMailbox) -> None:
    """The library's parser recurses; where nothing can be done about it, the caller is told at once."""
    mailbox.answers["SEARCH"] = "".join(f"* {number} EXPUNGE\r\n" for number in range(2_000)) + "{tag} OK done\r\n"
    connection = await opened(mailbox)
    with pytest.raises(AdapterNotReady):
        await soon(connection.uids_from(1))
    await connection.close()


async def test_a_line_that_ends_in_the_middle_of_a_mail_costs_the_connection(mailbox: ScriptedMailbox) -> None:
    mailbox.answers["FETCH"] = "* 1 FETCH (UID 1 BODY[] {5000}\r\nthe beginning" + HANG_UP
    connection = await opened(mailbox)
    with pytest.raises(AdapterNotReady, match="hung up"):
        await soon(connection.content(1))
    await connection.close()


@pytest.mark.parametrize(
    "text", ["* star * subject\r\n* 5 EXISTS\r\n", "1 OK done\r\n)\r\n", "A1 BAD {99}\r\n", "\x00\r\n\n\r x"]
)
async def test_a_mail_that_looks_like_the_protocol_comes_whole(mailbox: ScriptedMailbox, text: str) -> None:
    mailbox.answers["FETCH"] = f"* 1 FETCH (UID 1 BODY[] {{{len(text)}}}\r\n{text})\r\n" + "{tag} OK done\r\n"
    connection = await opened(mailbox)
    assert await soon(connection.content(1)) == text.encode()
    await connection.close()


@pytest.mark.parametrize("empty", ['""', "NIL", "{0}\r\n"])
async def test_an_empty_mail_is_one_however_it_is_written(mailbox: ScriptedMailbox, empty: str) -> None:
    mailbox.answers["FETCH"] = f"* 1 FETCH (UID 1 BODY[] {empty})\r\n" + "{tag} OK done\r\n"
    connection = await opened(mailbox)
    assert await soon(connection.content(1)) == b""
    mailbox.answers["FETCH"] = "{tag} OK done\r\n"
    assert await soon(connection.content(1)) is None
    await connection.close()


async def test_a_server_that_says_little_of_its_mailbox_is_asked(mailbox: ScriptedMailbox) -> None:
    mailbox.answers["SELECT"] = "* 3 EXISTS\r\n{tag} OK done\r\n"
    connection = await opened(mailbox)
    assert (connection.uid_validity, connection.uid_next) == (0, None)
    await connection.close()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("NO [AUTHENTICATIONFAILED] bad pw", AdapterAuthFailed),
        ("NO pw is wrong", AdapterAuthFailed),
        ("NO [EXPIRED] pw", AdapterAuthFailed),
        ("NO [UNAVAILABLE] Temporary authentication failure", AdapterNotReady),
        ("NO [ALERT] Too many simultaneous connections. (Failure)", AdapterNotReady),
        ("NO [LIMIT] pw", AdapterNotReady),
    ],
)
async def test_a_login_that_is_refused_is_told_from_one_that_is_put_off_and_nothing_is_repeated(
    mailbox: ScriptedMailbox, answer: str, expected: type[Exception]
) -> None:
    """RFC 5530 has the codes; some servers tell back what was sent."""
    mailbox.answers["LOGIN"] = f"{{tag}} {answer}\r\n"
    with pytest.raises(expected) as caught:
        await opened(mailbox)
    assert type(caught.value) is expected
    assert "pw" not in str(caught.value)


# https://developers.google.com/workspace/gmail/imap/xoauth2-protocol#error_response, and the same of Microsoft's:
# https://learn.microsoft.com/exchange/client-developer/legacy-protocols/how-to-authenticate-an-imap-pop-smtp-application-by-using-oauth
CHALLENGE = "+ eyJzdGF0dXMiOiI0MDAiLCJzY2hlbWVzIjoiQmVhcmVyIiwic2NvcGUiOiJodHRwczovL21haWwuZ29vZ2xlLmNvbS8ifQ==\r\n"


@pytest.mark.parametrize("refusal", [CHALLENGE, "{tag} NO AUTHENTICATE failed.\r\n"], ids=["Gmail", "Microsoft"])
async def test_a_token_that_is_refused_is_replaced_once_and_then_an_operator_is_needed(
    mailbox: ScriptedMailbox, refusal: str
) -> None:
    mailbox.answers["AUTHENTICATE"] = refusal
    provider = OAuthProvider()
    client = OAuth(
        token_url=provider.token_url, client_id="bot", client_secret=None, refresh_token=SecretStr("r-1"), scope=None
    )
    try:
        with pytest.raises(AdapterAuthFailed):
            await opened(mailbox, AccessTokens(client, FakeNotes()))
    finally:
        provider.close()
    assert len(provider.requests) == 2
    assert len([line for line in mailbox.heard if line.startswith("AUTHENTICATE XOAUTH2 ")]) == 2
