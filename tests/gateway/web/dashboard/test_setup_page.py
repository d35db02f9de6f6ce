"""The set-up by its requests, as a browser without scripts makes them; it can be left and come back to at any step."""

from __future__ import annotations

import asyncio
import re
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from gateway.app.gateway import Gateway
from gateway.services.caller import operator
from tests.fake_channel import FakeChannel
from tests.fresh_gateway import fresh_gateway
from tests.gateway.way.conftest import settled
from tests.model_formats import Failure
from tests.model_server import ModelServer

HTML = {"accept": "text/html"}
KEY = "canary-of-the-key"
SECRET = "secret.api_key"
FAKE = "channels:\n  phone:\n    kind: tests.fake_channel\n    access: pairing\n"


class Visitor:
    """A browser without scripts, logged in by the link that is printed."""

    def __init__(self, gateway: Gateway, client: httpx.AsyncClient) -> None:
        self.gateway = gateway
        self.client = client
        self.token = ""

    async def come(self) -> str:
        """Open the link; where it ends."""
        assert self.gateway.web is not None
        answer = await self.client.get(self.gateway.web.login_url, headers=HTML, follow_redirects=True)
        self.client.headers.update({**HTML, "origin": self.gateway.web.url.rstrip("/")})
        self._keep(answer.text)
        return answer.url.path

    async def page(self, path: str, status: int = 200) -> str:
        """A page as text, without its tags."""
        return self._keep((await self._open(path, status)).text)

    async def html(self, path: str) -> str:
        return (await self._open(path, 200)).text

    async def place(self, path: str) -> str:
        """Where an address leads."""
        return (await self._open(path, 200)).url.path

    async def send(self, path: str, status: int = 200, **typed: str) -> httpx.Response:
        data = {"form_token": self.token, **typed}
        answer = await self.client.post(f"/dashboard{path}", data=data, follow_redirects=True)
        assert answer.status_code == status, answer.text
        assert KEY not in answer.text
        return answer

    async def _open(self, path: str, status: int) -> httpx.Response:
        answer = await self.client.get(path, follow_redirects=True)
        assert answer.status_code == status, answer.text
        return answer

    def _keep(self, html: str) -> str:
        found = re.search(r'name="form_token" value="([^"]+)"', html)
        self.token = found[1] if found else self.token
        return said(html)


def said(html: str) -> str:
    """The words of the main part of a page."""
    main = re.search(r"<main.*</main>", html, re.DOTALL)
    text = re.sub(r"<datalist.*?</datalist>|<[^>]+>", " ", main[0] if main else html, flags=re.DOTALL)
    return unescape(re.sub(r"\s+", " ", text))


@asynccontextmanager
async def visiting(home: Path) -> AsyncIterator[Visitor]:
    async with fresh_gateway(home) as gateway:
        assert gateway.web is not None
        async with httpx.AsyncClient(base_url=gateway.web.url, trust_env=False, timeout=60) as client:
            yield Visitor(gateway, client)


@pytest.fixture
async def visitor(tmp_path: Path) -> AsyncIterator[Visitor]:
    async with visiting(tmp_path / "home") as visitor:
        assert await visitor.come() == "/dashboard/setup/you"
        yield visitor


def config_of(visitor: Visitor) -> Any:
    return yaml.safe_load((visitor.gateway.home / "config.yaml").read_text())


async def test_the_first_visit_begins_with_the_first_step_and_nothing_is_written_by_looking(visitor: Visitor) -> None:
    for step in ("you", "model", "channel", "message", "backup", "done"):
        await visitor.page(f"/dashboard/setup/{step}")
    assert not (visitor.gateway.home / "config.yaml").exists()
    assert '<a href="/dashboard/setup"' in await visitor.html("/dashboard/memory"), "the navigation leads back"


async def test_who_one_is_is_kept_and_a_zone_that_is_none_is_said_so_beside_it(visitor: Visitor) -> None:
    page = (await visitor.send("/setup/you", 409, name="Ada", zone="Europe/Berln")).text
    assert "did you mean Europe/Berlin" in said(page)
    assert re.search(r'<input id="zone"[^>]* value="Europe/Berln" aria-describedby="zone-hint zone-problem"', page)
    assert 'value="Ada"' in page, "nothing that was typed is lost"
    assert await visitor.place("/dashboard/setup") == "/dashboard/setup/you"
    page = (await visitor.send("/setup/you", 409, name=" ", zone="Europe/Berlin")).text
    assert "it is empty" in said(page)
    answer = await visitor.send("/setup/you", name="Ada", zone="europe/berlin")
    assert answer.url.path == "/dashboard/setup/model"
    assert config_of(visitor) == {"time_zone": "Europe/Berlin"}
    assert visitor.gateway.config.time_zone == "Europe/Berlin"
    person = await visitor.gateway.services.people.operator(operator("test"))
    assert person is not None
    assert (person.name, person.role, person.is_operator) == ("Ada", "owner", True)
    assert 'value="Ada"' in await visitor.html("/dashboard/setup/you")


