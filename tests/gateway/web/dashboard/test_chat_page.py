"""The chat page by its requests: what is committed at 202, what is refused, and what the page is made of."""

from __future__ import annotations

import asyncio
import html
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from structlog.testing import capture_logs

from gateway.app.gateway import Gateway
from gateway.errors import StoreUnavailable
from gateway.messages import InboundMessage
from gateway.pipeline.local_channel import MAX_TEXT_CHARS
from gateway.web.pages import STATIC_DIR
from tests.gateway.way.conftest import House, settled

HTML = {"accept": "text/html"}
JSON = {"content-type": "application/json", "accept": "application/json"}
EVIL = "</a><script>alert(1)</script>'\""


@dataclass
class Browser:
    """A browser that is logged in, with the page's own requests."""

    gateway: Gateway
    client: httpx.AsyncClient
    form_token: str = ""

    async def page(self, path: str = "") -> str:
        response = await self.client.get(f"/dashboard/chat{path}", headers=HTML)
        assert response.status_code == 200, response.text
        fields = re.search(r"data-fields='([^']+)'", response.text)
        assert fields is not None
        self.form_token = json.loads(html.unescape(fields[1]))["form_token"]
        return response.text

    async def post(self, text: str, *, content_type: str = JSON["content-type"], **more: Any) -> httpx.Response:
        body = {"id": str(uuid4()), "text": text, "form_token": self.form_token, **more}
        headers = {**JSON, "content-type": content_type}
        return await self.client.post("/dashboard/chat/messages", content=json.dumps(body), headers=headers)

    async def answered(self, text: str, **more: Any) -> str:
        """The session in which it was said and answered."""
        response = await self.post(text, **more)
        assert response.status_code == 202, response.text
        await settled(self.gateway)
        session: str = response.json()["session"]
        return session

    async def said(self) -> int:
        """How many messages were ever taken."""
        rows = await self.gateway.store.engine.read(
            lambda connection: connection.execute("SELECT count(*) FROM inbox").fetchone()[0]
        )
        return int(rows)


@asynccontextmanager
async def browsing(house: House) -> AsyncIterator[Browser]:
    async with house.served(channels={}) as gateway:
        assert gateway.web is not None
        async with httpx.AsyncClient(base_url=gateway.web.url, trust_env=False, timeout=60) as client:
            await client.get(gateway.web.login_url, headers=HTML, follow_redirects=True)
            client.headers["origin"] = gateway.web.url.rstrip("/")
            browser = Browser(gateway, client)
            await browser.page()
            yield browser


@pytest.fixture
async def browser(tmp_path: Path) -> AsyncIterator[Browser]:
    async with browsing(House(tmp_path / "home")) as browser:
        yield browser


async def test_the_printed_link_ends_in_the_chat(browser: Browser) -> None:
    response = await browser.client.get("/", headers=HTML)
    assert (response.status_code, response.headers["location"]) == (303, "/dashboard/chat")
    page = await browser.page()
    assert re.search(r"<textarea[^>]* autofocus", page)


async def test_a_message_is_committed_when_it_is_acknowledged(browser: Browser) -> None:
    response = await browser.post("hello")
    assert response.status_code == 202
    assert await browser.said() == 1
    await settled(browser.gateway)
    assert "hello" in await browser.page(f"/{response.json()['session']}")


async def test_a_repeated_message_is_acknowledged_again_and_kept_once(browser: Browser) -> None:
    message_id = str(uuid4())
    begun = [(await browser.post("hello", id=message_id)).json() for _ in range(3)]
    assert begun[0] == begun[1] == begun[2]
    message_id = str(uuid4())
    gone_on = [(await browser.post("again", id=message_id, session=begun[0]["session"])).json() for _ in range(3)]
    assert gone_on[0] == gone_on[1] == gone_on[2]
    assert gone_on[0]["session"] == begun[0]["session"]
    assert await browser.said() == 2


@pytest.mark.parametrize(
    ("failure", "reason"),
    [(StoreUnavailable("the disk is full"), "the disk is full"), (RuntimeError("secret"), "log says why")],
)
async def test_what_could_not_be_kept_is_not_acknowledged(
    browser: Browser, monkeypatch: pytest.MonkeyPatch, failure: Exception, reason: str
) -> None:
    async def keep(message: InboundMessage) -> int:
        raise failure

    monkeypatch.setattr(browser.gateway.inbox, "accept", keep)
    response = await browser.post("hello")
    assert response.status_code == 503
    assert reason in response.json()["error"]
    assert "secret" not in response.text
    monkeypatch.undo()
    assert (await browser.post("hello")).status_code == 202


