"""What waits for a yes, by HTTP: listed, shown whole, decided once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from gateway.app.gateway import Gateway
from gateway.sdk.models.chat import SendMessage
from gateway.store.clock import wall_ms
from gateway.store.engine import statement
from gateway.tools import own as tools
from gateway.tools.contract import Arguments, Tool, ToolContext
from tests.gateway.way.conftest import House, settled
from tests.scripted_model import ScriptedModel, call

from .conftest import OPERATOR, WAIT_S


class To(Arguments):
    to: str


@pytest.fixture
async def asking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Gateway, httpx.AsyncClient, list[str]]]:
    """A gateway in which two calls wait, and what was sent."""
    sent: list[str] = []

    async def send(arguments: To, _context: ToolContext) -> str:
        sent.append(arguments.to)
        return "sent"

    post = Tool(name="post", description="Sends.", arguments=To, call=send, effect="act", destination=("to",))
    monkeypatch.setattr(tools, "CURRENT_TIME", post)
    calls = [call("post", f'{{"to": "{name}"}}', id=name) for name in ("ada", "ben")]
    house = House(tmp_path / "home")
    async with house.served(ScriptedModel(calls, "They will be sent.", "It is sent.")) as gateway:
        await gateway.supervisor.all_tried.wait()
        await gateway.chat.send(OPERATOR, SendMessage(conversation="main", text="post them"))
        await settled(gateway)
        headers = {"authorization": f"Bearer {(gateway.home / 'web-token').read_text().strip()}"}
        base_url = gateway.web.url + "api/v1"
        async with httpx.AsyncClient(base_url=base_url, headers=headers, trust_env=False, timeout=WAIT_S) as client:
            yield gateway, client, sent


async def test_what_waits_is_listed_and_a_yes_has_it_done_once(
    asking: tuple[Gateway, httpx.AsyncClient, list[str]],
) -> None:
    gateway, client, sent = asking
    items = (await client.get("/approvals")).json()["items"]
    assert [(one["id"], one["tool"], one["arguments"], one["state"]) for one in items] == [
        (1, "post", '{"to":"ada"}', "waiting"), (2, "post", '{"to":"ben"}', "waiting"),
    ]  # fmt: skip
    decided = await client.post("/approvals/1/yes")
    assert (decided.status_code, decided.json()["decidedBy"]) == (200, "command-line")
    await settled(gateway)
    assert sent == ["ada"]
    assert (await client.get("/approvals/1")).json()["state"] == "done"
    assert (await client.post("/approvals/1/yes")).status_code == 409
    assert (await client.post("/approvals/2/no")).json()["state"] == "refused"
    assert (await client.post("/approvals/2/yes")).status_code == 409
    assert (await client.get("/approvals")).json()["items"] == []
    assert (await client.post("/approvals/9/yes")).status_code == 404
    await settled(gateway)
    assert sent == ["ada"]


async def test_a_yes_that_grants_is_listed_until_it_is_taken_back(
    asking: tuple[Gateway, httpx.AsyncClient, list[str]],
) -> None:
    gateway, client, sent = asking
    assert (await client.post("/approvals/1/yes", json={"grant": "for ever"})).status_code == 422
    assert (await client.post("/approvals/1/yes", json={"grant": "always"})).status_code == 200
    await settled(gateway)
    assert sent == ["ada"]
    [grant] = (await client.get("/approvals/grants")).json()["items"]
    assert (grant["tool"], grant["destination"], grant["session"], grant["until"], grant["grantedBy"]) == (
        "post", '{"to":"ada"}', None, None, "command-line",
    )  # fmt: skip
    assert (await client.delete(f"/approvals/grants/{grant['id']}")).status_code == 204
    assert (await client.get("/approvals/grants")).json()["items"] == []
    assert (await client.delete(f"/approvals/grants/{grant['id']}")).status_code == 404


async def test_what_has_expired_is_asked_again(asking: tuple[Gateway, httpx.AsyncClient, list[str]]) -> None:
    gateway, client, sent = asking
    assert (await client.post("/approvals/1/again")).status_code == 409, "it waits"
    assert (await client.post("/approvals/9/again")).status_code == 404
    await gateway.store.engine.write(statement("UPDATE approvals SET expires_at = asked_at WHERE id = ?", (1,)))
    late = await client.post("/approvals/1/yes")
    assert (late.status_code, "has expired; it can be asked again" in late.text) == (409, True)
    assert (await client.get("/approvals/1")).json()["state"] == "expired"
    await gateway.store.engine.write(statement("UPDATE approvals SET expires_at = ? WHERE id = ?", (wall_ms(), 1)))
    asked = await client.post("/approvals/1/again")
    assert (asked.status_code, asked.json()["state"], asked.json()["arguments"]) == (200, "waiting", '{"to":"ada"}')
    number = asked.json()["id"]
    assert (await client.post("/approvals/1/again")).json()["id"] == number
    assert (await client.post(f"/approvals/{number}/yes")).status_code == 200
    await settled(gateway)
    assert sent == ["ada"]
    assert (await client.post("/approvals/1/again")).status_code == 409
