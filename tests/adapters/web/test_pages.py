"""The page and what it posts."""

from __future__ import annotations

import asyncio
import json
import stat
from pathlib import Path

import httpx
import pytest
from structlog.testing import capture_logs

from adapters.web import Config
from gateway.errors import StoreUnavailable
from gateway.messages import ConversationRef, OutboundMessage
from tests.adapters.web.open_page import MAIN, client_of, post
from tests.adapters.web.scripted_gateway import ScriptedGateway
from tests.conformance.adapters import soon

ID = "3f0c2f64-5717-4562-b3fc-2c963f66afa6"
HTML = {"accept": "text/html"}


@pytest.fixture
async def gateway(tmp_path: Path):
    gateway = ScriptedGateway(tmp_path / "web", config=Config(max_text_chars=50_000))
    await gateway.start()
    yield gateway
    await gateway.stop()


async def test_a_message_is_acknowledged_after_it_was_accepted(gateway: ScriptedGateway) -> None:
    response = await post(gateway.adapter, "hello", message_id=ID)
    assert (response.status_code, response.json()) == (202, {"id": ID})
    assert [message.text for message in gateway.accepted] == ["hello"]


async def test_a_repeated_message_is_acknowledged_again_and_kept_once(gateway: ScriptedGateway) -> None:
    responses = [await post(gateway.adapter, "hello", message_id=ID) for _ in range(3)]
    assert [response.status_code for response in responses] == [202, 202, 202]
    assert len(gateway.accepted) == 1
    assert len(await gateway.log.read(MAIN)) == 1


@pytest.mark.parametrize(
    ("failure", "reason"),
    [(StoreUnavailable("the disk is full"), "the disk is full"), (RuntimeError("secret"), "log says why")],
)
async def test_what_could_not_be_kept_is_not_acknowledged(
    gateway: ScriptedGateway, failure: Exception, reason: str
) -> None:
    gateway.failure = failure
    with capture_logs():
        response = await post(gateway.adapter, "hello", message_id=ID)
    assert response.status_code == 503
    assert reason in response.json()["error"]
    assert "secret" not in response.text
    gateway.failure = None
    assert (await post(gateway.adapter, "hello", message_id=ID)).status_code == 202


async def test_before_run_and_after_its_end_nothing_is_taken_and_the_page_says_so(tmp_path: Path) -> None:
    gateway = ScriptedGateway(tmp_path / "web")
    for _ in range(2):
        response = await post(gateway.adapter, "hello")
        assert response.status_code == 503
        assert "starting" in response.json()["error"]
        async with client_of(gateway.adapter) as client:
            page = await client.get("/", headers=HTML)
        assert (page.status_code, page.headers["refresh"]) == (503, "1")
        await gateway.start()
        assert (await post(gateway.adapter, "hello")).status_code == 202
        await gateway.stop()