async def test_a_model_is_chosen_from_those_of_the_server_tried_and_saved_with_its_key_in_a_file(
    visitor: Visitor,
) -> None:
    async with ModelServer() as server:
        typed = {"server": "address", "base_url": server.url}
        page = (await visitor.send("/setup/model", do="list", **{SECRET: KEY}, **typed)).text
        assert re.findall(r"<option[^>]*>(echo-\d)", page) == ["echo-1", "echo-2"]
        assert f'value="{server.openai_url}"' in page, "the address with the /v1 that it lacked"
        kept = re.search(r'name="draft" value="([^"]+)"', page)
        assert kept is not None
        answer = await visitor.send("/setup/model", do="try", draft=kept[1], model="echo-2", **typed)
    assert answer.url.path == "/dashboard/setup/model"
    told = r"It answered “You said: Say hello in one word\.” in \d+\.\d s \(\d+ tokens in and \d+ out, no price known\)"
    assert re.search(told, said(answer.text))
    assert server.requests[-1].headers["authorization"] == f"Bearer {KEY}"
    config = config_of(visitor)
    place = visitor.gateway.home / config["models"]["main"].pop("api_key")["file"]
    assert (place.read_text().strip(), stat.S_IMODE(place.stat().st_mode)) == (KEY, 0o600)
    entry = {"provider": "openai", "model": "echo-2", "base_url": server.openai_url}
    assert config == {"model": "main", "models": {"main": entry}}
    assert "main answers" in await visitor.page("/dashboard/setup/model")


async def test_a_model_that_does_not_answer_says_so_beside_the_field_and_loses_nothing_that_was_typed(
    visitor: Visitor,
) -> None:
    async with ModelServer() as server:
        typed = {"server": "address", "base_url": server.openai_url, "model": "echo-1", "do": "try"}
        server.script([Failure(status=401)])
        page = (await visitor.send("/setup/model", 409, **{SECRET: KEY}, **typed)).text
        assert re.search(r'id="api_key-problem"[^>]*>The API key was refused \(HTTP 401\)', page)
        assert re.search(r'<input id="api_key"[^>]* aria-invalid="true"', page)
        assert f'value="{server.openai_url}"' in page
        assert 'value="echo-1"' in page
        kept = re.search(r'name="draft" value="([^"]+)"', page)
        assert kept is not None
        server.script([Failure(status=404)])
        page = (await visitor.send("/setup/model", 409, **{**typed, "draft": kept[1], "model": "echo_1"})).text
        assert re.search(r'id="model-problem"[^>]*>There is no model .*did you mean', page)
    assert server.requests[-1].headers["authorization"] == f"Bearer {KEY}", "the key that was typed first"
    page = (await visitor.send("/setup/model", 409, **typed)).text
    assert re.search(r'id="base_url-problem"[^>]*>The connection to .* Start the server, or correct', page)
    page = (await visitor.send("/setup/model", 409, server="address", model="echo-1", do="try")).text
    assert re.search(r'id="base_url-problem"[^>]*>it is empty', page)
    page = (await visitor.send("/setup/model", 409, server="openai", model="gpt", do="try")).text
    assert re.search(r'id="api_key-problem"[^>]*>missing; type the key', page)
    page = (await visitor.send("/setup/model", 409, **{SECRET: KEY}, server="openai", model=" ", do="try")).text
    assert re.search(r'id="model-problem"[^>]*>it is empty', page)
    assert not (visitor.gateway.home / "config.yaml").exists()


async def test_a_server_that_is_down_can_be_kept_all_the_same(visitor: Visitor) -> None:
    async with ModelServer() as server:
        url = server.url
    typed = {"server": "address", "base_url": url, "model": "echo-1"}
    page = (await visitor.send("/setup/model", 409, do="try", **typed)).text
    assert "Use it without an answer" in page
    await visitor.send("/setup/model", do="save", **typed)
    assert config_of(visitor)["models"]["main"]["base_url"] == f"{url}/v1"


