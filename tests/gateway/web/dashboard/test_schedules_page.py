"""The page of schedules by its requests: what is wrong stands beside its field, and a zone may be gone."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from gateway.app.gateway import Gateway
from gateway.sdk.models.chat import SendMessage
from gateway.sdk.models.schedules import NewSchedule
from gateway.services.caller import operator
from tests.gateway.way.conftest import House, settled
from tests.scripted_model import ScriptedModel

OPERATOR = operator("test")
HTML = {"accept": "text/html"}
PAGE = "/dashboard/schedules"


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    """In which the operator has written."""
    async with House(tmp_path / "home").served(ScriptedModel("hello"), channels={}) as running:
        await running.chat.send(OPERATOR, SendMessage(conversation="main", text="hi"))
        await settled(running)
        yield running


@pytest.fixture
async def owner(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    assert gateway.web is not None
    async with httpx.AsyncClient(base_url=gateway.web.url, trust_env=False, timeout=60) as client:
        await client.get(gateway.web.login_url, headers=HTML, follow_redirects=True)
        client.headers.update({**HTML, "origin": gateway.web.url.rstrip("/")})
        yield client


async def sent(owner: httpx.AsyncClient, **typed: str) -> str:
    """The form of a new schedule, as it comes back with what is wrong."""
    token = re.search(r'name="form_token" value="([^"]+)"', (await owner.get(f"{PAGE}/new")).text)
    assert token is not None
    answer = await owner.post(f"{PAGE}/new", data={"form_token": token[1], "mode": "say", **typed})
    assert answer.status_code == 409, answer.text
    return answer.text


async def test_what_is_wrong_stands_beside_its_field_in_the_words_of_the_form(owner: httpx.AsyncClient) -> None:
    page = await sent(owner, text="Tea", rule="every_days", every_days="1", zone="Europe/Berln")
    assert '<p class="error" id="time_of_day-problem">Days needs it, such as 08:00</p>' in page
    assert re.search(r'<input id="time_of_day"[^>]* aria-describedby=" ?time_of_day-problem" aria-invalid="true"', page)
    assert '<p class="error" id="zone-problem">&#39;Europe/Berln&#39; is no time zone; did you mean ' in page
    assert re.search(r'<input id="zone"[^>]* aria-describedby="zone-hint zone-problem" aria-invalid="true"', page)
    page = await sent(owner, text=" ", rule="in_minutes")
    assert '<p class="error" id="text-problem">it is empty</p>' in page
    assert '<p class="error" id="in_minutes-problem">it is empty</p>' in page
    assert "no direct chat &#39;mail&#39; here" in await sent(
        owner, text="Tea", rule="cron", cron="0 8 * * *", to="mail"
    )
    assert "Text: it is empty; Minutes from now: it is empty" in page


async def test_one_whose_zone_is_gone_from_the_machine_is_listed_shown_and_given_another(
    gateway: Gateway, owner: httpx.AsyncClient
) -> None:
    new = NewSchedule(text="Water the plants", at="2027-12-24T18:00", zone="UTC")
    number = (await gateway.services.schedules.created(OPERATOR, new)).id
    before = await gateway.store.schedules.schedule(number)
    assert before is not None
    assert await gateway.store.schedules.replace(replace(before, zone="Mars/Olympus"), before)
    for path in ("", f"/of/{number}"):
        answer = await owner.get(f"{PAGE}{path}")
        assert (answer.status_code, "Fri, 24 Dec 2027, 18:00 UTC" in answer.text) == (200, True), path
    form = (await owner.get(f"{PAGE}/of/{number}/change")).text
    assert 'value="2027-12-24T18:00"' in form
    assert 'value="Mars/Olympus"' in form


async def test_a_long_history_has_pages(gateway: Gateway, owner: httpx.AsyncClient) -> None:
    number = (await gateway.services.schedules.created(OPERATOR, NewSchedule(text="Tea", every_minutes=5))).id
    columns = "schedule_id, due_at, begun_at, outcome, turn_id, note, is_by_hand"
    sql = f"INSERT INTO occurrences ({columns}) VALUES (?, ?, 0, 'done', '', ?, 0)"  # noqa: S608 (names of ours)
    rows = [(number, 1_000 * due_s, f"<i>note {due_s}.") for due_s in range(1, 52)]
    await gateway.store.engine.write(lambda connection: connection.executemany(sql, rows))
    page = (await owner.get(f"{PAGE}/of/{number}")).text
    assert ("&lt;i&gt;note 2." in page, "note 1." in page) == (True, False)
    assert f'href="{PAGE}/of/{number}?before=2000" rel="next"' in page
    page = (await owner.get(f"{PAGE}/of/{number}?before=2000")).text
    assert ("note 2." in page, "note 1." in page) == (False, True)
    assert f'href="{PAGE}/of/{number}" rel="prev"' in page