async def test_without_the_operator_nothing_is_answered(gateway: ScriptedGateway) -> None:
    """The login stands before it; should that ever be missing, the channel is closed and not open."""
    transport = httpx.ASGITransport(gateway.adapter.http_app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        for method, path in (("GET", "/"), ("GET", "/events"), ("POST", "/messages"), ("GET", "/assets/chat.js")):
            assert (await client.request(method, path)).status_code == 401
    assert gateway.accepted == []


async def test_a_message_of_5_mb_is_refused_with_a_clear_text_and_without_keeping_it(gateway: ScriptedGateway) -> None:
    response = await post(gateway.adapter, "x" * 5_000_000)
    assert response.status_code == 413
    assert "50,000 characters at most" in response.json()["error"]
    assert gateway.accepted == []


async def test_the_longest_message_is_taken_in_the_widest_spelling(gateway: ScriptedGateway) -> None:
    body = json.dumps({"id": ID, "conversation": "main", "text": "🦊" * 50_000}, ensure_ascii=True)
    async with client_of(gateway.adapter) as client:
        response = await client.post("/messages", content=body, headers={"content-type": "application/json"})
    assert response.status_code == 202
    assert gateway.accepted[0].text == "🦊" * 50_000


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
async def test_only_json_is_taken(gateway: ScriptedGateway, content_type: str) -> None:
    """A form of another page cannot send it."""
    body = json.dumps({"id": ID, "conversation": "main", "text": "hello"})
    async with client_of(gateway.adapter) as client:
        response = await client.post("/messages", content=body, headers={"content-type": content_type})
    assert response.status_code == 415
    assert gateway.accepted == []


async def test_a_message_that_is_being_kept_at_the_stop_is_not_acknowledged(tmp_path: Path) -> None:
    gateway = ScriptedGateway(tmp_path / "web")
    await gateway.start()
    entered = asyncio.Event()

    async def hang(message: object) -> None:
        entered.set()
        await asyncio.Event().wait()

    gateway.adapter._accept = hang
    posting = asyncio.create_task(post(gateway.adapter, "hello"))
    await soon(entered.wait())
    await gateway.stop()
    with capture_logs():
        response = await soon(posting)
    assert response.status_code == 503


async def test_the_page_loads_nothing_from_elsewhere_and_has_no_inline_script(gateway: ScriptedGateway) -> None:
    async with client_of(gateway.adapter) as client:
        page = (await client.get("/", headers=HTML)).text
        style = (await client.get("/assets/chat.css")).text
        script = (await client.get("/assets/chat.js")).text
    for text in (page, style, script):
        assert "http://" not in text
        assert "https://" not in text
        assert "//cdn" not in text
    assert page.count("<script") == page.count('<script type="module" src="/assets/chat.js"></script>') == 1
    assert " style=" not in page
    assert " on" not in page.replace(" on ", " ").replace(" one", " ")


async def test_a_title_of_a_person_is_text_in_the_page(gateway: ScriptedGateway) -> None:
    evil = "</a><script>alert(1)</script>'\""
    assert (await post(gateway.adapter, evil, conversation="evil")).status_code == 202
    async with client_of(gateway.adapter) as client:
        page = (await client.get("/c/evil", headers=HTML)).text
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page


async def test_new_chats_have_ids_of_their_own_and_are_listed_after_a_restart(tmp_path: Path) -> None:
    gateway = ScriptedGateway(tmp_path / "web")
    await gateway.start()
    async with client_of(gateway.adapter) as client:
        places = [(await client.get("/new")).headers["location"] for _ in range(2)]
        assert places[0] != places[1]
        for place, text in zip(places, ("first  chat", "second"), strict=True):
            await post(gateway.adapter, text, conversation=place.removeprefix("/c/"))
    await gateway.stop()
    listing = tmp_path / "web" / "conversations"
    assert stat.S_IMODE(listing.stat().st_mode) == 0o600
    assert "first" not in listing.read_text(), "what was said is in the log alone"
    with listing.open("a") as file:
        file.write("../../etc\ntorn li")
    again = ScriptedGateway(tmp_path / "web", log=gateway.log)
    await again.start()
    async with client_of(again.adapter) as client:
        page = (await client.get("/", headers=HTML)).text
    assert page.index("second</a>") < page.index("first chat</a>")
    assert "etc" not in page
    await again.stop()


@pytest.mark.parametrize("conversation", ["a b", "x" * 65, "%00", "..%2f..", "ü"])
async def test_a_conversation_that_cannot_be_has_no_page_and_no_stream(
    gateway: ScriptedGateway, conversation: str
) -> None:
    async with client_of(gateway.adapter) as client:
        assert (await client.get(f"/c/{conversation}", headers=HTML)).status_code == 404
        assert (await client.get(f"/events?conversation={conversation}")).status_code == 400


async def test_a_list_that_cannot_be_written_costs_no_message(tmp_path: Path) -> None:
    (tmp_path / "web").write_text("a file where the directory should be")
    gateway = ScriptedGateway(tmp_path / "web")
    gateway.adapter._pages._conversations._ids = {}
    await gateway.start()
    with capture_logs() as logs:
        assert (await post(gateway.adapter, "hello")).status_code == 202
    assert any("list" in entry["event"] for entry in logs)
    await gateway.stop()


async def test_under_another_path_every_address_of_the_page_follows(gateway: ScriptedGateway) -> None:
    sent: list[dict[str, object]] = []

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    class User:
        is_authenticated = True

    scope = {"type": "http", "method": "GET", "path": "/chat/", "root_path": "/chat", "headers": [], "user": User()}
    await gateway.adapter.http_app(scope | {"query_string": b"", "scheme": "http"}, None, send)
    body = b"".join(message.get("body", b"") for message in sent).decode()  # type: ignore[misc]
    assert 'data-base="/chat"' in body
    assert 'href="/chat/assets/chat.css"' in body


async def test_send_is_the_word_that_there_is_news_and_nothing_to_fail(gateway: ScriptedGateway) -> None:
    nowhere = ConversationRef(channel="web", conversation="nobody-looks")
    message = OutboundMessage(id="out-1", conversation=nowhere, text="hello")
    assert (await gateway.adapter.send(message)).message_ids == ("out-1",)


def test_the_configuration_refuses_what_it_does_not_know() -> None:
    with pytest.raises(ValueError, match="max_text_chars"):
        Config(max_text_chars=0)
    with pytest.raises(ValueError, match="nonsense"):
        Config.model_validate({"nonsense": 1})