async def test_the_longest_message_is_taken_in_the_widest_spelling_and_a_longer_one_is_refused_in_words(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[str] = []

    async def keep(message: InboundMessage) -> int:
        kept.append(message.text)
        return 1

    monkeypatch.setattr(browser.gateway.inbox, "accept", keep)
    longest = "🦊" * MAX_TEXT_CHARS
    assert (await browser.post(longest)).status_code == 202
    assert kept == [longest]
    longer = await browser.post(longest + "🦊")
    assert longer.status_code == 400
    assert f"at most {MAX_TEXT_CHARS} characters" in longer.json()["error"]
    endless = await browser.post("🦊" * (2 * MAX_TEXT_CHARS))
    assert (endless.status_code, "too long" in endless.json()["error"]) == (413, True)
    assert len(kept) == 1


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
async def test_only_json_is_taken(browser: Browser, content_type: str) -> None:
    """A form of another page cannot send it."""
    response = await browser.post("hello", content_type=content_type)
    assert (response.status_code, "application/json" in response.json()["error"]) == (415, True)
    assert await browser.said() == 0


@pytest.mark.parametrize(
    ("more", "status", "reason"),
    [
        ({"form_token": "0" * 64}, 403, "load it again"),
        ({"form_token": ""}, 403, "load it again"),
        ({"session": "s_none"}, 400, "no session"),
        ({"personality": "nobody"}, 400, "nobody"),
        ({"text": " \n "}, 400, "text"),
        ({"text": 7}, 400, "text"),
        ({"id": ""}, 400, "id"),
        ({"id": "x" * 65}, 400, "id"),
        ({"attachments": [{"filename": "a", "media_type": "no", "data": ""}]}, 400, "attachments"),
    ],
)
async def test_what_cannot_be_taken_is_refused_with_the_reason(
    browser: Browser, more: dict[str, Any], status: int, reason: str
) -> None:
    response = await browser.post(**{"text": "hello", **more})
    assert (response.status_code, reason in response.json()["error"]) == (status, True), response.text
    assert await browser.said() == 0


async def test_a_choice_is_said_by_a_form_whatever_is_in_the_box(browser: Browser) -> None:
    session = await browser.answered("hello")
    form = {"form_token": browser.form_token, "session": session, "text": "half a thought", "choice": "/help"}
    response = await browser.client.post("/dashboard/chat/send", data=form, headers=HTML)
    assert (response.status_code, response.headers["location"]) == (303, f"/dashboard/chat/{session}")
    await settled(browser.gateway)
    page = await browser.page(f"/{session}")
    assert ">/help</div>" in page
    assert "half a thought" not in page


@pytest.mark.parametrize(
    ("path", "content_type"), [("messages", JSON["content-type"]), ("send", "application/x-www-form-urlencoded")]
)
async def test_a_message_that_breaks_off_is_no_fault_in_the_log(browser: Browser, path: str, content_type: str) -> None:
    cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in browser.client.cookies.jar)
    url, origin = browser.client.base_url, browser.client.headers["origin"]
    head = (
        f"POST /dashboard/chat/{path} HTTP/1.1\r\nhost: {url.netloc.decode()}\r\norigin: {origin}\r\n"
        f"cookie: {cookies}\r\ncontent-type: {content_type}\r\ncontent-length: 100\r\n\r\n{{"
    )
    with capture_logs() as logs:
        _, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(head.encode())
        await asyncio.sleep(0.1)
        writer.transport.abort()
        await asyncio.sleep(0.2)
    assert [entry for entry in logs if entry["log_level"] == "error"] == []
    assert await browser.said() == 0


async def test_without_the_operator_nothing_is_answered(browser: Browser) -> None:
    session = await browser.answered("hello")
    browser.client.cookies.clear()
    for path in ("", f"/{session}", f"/{session}/events"):
        assert (await browser.client.get(f"/dashboard/chat{path}")).status_code == 401
    assert (await browser.post("hello")).status_code == 401
    assert await browser.said() == 1


async def test_a_page_of_another_site_can_send_nothing(browser: Browser) -> None:
    browser.client.headers["origin"] = "https://evil.example.org"
    assert (await browser.post("hello")).status_code == 403
    assert await browser.said() == 0


async def test_the_pages_load_nothing_from_elsewhere_and_have_no_script_of_their_own(browser: Browser) -> None:
    session = await browser.answered("hello")
    for path in ("", f"/{session}"):
        page = await browser.page(path)
        assert re.findall(r"(?:src|href)=\"(?:https?:)?//", page) == []
        assert re.findall(r"<script(?![^>]* src=\"/static/)", page) == []
        assert " style=" not in page
        assert re.findall(r"<[^>]* on\w+=", page) == []
    scripts = [f"chat/{script.name}" for script in (STATIC_DIR / "chat").iterdir()]
    for name in ("conversation.css", "chatting.css", "written.css", *scripts):
        response = await browser.client.get(f"/static/{name}")
        assert response.status_code == 200
        text = response.text
        assert re.findall(r"(?:https?:)?//[a-z0-9-]+\.", text) == []


