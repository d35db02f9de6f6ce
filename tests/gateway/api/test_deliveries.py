"""The queues by HTTP: a message that was given up is listed, tried again, and dropped."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from gateway.app.gateway import Gateway
from gateway.sdk.models.chat import SendMessage
from tests.gateway.way.conftest import House, settled
from tests.scripted_model import ScriptedModel

from .conftest import OPERATOR, WAIT_S

BOOM = [RuntimeError("boom")]


@pytest.fixture
async def failing(tmp_path: Path) -> AsyncIterator[tuple[Gateway, httpx.AsyncClient]]:
    """A gateway that has given up four messages; the fifth time it answers."""
    model = ScriptedModel(BOOM, BOOM, BOOM, BOOM, "fine")
    house = House(tmp_path / "home")
    async with house.served(model, delivery={"max_attempts": 1}) as gateway:
        await gateway.supervisor.all_tried.wait()
        for number in range(4):
            await gateway.chat.send(OPERATOR, SendMessage(conversation="main", text=f"poison {number}"))
            await settled(gateway)
        headers = {"authorization": f"Bearer {(gateway.home / 'web-token').read_text().strip()}"}
        base_url = gateway.web.url + "api/v1/deliveries"
        async with httpx.AsyncClient(base_url=base_url, headers=headers, trust_env=False, timeout=WAIT_S) as client:
            yield gateway, client


async def test_dead_letters_are_listed_newest_first_in_pages(failing: tuple[Gateway, httpx.AsyncClient]) -> None:
    _, client = failing
    first = (await client.get("/inbox", params={"limit": 3})).json()
    assert [row["text"] for row in first["items"]] == ["poison 3", "poison 2", "poison 1"]
    assert {row["state"] for row in first["items"]} == {"dead"}
    assert "boom" in first["items"][0]["error"]
    rest = (await client.get("/inbox", params={"limit": 3, "cursor": first["nextCursor"]})).json()
    assert ([row["text"] for row in rest["items"]], rest["nextCursor"]) == (["poison 0"], None)
    for params in ({"state": "waiting"}, {"channel": "mail"}):
        assert (await client.get("/inbox", params=params)).json()["items"] == []
    assert (await client.get("/outbox")).json()["items"] == []
    of_the_inbox = {"cursor": first["nextCursor"]}
    assert (await client.get("/outbox", params=of_the_inbox)).status_code == 400


async def test_a_dead_letter_is_tried_again_from_the_start_and_answered(
    failing: tuple[Gateway, httpx.AsyncClient],
) -> None:
    gateway, client = failing
    [dead] = (await client.get("/inbox", params={"limit": 1})).json()["items"]
    again = await client.post(f"/inbox/{dead['id']}/retry")
    assert again.json()["state"] in ("waiting", "running", "done")
    await settled(gateway)
    row = (await client.get(f"/inbox/{dead['id']}")).json()
    assert (row["state"], row["error"]) == ("done", None)
    refused = await client.post(f"/inbox/{dead['id']}/retry")
    assert (refused.status_code, refused.json()["detail"]) == (
        409,
        f"message {dead['id']} is done; only dead letters are tried again",
    )


async def test_a_dropped_message_is_kept_and_tried_no_more(failing: tuple[Gateway, httpx.AsyncClient]) -> None:
    _, client = failing
    [dead] = (await client.get("/inbox", params={"limit": 1})).json()["items"]
    dropped = (await client.post(f"/inbox/{dead['id']}/drop")).json()
    assert (dropped["state"], dropped["error"], dropped["text"]) == ("done", "dropped by the operator", "poison 3")
    assert (await client.post(f"/inbox/{dead['id']}/drop")).status_code == 409
    assert len((await client.get("/inbox")).json()["items"]) == 3


async def test_what_is_not_there_is_said_so(failing: tuple[Gateway, httpx.AsyncClient]) -> None:
    _, client = failing
    answer = await client.get("/outbox/999999")
    assert (answer.status_code, answer.json()["detail"]) == (404, "the outbox has no message with the id 999999")
    assert (await client.get("/letters")).status_code == 422
