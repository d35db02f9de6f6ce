"""Telegram, played by the test on a free port of this machine: the Bot API, as far as the adapter uses it.

Each rule has the place that it was taken from: https://core.telegram.org/bots/api (below: `api#…`), or the open source
of Telegram's own server (`Client.cpp`: https://github.com/tdlib/telegram-bot-api) and library (`td`:
https://github.com/tdlib/td), where the documentation is silent.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.policy
import json
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from email.parser import BytesParser
from typing import Any
from urllib.parse import parse_qsl, unquote

TOKEN = "123456:AAH-canary_of_the_token_0123456789"
BOT = {"id": 123456, "is_bot": True, "first_name": "Ethos", "username": "ethos_test_bot"}
PERSON = {"id": 42, "is_bot": False, "first_name": "Ada", "last_name": "Lovelace", "username": "ada"}
PRIVATE_CHAT = {"id": 42, "type": "private", "first_name": "Ada", "username": "ada"}
GROUP = {"id": -1001234, "type": "supergroup", "title": "Engines"}
DATE = 1_763_632_800

Json = dict[str, Any]


@dataclass(slots=True)
class Shown:
    """A message of the bot as a person sees it; `history` has every text that it ever showed."""

    number: int
    text: str
    entities: list[Json]
    reply_to: int | None = None
    thread: int | None = None
    file: tuple[str, bytes] | None = None
    is_voice: bool = False
    keyboard: list[list[Json]] = field(default_factory=list)
    history: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Fault:
    """In place of the true answer.

    Attributes:
        status: 0 breaks the connection.
        is_done: what was asked for is done all the same.
        is_hanging: no answer ever comes.
    """

    status: int = 0
    body: bytes = b""
    is_done: bool = False
    is_hanging: bool = False


def refusal(status: int, description: str, **parameters: object) -> Fault:
    """As the API says no: api#making-requests."""
    answer: Json = {"ok": False, "error_code": status, "description": description}
    if parameters:
        answer["parameters"] = parameters
    return Fault(status, json.dumps(answer).encode())


def flood(seconds: int) -> Fault:
    """api#responseparameters."""
    return refusal(429, f"Too Many Requests: retry after {seconds}", retry_after=seconds)


class Refused(Exception):
    def __init__(self, status: int, description: str, **parameters: object) -> None:
        super().__init__(description)
        self.fault = refusal(status, description, **parameters)


def cleaned(text: str, entities: list[Json] | None = None) -> str:
    """What becomes of a text: `clean_input_string` and `fix_formatted_text` in td/telegram/misc.cpp, MessageEntity.cpp.

    Control characters become blanks, some invisible ones go, blanks at the end go, and those before the first entity.
    """
    text = re.sub(r"[\x00-\x09\x0b\x0c\x0e-\x1f]", " ", text.replace("\r", ""))
    text = re.sub(r"[\u2028-\u202e\u0333\u033f\u030a]", "", text)
    text = text.rstrip(" \n")
    return text if entities else text.lstrip(" \n")