async def test_what_a_person_wrote_is_text_in_the_page_and_in_the_list(browser: Browser) -> None:
    session = await browser.answered(EVIL)
    for path in ("", f"/{session}"):
        page = await browser.page(path)
        assert "<script>alert" not in page
        assert "&lt;script&gt;alert(1)" in page


async def test_new_conversations_are_listed_newest_first_also_after_a_restart(tmp_path: Path) -> None:
    house = House(tmp_path / "home")
    async with browsing(house) as browser:
        first, second = await browser.answered("first  chat"), await browser.answered("second")
        assert first != second
    async with browsing(house) as browser:
        page = await browser.page()
        assert page.index("second</a>") < page.index("first chat</a>")
        assert (
            'aria-current="page"'
            in re.findall(rf'<a href="/dashboard/chat/{first}"[^>]*>', await browser.page(f"/{first}"))[0]
        )


async def test_a_conversation_that_is_none_has_no_page_and_no_stream(browser: Browser) -> None:
    for name in ("s_none", "x" * 65, "%00", "..%2f.."):
        assert (await browser.client.get(f"/dashboard/chat/{name}", headers=HTML)).status_code == 404
        assert (await browser.client.get(f"/dashboard/chat/{name}/events")).status_code == 404


@pytest.mark.parametrize("session", ["", "x" * 65])
async def test_a_stop_of_no_conversation_is_refused(browser: Browser, session: str) -> None:
    form = {"form_token": browser.form_token, "session": session}
    response = await browser.client.post("/dashboard/chat/stop", data=form, headers=HTML)
    assert response.status_code == 400
    assert "The form names no conversation." in response.text