async def test_the_library_that_is_missing_is_named_with_the_command_that_installs_it(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.agent.providers.models.HTTP_LIBRARY", "no_such_library")
    typed = {"server": "openai", SECRET: KEY, "model": "gpt", "do": "try"}
    page = said((await visitor.send("/setup/model", 409, **typed)).text)
    assert re.search(r"the libraries for real models are not installed; run `\S+ -m pip install ", page)


async def test_a_step_that_was_skipped_is_not_asked_for_again_and_can_be_done_later(visitor: Visitor) -> None:
    answer = await visitor.send("/setup/skip", step="you")
    assert answer.url.path == "/dashboard/setup/model"
    assert await visitor.place("/dashboard/setup") == "/dashboard/setup/model"
    for step in ("model", "channel", "message", "backup"):
        answer = await visitor.send("/setup/skip", step=step)
    assert answer.url.path == "/dashboard/setup/done"
    await visitor.send("/setup/you", name="Ada", zone="UTC")
    assert "Who you are (done)" in await visitor.page("/dashboard/setup/done")
    assert (await visitor.send("/setup/skip", step="nothing")).url.path == "/dashboard/setup/done"


async def test_the_set_up_that_was_begun_is_taken_up_after_a_restart_where_it_was(tmp_path: Path) -> None:
    async with visiting(tmp_path / "home") as visitor:
        assert await visitor.come() == "/dashboard/setup/you"
        await visitor.send("/setup/you", name="Ada", zone="UTC")
        await visitor.send("/setup/skip", step="model")
    async with visiting(tmp_path / "home") as visitor:
        assert await visitor.come() == "/dashboard/setup/channel"


async def test_a_set_up_that_is_put_aside_is_in_nobodys_way_and_still_there(tmp_path: Path) -> None:
    async with visiting(tmp_path / "home") as visitor:
        await visitor.come()
        answer = await visitor.send("/setup/end", how="aside")
        assert answer.url.path == "/dashboard/chat"
        assert "It is under Settings" in answer.text
        assert '<a href="/dashboard/setup"' not in await visitor.html("/dashboard/memory")
        assert 'href="/dashboard/setup"' in await visitor.html("/dashboard/settings")
        assert await visitor.place("/dashboard/setup") == "/dashboard/setup/you"
    async with visiting(tmp_path / "home") as visitor:
        assert await visitor.come() == "/dashboard/chat"


async def test_who_has_a_configuration_already_is_not_led_there(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "home" / "config.yaml").write_text("personality: engineer\n")
    async with visiting(tmp_path / "home") as visitor:
        assert await visitor.come() == "/dashboard/chat"
        assert '<a href="/dashboard/setup"' in await visitor.html("/dashboard/memory"), "there is still no model"


async def test_the_first_message_makes_the_owner_and_is_shown_with_its_answer(visitor: Visitor) -> None:
    gateway = visitor.gateway
    assert "There is no channel yet" in await visitor.page("/dashboard/setup/message")
    (gateway.home / "config.yaml").write_text(FAKE)
    assert not (await gateway.reloading.reload()).problems
    [phone] = gateway.adapters
    assert isinstance(phone, FakeChannel)
    await phone.connected()
    page = await visitor.page("/dashboard/setup/message")
    assert "Nothing yet. What you send appears here." in page
    [code] = re.findall(r"/owner ([A-Z0-9]{4}-[A-Z0-9]{4})", page)
    assert code in await visitor.page("/dashboard/setup/message"), "looking again makes no other code"
    await phone.deliver(phone.message("hello?", user="2", conversation="c2"))
    await settled(gateway)
    page = await visitor.page("/dashboard/setup/message")
    assert "Person 2 wrote on phone without the code, and waits to be let in." in page
    await phone.deliver(phone.message(f"/owner {code}"))
    await settled(gateway)
    page = await visitor.page("/dashboard/setup/message")
    assert "Person 1 is the owner" in page
    assert "You are an owner" in page
    assert code not in page
    await phone.deliver(phone.message("repeat after me: tea"))
    await settled(gateway)
    page = await visitor.page("/dashboard/setup/message")
    assert re.search(r"repeat after me: tea .* tea", page)
    assert "The first message (done)" in page
    answer = await visitor.send("/setup/message/link")
    assert "the same person as you here" in said(answer.text)
    person = await gateway.services.people.operator(operator("test"))
    assert person is not None
    assert {one.key for one in person.accounts} >= {"local:operator", "fake:1"}


async def test_a_backup_is_made_shown_and_downloaded(visitor: Visitor) -> None:
    assert "There is no backup yet." in await visitor.page("/dashboard/setup/backup")
    await visitor.send("/setup/backup")
    async with asyncio.timeout(60):
        while "A backup is being made" in (page := await visitor.page("/dashboard/setup/backup")):
            await asyncio.sleep(0.05)
    assert "A backup (done)" in page
    [file] = (visitor.gateway.home / "backups").iterdir()
    assert str(file) in page
    assert f"{file.stat().st_size / 1024:.1f} KiB, written and read back." in page
    answer = await visitor.client.get(f"/dashboard/backups/file/{file.name}")
    assert answer.content == file.read_bytes()
    assert file.name in answer.headers["content-disposition"]
    page = await visitor.page("/dashboard/backups")
    assert f"ethos restore {file} --replace" in page
    for name in ("ethos-20260101T000000Z.tar.gz", "..%2F..%2Fweb-token", "web-token"):
        assert (await visitor.client.get(f"/dashboard/backups/file/{name}")).status_code in (404, 409)


async def test_a_backup_that_cannot_be_made_says_why(visitor: Visitor) -> None:
    (visitor.gateway.home / "backups").write_text("a file")
    await visitor.send("/backups/make")
    async with asyncio.timeout(60):
        while "A backup is being made" in (page := await visitor.page("/dashboard/backups")):
            await asyncio.sleep(0.05)
    assert re.search(r"The backup could not be made\. .*backups", page)