def utf16(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


class FakeTelegram:
    """One bot and the people who talk to it.

    Attributes:
        chats: what the bot has sent, by chat.
        calls: every request, (method, parameters), in order.
        faults: for the next requests of a method.
        holds: by method, what its next request waits for before anything is done.
        drafts: (chat, draft id, text), in order.
        files: by file id, what people have sent.
        presses: the presses that were answered, with the line that was shown.
    """

    def __init__(self) -> None:
        self.port = 0
        self.token = TOKEN
        self.chats: dict[int, list[Shown]] = {PRIVATE_CHAT["id"]: [], GROUP["id"]: []}
        self.migrated: dict[int, int] = {}
        self.blocked: set[int] = set()
        self.calls: list[tuple[str, Json]] = []
        self.faults: defaultdict[str, list[Fault]] = defaultdict(list)
        self.holds: dict[str, asyncio.Event] = {}
        self.drafts: list[tuple[int, int, str]] = []
        self.typing: list[int] = []
        self.files: dict[str, bytes] = {}
        self.menu: list[Json] = []
        self.presses: dict[str, str | None] = {}
        self.webhook: Json = {"url": ""}
        self.webhook_error = ""
        self.abilities: Json = {"can_join_groups": True, "can_read_all_group_messages": False}
        self.confirmed: set[int] = set()
        self.pending: list[Json] = []
        self.polls = 0
        self._given: set[int] = set()
        self._waiting: asyncio.Event | None = None
        self._next_update = 700_000_000
        self._next_number = 10
        self._changed = asyncio.Condition()
        self._server: asyncio.Server | None = None
        self._tasks: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._polling: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(self._serve(reader, writer))
            self._tasks[task] = writer
            task.add_done_callback(lambda _: self._tasks.pop(task, None))

        self._server = await asyncio.start_server(take, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        self.drop_connections()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def drop_connections(self) -> None:
        for writer in self._tasks.values():
            writer.transport.abort()

    def drop_polls(self) -> None:
        """Break the connections that wait for updates."""
        for writer in self._polling:
            writer.transport.abort()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60), self._changed:
            await self._changed.wait_for(condition)

    async def notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    # ---- the people -------------------------------------------------------------------------------------------------

    def message(self, text: str | None = None, **fields: object) -> Json:
        """A message of Ada's, in her private chat unless told otherwise."""
        self._next_number += 1
        message: Json = {"message_id": self._next_number, "from": PERSON, "chat": PRIVATE_CHAT, "date": DATE}
        return {**message, **({} if text is None else {"text": text}), **fields}

    def update(self, message: Json | None = None, **fields: object) -> Json:
        """api#update: numbers that grow by one."""
        self._next_update += 1
        return {"update_id": self._next_update, **({} if message is None else {"message": message}), **fields}

    async def say(self, text: str | None = None, **fields: object) -> Json:
        """An update for whoever polls."""
        update = self.update(self.message(text, **fields))
        await self.give(update)
        return update

    async def give(self, update: Json) -> None:
        self.pending.append(update)
        await self.notify()

    def press(self, data: str, shown: Shown | None = None, **fields: object) -> Json:
        """api#callbackquery: Ada presses a button below a message of the bot's."""
        self._next_number += 1
        message = None if shown is None else {**self._as_message(PRIVATE_CHAT["id"], shown), "chat": PRIVATE_CHAT}
        press: Json = {"id": f"4711{self._next_number}", "from": PERSON, "chat_instance": "1", "data": data}
        return self.update(callback_query={**press, **({} if message is None else {"message": message}), **fields})

    def bot_messages(self, chat: int = PRIVATE_CHAT["id"]) -> list[Shown]:
        return self.chats[chat]

    def texts(self, chat: int = PRIVATE_CHAT["id"]) -> list[str]:
        return [shown.text for shown in self.chats[chat]]

    def called(self, method: str) -> list[Json]:
        return [parameters for name, parameters in self.calls if name == method]

    # ---- HTTP -------------------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                path = unquote(head.split(" ", 2)[1])
                headers = {
                    name.lower(): value.strip()
                    for name, _, value in (line.partition(":") for line in head.split("\r\n")[1:] if line)
                }
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                if path.endswith("/getUpdates"):
                    self._polling.add(writer)
                fault = await self._answer(path, _parameters(headers.get("content-type", ""), body))
                await self.notify()
                if fault.is_hanging:
                    await asyncio.Event().wait()
                if fault.status == 0:
                    break
                writer.write(
                    f"HTTP/1.1 {fault.status} Something\r\nContent-Type: application/json\r\n"
                    f"Content-Length: {len(fault.body)}\r\n\r\n".encode()
                )
                writer.write(fault.body)
                await writer.drain()
        self._polling.discard(writer)
        writer.transport.abort()

    async def _answer(self, path: str, parameters: Json) -> Fault:
        if path.startswith(f"/file/bot{self.token}/"):
            return Fault(200, self.files[path.rpartition("/")[2]])
        # Client.cpp: what does not look like a token is 404, what is nobody's is 401
        if not re.match(r"/bot\d+:[\w-]{20,}/", path):
            return refusal(404, "Not Found")
        if not path.startswith(f"/bot{self.token}/"):
            return refusal(401, "Unauthorized")
        method = path.rpartition("/")[2]
        self.calls.append((method, parameters))
        await self.notify()
        if hold := self.holds.pop(method, None):
            await hold.wait()
        fault = self.faults[method].pop(0) if self.faults[method] else None
        if fault is not None and not fault.is_done:
            return fault
        try:
            result = await getattr(self, re.sub("([A-Z])", r"_\1", f"_{method}").lower())(parameters)
        except Refused as refused:
            return fault or refused.fault
        return fault or Fault(200, json.dumps({"ok": True, "result": result}).encode())

    # ---- methods ----------------------------------------------------------------------------------------------------

    async def _get_me(self, _: Json) -> Json:
        """api#getme, api#user."""
        return {**BOT, **self.abilities, "supports_inline_queries": False}

    async def _get_updates(self, asked: Json) -> list[Json]:
        """api#getupdates, api#getting-updates."""
        if self.webhook["url"]:
            raise Refused(409, "Conflict: can't use getUpdates method while webhook is active")
        if self._waiting is not None:
            self._waiting.set()  # Client.cpp: the older of two is told that the newer has taken over
        gone = self._waiting = asyncio.Event()
        offset = int(asked.get("offset", 0))
        # "confirmed as soon as getUpdates is called with an offset higher than its update_id". What was put here again
        # by `redeliver` was not handed out since, and waits.
        for update in [one for one in self.pending if one["update_id"] < offset and one["update_id"] in self._given]:
            self.pending.remove(update)
            self.confirmed.add(update["update_id"])
        self.polls += 1
        await self.notify()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(float(asked.get("timeout", 0))), self._changed:
                await self._changed.wait_for(lambda: self.pending or gone.is_set())
        if gone.is_set():
            raise Refused(409, "Conflict: terminated by other getUpdates request")
        self._waiting = None
        batch = self.pending[: int(asked.get("limit", 100))]
        self._given |= {update["update_id"] for update in batch}
        return batch

    async def redeliver(self, update: Json) -> None:
        """Once it is confirmed, as if it had not been."""
        await self.until(lambda: update not in self.pending)
        self._given.discard(update["update_id"])
        await self.give(update)

    async def _set_webhook(self, asked: Json) -> bool:
        self.webhook = asked
        return True

    async def _delete_webhook(self, _: Json) -> bool:
        self.webhook = {"url": ""}
        return True

    async def _get_webhook_info(self, _: Json) -> Json:
        """api#webhookinfo."""
        info = {"url": self.webhook["url"], "has_custom_certificate": False, "pending_update_count": 0}
        return {**info, "last_error_message": self.webhook_error} if self.webhook_error else info

    async def _set_my_commands(self, asked: Json) -> bool:
        """api#botcommand."""
        self.menu = asked["commands"]
        for command in self.menu:
            if not re.fullmatch(r"[a-z0-9_]{1,32}", command["command"]) or not 1 <= len(command["description"]) <= 256:
                raise Refused(400, "Bad Request: BOT_COMMAND_INVALID")
        return True

    async def _send_message(self, asked: Json) -> Json:
        chat = self._chat(asked)
        text, entities = self._formatted(asked)
        self._next_number += 1
        reply = asked.get("reply_parameters") or {}
        thread = asked.get("message_thread_id")
        shown = Shown(
            self._next_number,
            text,
            entities,
            reply_to=reply.get("message_id"),
            thread=None if thread is None else int(thread),
            history=[text],
        )
        self.chats[chat].append(shown)
        return self._as_message(chat, shown)

    async def _edit_message_text(self, asked: Json) -> Json:
        """api#editmessagetext."""
        chat, shown = self._own(asked, "edit")
        text, entities = self._formatted(asked)
        keyboard = _keyboard(asked)
        if (text, entities, None, keyboard) == (shown.text, shown.entities, shown.file, shown.keyboard):
            raise Refused(
                400,
                "Bad Request: message is not modified: specified new message content and reply markup are exactly the "
                "same as a current content and reply markup of the message",
            )
        shown.text, shown.entities, shown.keyboard = text, entities, keyboard
        shown.history.append(text)
        return self._as_message(chat, shown)

    async def _edit_message_reply_markup(self, asked: Json) -> Json:
        """api#editmessagereplymarkup."""
        chat, shown = self._own(asked, "edit")
        shown.keyboard = _keyboard(asked)
        return self._as_message(chat, shown)

    async def _edit_message_media(self, asked: Json) -> Json:
        """api#editmessagemedia: "or to add media to text messages"."""
        chat, shown = self._own(asked, "edit")
        attached = asked["media"]["media"].removeprefix("attach://")
        shown.file, shown.text, shown.keyboard = asked[attached], "", _keyboard(asked)
        return self._as_message(chat, shown)

    async def _send_voice(self, asked: Json) -> Json:
        """api#sendvoice: "in an .OGG file encoded with OPUS"; td shows anything else as a file. No text is needed."""
        chat = self._chat(asked)
        self._next_number += 1
        name, content = asked["voice"]
        assert content.startswith(b"OggS"), name
        assert b"OpusHead" in content[:64], name
        assert int(asked["duration"]) >= 0
        thread = asked.get("message_thread_id")
        shown = Shown(
            self._next_number,
            "",
            [],
            reply_to=(asked.get("reply_parameters") or {}).get("message_id"),
            thread=None if thread is None else int(thread),
            file=(name, content),
            is_voice=True,
        )
        self.chats[chat].append(shown)
        return self._as_message(chat, shown)

    async def _answer_callback_query(self, asked: Json) -> bool:
        """Client.cpp: a press is answered once, and not long after."""
        if asked["callback_query_id"] in self.presses:
            raise Refused(400, "Bad Request: query is too old and response timeout expired or query ID is invalid")
        self.presses[asked["callback_query_id"]] = asked.get("text")
        return True

    async def _delete_message(self, asked: Json) -> bool:
        chat, shown = self._own(asked, "delete")
        self.chats[chat].remove(shown)
        return True

    async def _send_message_draft(self, asked: Json) -> bool:
        """api#sendmessagedraft: private chats only, a draft's id is not 0."""
        chat = self._chat(asked)
        if chat < 0:
            raise Refused(400, "Bad Request: TEXTDRAFT_PEER_INVALID")
        if int(asked["draft_id"]) == 0:
            raise Refused(400, "Bad Request: RANDOM_ID_INVALID")
        text, _ = self._formatted(asked)
        self.drafts.append((chat, int(asked["draft_id"]), text))
        return True

    async def _send_chat_action(self, asked: Json) -> bool:
        self.typing.append(self._chat(asked))
        return True

    async def _get_file(self, asked: Json) -> Json:
        """api#getfile: up to 20 MB."""
        content = self.files.get(asked["file_id"])
        if content is None:
            raise Refused(400, "Bad Request: wrong file_id or the file is temporarily unavailable")
        if len(content) > 20 * 1024 * 1024:
            raise Refused(400, "Bad Request: file is too big")
        name = asked["file_id"]
        return {"file_id": name, "file_unique_id": "u", "file_size": len(content), "file_path": f"documents/{name}"}

    # ---- rules ------------------------------------------------------------------------------------------------------

    def _chat(self, asked: Json) -> int:
        chat = int(asked["chat_id"])
        if chat in self.migrated:
            raise Refused(
                400,
                "Bad Request: group chat was upgraded to a supergroup chat",
                migrate_to_chat_id=self.migrated[chat],
            )
        if chat in self.blocked:
            raise Refused(403, "Forbidden: bot was blocked by the user")
        if chat not in self.chats:
            raise Refused(400, "Bad Request: chat not found")
        return chat

    def _own(self, asked: Json, what: str) -> tuple[int, Shown]:
        chat = self._chat(asked)
        for shown in self.chats[chat]:
            if shown.number == int(asked["message_id"]):
                return chat, shown
        raise Refused(400, f"Bad Request: message to {what} not found")

    def _formatted(self, asked: Json) -> tuple[str, list[Json]]:
        """api#sendmessage: 1-4096 characters after entities parsing; api#messageentity: positions in UTF-16."""
        given, entities = asked["text"], asked.get("entities") or []
        for entity in entities:
            if entity["length"] <= 0 or entity["offset"] < 0 or entity["offset"] + entity["length"] > utf16(given):
                raise Refused(400, "Bad Request: ENTITY_BOUNDS_INVALID")
        text = cleaned(given, entities)
        if not text:
            raise Refused(400, "Bad Request: message text is empty")
        if utf16(text) > 4096:
            raise Refused(400, "Bad Request: message is too long")
        return text, entities

    def _as_message(self, chat: int, shown: Shown) -> Json:
        kind = "private" if chat > 0 else "supergroup"
        return {
            "message_id": shown.number,
            "from": BOT,
            "chat": {"id": chat, "type": kind},
            "date": DATE,
            "text": shown.text,
            **({"reply_markup": {"inline_keyboard": shown.keyboard}} if shown.keyboard else {}),
        }


def _keyboard(asked: Json) -> list[list[Json]]:
    """api#inlinekeyboardbutton: callback data of 1-64 bytes; td refuses a button without a text."""
    rows: list[list[Json]] = (asked.get("reply_markup") or {}).get("inline_keyboard", [])
    for button in (button for row in rows for button in row):
        if not 1 <= len(button["callback_data"].encode()) <= 64:
            raise Refused(400, "Bad Request: BUTTON_DATA_INVALID")
        if not button["text"].strip():
            raise Refused(400, 'Bad Request: can\'t parse inline keyboard button: Field "text" must be non-empty')
    return rows


def _parameters(content_type: str, body: bytes) -> Json:
    """api#making-requests: a form, or multipart for files; whatever is not text is JSON in it."""
    if content_type.startswith("multipart/"):
        parsed = BytesParser(policy=email.policy.HTTP).parsebytes(
            f"Content-Type: {content_type}\r\n\r\n".encode() + body
        )
        found: Json = {}
        for part in parsed.iter_parts():
            name = part.get_param("name", header="content-disposition")
            content = part.get_payload(decode=True)
            filename = part.get_filename()
            found[name] = (filename, content) if filename else _value(content.decode())
        return found
    return {name: _value(value, name) for name, value in parse_qsl(body.decode(), keep_blank_values=True)}


def _value(text: str, name: str = "") -> Any:
    if name == "text":
        return text
    return json.loads(text) if text[:1] in ("{", "[") else text