async def test_a_page_without_a_place_hears_the_newest_only(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one whose stream breaks off right after a `reset`."""
    session = await browser.answered("one")
    await browser.answered("two", session=session)
    monkeypatch.setattr("gateway.web.dashboard.pages.chat.ROWS", 2)
    heard = await _heard(browser, session)
    assert heard[0][1]["html"].count("two") == 1
    assert [data["author"] for _, data in heard] == ["person", "agent"]


async def test_a_page_goes_on_where_it_was_and_hears_nothing_twice(browser: Browser) -> None:
    session = await browser.answered("one")
    page = await browser.page(f"/{session}")
    last = re.search(r'data-after="(\d+)"', page)
    assert last is not None
    await browser.answered("two", session=session)
    heard = await _heard(browser, session, {"last-event-id": last[1]})
    assert [(name, data["author"]) for name, data in heard] == [("message", "person"), ("message", "agent")]


async def test_earlier_messages_are_offered_where_there_are_some(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reply that an operator dropped is not shown, and hides none that are further back."""
    monkeypatch.setattr("gateway.web.dashboard.pages.chat.ROWS", 2)
    session = await browser.answered("one")
    assert '<p id="earlier" hidden>' in await browser.page(f"/{session}"), "two messages, and both are shown"
    await browser.answered("two", session=session)

    def drop(connection: Any) -> None:
        connection.execute(
            "UPDATE outbox SET state = 'dropped' WHERE id = (SELECT id FROM outbox ORDER BY created_at DESC LIMIT 1)"
        )

    await browser.gateway.store.engine.write(drop)
    page = await browser.page(f"/{session}")
    assert f'<p id="earlier"><a href="/dashboard/chat/{session}?last=10">' in page


@pytest.mark.parametrize("how", ["signed out", "too old"])
@pytest.mark.parametrize("path", ["/dashboard/chat/{}/events", "/dashboard/events", "/api/v1/chat/events?session={}"])
async def test_a_stream_ends_with_its_sign_in(browser: Browser, how: str, path: str) -> None:
    session = await browser.answered("one")
    sign_ins = browser.gateway.web._auth.sign_ins
    if how == "too old":
        (begun,) = [one.created_at for one in await sign_ins.all()]
        sign_ins._now = lambda: begun + sign_ins.max_age - timedelta(seconds=4)
    async with browser.client.stream("GET", path.format(session)) as response:
        assert response.status_code == 200
        async with asyncio.timeout(30):
            lines = response.aiter_lines()
            assert await anext(lines), "it has begun"
            if how == "signed out":
                await browser.client.post("/logout")
            async for _ in lines:
                pass


async def _heard(
    browser: Browser, session: str, headers: Mapping[str, str] | None = None
) -> list[tuple[str, dict[str, str]]]:
    """The events before `live`, and their data."""
    heard: list[tuple[str, dict[str, str]]] = []
    address = f"/dashboard/chat/{session}/events"
    async with browser.client.stream("GET", address, headers=headers) as response, asyncio.timeout(60):
        name = ""
        async for line in response.aiter_lines():
            field, _, value = line.partition(": ")
            name = value if field == "event" else name
            if field == "data" and name == "live":
                break
            if field == "data":
                heard.append((name, json.loads(value)))
    return heard


async def test_a_conversation_is_renamed_and_pinned_from_the_list_and_all_its_versions_with_it(
    browser: Browser,
) -> None:
    session = await browser.answered("the first words")
    [message, *_] = await browser.gateway.store.sessions.messages(session)
    form = {"form_token": browser.form_token, "session": session, "turn": message.turn_id, "seed": "1"}
    response = await browser.client.post("/dashboard/chat/edit", data={**form, "text": "other words"}, headers=HTML)
    branch = response.headers["location"].partition("?")[0].rpartition("/")[2]
    await settled(browser.gateway)
    assert (await browser.page()).count('href="/dashboard/chat/s_') == 1, "versions are one row"
    again = await browser.client.post("/dashboard/chat/edit", data={**form, "text": "other words"}, headers=HTML)
    assert again.headers["location"] == response.headers["location"], "a second press makes no second version"

    back = f"/dashboard/chat/{branch}"
    form = {"form_token": browser.form_token, "session": branch, "back": back}
    for title in ("", "  ", "x" * 201, "a\x00b"):
        await browser.client.post("/dashboard/chat/rename", data={**form, "title": title}, headers=HTML)
        assert "The title stays" in await browser.page()
    response = await browser.client.post("/dashboard/chat/rename", data={**form, "title": EVIL}, headers=HTML)
    assert response.headers["location"] == back
    await browser.client.post("/dashboard/chat/pin", data={**form, "pinned": "yes"}, headers=HTML)
    for one in (session, branch):
        kept = await browser.gateway.store.session_edits.one(one)
        assert kept is not None
        assert (kept.session.title, kept.is_pinned) == (EVIL, True)
    page = await browser.page()
    assert "<h3>Pinned</h3>" in page
    assert "<script>alert" not in page

    asked = await browser.client.post("/dashboard/chat/delete", data=form, headers=HTML)
    assert "with its 4 messages in 2 versions" in asked.text
    await browser.client.post("/dashboard/chat/delete", data={**form, "confirmed": "yes"}, headers=HTML)
    assert await browser.gateway.store.sessions.list_sessions() == []
    await browser.client.post("/dashboard/chat/rename", data={**form, "title": "x"}, headers=HTML)
    assert "there is no session" in await browser.page()


async def test_what_cannot_be_edited_says_why_and_keeps_the_text(browser: Browser) -> None:
    session = await browser.answered("/help")
    [[_, said], [_, answer]] = await _heard(browser, session)
    assert "Edit" not in said["html"]
    assert "Regenerate" not in answer["html"]
    turn = re.search(r'data-turn="([^"]+)"', said["html"])
    assert turn is not None
    form = {"form_token": browser.form_token, "session": session, "turn": turn[1], "seed": "1"}
    response = await browser.client.post("/dashboard/chat/edit", data={**form, "text": "my long text"}, headers=HTML)
    assert response.status_code == 409
    assert "once it is answered" in response.text
    assert ">my long text</textarea>" in response.text
    for path, data in (("edit", form), ("branch", form)):
        response = await browser.client.post(f"/dashboard/chat/{path}", data=data, headers=HTML)
        assert response.headers["location"] == f"/dashboard/chat/{session}"
        assert 'role="alert"' in await browser.page(f"/{session}")
    response = await browser.client.get(f"/dashboard/chat/{session}/edit?turn=t_none", headers=HTML)
    assert response.status_code == 303


@pytest.mark.parametrize("number", ["0", "1", "-1", "x", "99999999999999999999"])
async def test_a_file_that_is_none_is_not_found_and_no_other_session_shows_one(browser: Browser, number: str) -> None:
    file = {"filename": "a.txt", "mediaType": "text/plain", "data": "S2l3aQ=="}
    session, other = await browser.answered("read", attachments=[file]), await browser.answered("else")
    [message, *_] = await browser.gateway.store.sessions.messages(session)
    found = await browser.client.get(f"/dashboard/chat/{session}/files/{message.turn_id}/{number}")
    assert found.status_code == (200 if number == "0" else 404)
    assert found.content == b"Kiwi" or number != "0"
    assert (await browser.client.get(f"/dashboard/chat/{other}/files/{message.turn_id}/{number}")).status_code == 404
    assert (await browser.client.get(f"/dashboard/chat/{session}/files/t_none/{number}")).status_code == 404
