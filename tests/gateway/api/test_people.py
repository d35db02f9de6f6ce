"""People by HTTP: who is known, who is let in and as what, who is whom; and whom a key does not see."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.app.gateway import Gateway
from gateway.people.access_records import SetRank
from tests.fake_channel import FakeChannel
from tests.gateway.way.conftest import House, settled
from tests.scripted_model import ScriptedModel

from .conftest import OPERATOR, WAIT_S
from .test_idempotency import forgets_all

CODE = re.compile(r"\b[A-Z0-9]{4}-[A-Z0-9]{4}\b")
FAKE = {"kind": "tests.fake_channel", "access": "pairing"}


@dataclass(frozen=True)
class Door:
    """A running gateway, the channel at which strangers knock, and its API."""

    gateway: Gateway
    channel: FakeChannel
    client: httpx.AsyncClient
    client_with: Callable[[str], httpx.AsyncClient]

    async def knocks(self, user: str, text: str = "hello") -> str:
        """A stranger writes; the code that they are told."""
        answers = await self.channel.answers_to(await self.channel.say(text, user=user, conversation=f"dm-{user}"))
        found = CODE.search(answers[0])
        assert found, answers
        return found[0]

    async def let_in(self, user: str, role: str | None = None) -> dict[str, Any]:
        """Somebody who is let in; as the API shows them."""
        body = {"who": await self.knocks(user)} | ({} if role is None else {"role": role})
        assert (await self.client.post("/people/pairing/approve", json=body)).status_code == 200
        await settled(self.gateway)
        return await self.person(f"fake:{user}")

    async def person(self, who: str) -> dict[str, Any]:
        response = await self.client.get(f"/people/{who}")
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()
        return found

    async def key(self, *scopes: str, user: str | None = None) -> httpx.AsyncClient:
        """A client that holds an API key."""
        return self.client_with((await self.gateway.web.api.services.keys.create(OPERATOR, "a key", scopes, user)).key)


@asynccontextmanager
async def opened(home: Path, **channels: Any) -> AsyncIterator[Door]:
    house = House(home)
    async with house.served(ScriptedModel(*["fine"] * 40), channels={**channels, "fake": FAKE}) as gateway:
        await gateway.supervisor.all_tried.wait()
        base_url = gateway.web.url + "api/v1"

        def client_with(token: str) -> httpx.AsyncClient:
            headers = {"authorization": f"Bearer {token}"}
            return httpx.AsyncClient(base_url=base_url, headers=headers, trust_env=False, timeout=WAIT_S)

        channel = next(adapter for adapter in gateway.adapters if isinstance(adapter, FakeChannel))
        async with client_with((gateway.home / "web-token").read_text().strip()) as client:
            yield Door(gateway, channel, client, client_with)


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    """With an operator who has talked to the agent."""
    async with opened(tmp_path / "home") as door:
        await door.gateway.identities.resolve("local:operator", "Operator")
        yield door


# ---- being let in ---------------------------------------------------------------------------------------------------


async def test_a_stranger_is_listed_let_in_with_a_role_and_answered(door: Door) -> None:
    code = await door.knocks("7", "what I wanted to ask")
    [request] = (await door.client.get("/people/pairing")).json()["items"]
    assert (request["code"], request["account"], request["channel"], request["messages"]) == (code, "fake:7", "fake", 1)
    assert "fake:7" not in (await door.client.get("/people")).text, "a stranger is nobody's person"

    decided = (await door.client.post("/people/pairing/approve", json={"who": code, "role": "guest"})).json()
    assert decided["outcome"] == "approved"
    assert decided["text"].endswith("is let in on the channel fake, as a guest.")
    await settled(door.gateway)
    assert [one.text for one in door.channel.sent][-2:] == ["You are let in. I answer what you wrote.", "fine"]

    person = await door.person("fake:7")
    assert (person["role"], person["assignedRole"], person["isOperator"]) == ("guest", "guest", False)
    assert person["lastSeenAt"] is not None
    [account] = person["accounts"]
    assert (account["assignedRole"], account["assignedBy"]) == ("guest", "api")
    [place] = account["access"]
    assert (place["channel"], place["how"], place["role"], place["by"]) == ("fake", "approved", "guest", "api")
    assert (await door.client.get("/people/pairing")).json()["items"] == []


async def test_a_refused_stranger_is_told_and_cannot_be_decided_on_again(door: Door) -> None:
    code = await door.knocks("7")
    assert (await door.client.post("/people/pairing/refuse", json={"who": "fake:7"})).json()["outcome"] == "refused"
    await settled(door.gateway)
    assert door.channel.sent[-1].text == "The owner of this gateway did not let you in."
    for action in ("approve", "refuse"):
        again = await door.client.post(f"/people/pairing/{action}", json={"who": code})
        assert (again.status_code, again.json()["type"]) == (404, "urn:ethos:problem:not-found")
        assert "decided already" in again.json()["detail"]


async def test_a_repeated_yes_with_its_key_is_one_yes(door: Door) -> None:
    body = {"who": await door.knocks("7")}
    for _ in range(2):
        response = await door.client.post("/people/pairing/approve", json=body, headers={"idempotency-key": "k"})
        assert response.json()["outcome"] == "approved"


# ---- the list -------------------------------------------------------------------------------------------------------


async def test_everybody_is_listed_newest_first_in_pages_and_found_by_a_part_of_a_name(door: Door) -> None:
    ids = [(await door.let_in(user))["id"] for user in ("1", "2", "3")]
    first = (await door.client.get("/people", params={"limit": 2})).json()
    rest = (await door.client.get("/people", params={"limit": 2, "cursor": first["nextCursor"]})).json()
    listed = first["items"] + rest["items"]
    assert (len(first["items"]), len(listed), rest["nextCursor"]) == (2, 4, None)
    assert {one["id"] for one in listed} > set(ids)
    known_at = [one["accounts"][0]["firstSeenAt"] for one in listed]
    assert known_at == sorted(known_at, reverse=True)
    [operator] = [one for one in listed if one["id"] not in ids]
    assert (operator["isOperator"], operator["role"]) == (True, "owner")
    [found] = (await door.client.get("/people", params={"q": "FAKE:2"})).json()["items"]
    assert found["id"] == ids[1]
    for cursor in ("x", first["nextCursor"][:-4]):
        assert (await door.client.get("/people", params={"cursor": cursor})).status_code == 400


async def test_who_is_not_known_is_said_so(door: Door) -> None:
    for who in ("u_nobody", "fake:99"):
        response = await door.client.get(f"/people/{who}")
        assert response.status_code == 404
        assert f"there is no user {who}" in response.json()["detail"]
    assert (await door.client.get("/people/not an id")).status_code == 422


# ---- roles ----------------------------------------------------------------------------------------------------------


async def test_a_role_counts_from_the_next_message_and_a_revoked_person_is_let_in_nowhere(door: Door) -> None:
    person = await door.let_in("7")
    assert (person["role"], person["assignedRole"]) == ("member", None)
    guest = (await door.client.put(f"/people/{person['id']}/role", json={"role": "guest"})).json()
    assert (guest["role"], guest["assignedRole"]) == ("guest", "guest")

    barred = (await door.client.post("/people/fake:7/revoke")).json()
    assert (barred["role"], barred["accounts"][0]["access"]) == ("revoked", [])
    said = await door.channel.say("still here?", user="7", conversation="dm-7")
    assert "not let in any more" in (await door.channel.answers_to(said))[0]

    back = (await door.client.put("/people/fake:7/role", json={"role": "member"})).json()
    assert (back["role"], back["assignedRole"]) == ("member", "member")
    assert back["accounts"][0]["access"] == [], "who was revoked has to be let in again"
    assert (await door.client.put("/people/fake:7/role", json={"role": "king"})).status_code == 422


async def test_whoever_runs_the_gateway_cannot_be_locked_out(door: Door) -> None:
    [me] = [one for one in (await door.client.get("/people")).json()["items"] if one["isOperator"]]
    for call in (
        door.client.post(f"/people/{me['id']}/revoke"),
        door.client.put(f"/people/{me['id']}/role", json={"role": "guest"}),
    ):
        response = await call
        assert response.status_code == 409
        assert response.json()["detail"] == "this is the operator of this gateway, who is always an owner"
    assert (await door.person(me["id"]))["role"] == "owner"


async def test_the_last_owner_stays_one_until_there_is_another(tmp_path: Path) -> None:
    """On a gateway without a channel that knows its operator."""
    async with opened(tmp_path / "home") as door:
        one, other = await door.let_in("1", "owner"), await door.let_in("2")
        for call in (
            door.client.post(f"/people/{one['id']}/revoke"),
            door.client.put(f"/people/{one['id']}/role", json={"role": "member"}),
        ):
            response = await call
            assert response.status_code == 409
            assert response.json()["detail"] == "this is the last owner; make somebody else an owner first"
        assert (await door.person(one["id"]))["role"] == "owner"
        await door.client.put(f"/people/{other['id']}/role", json={"role": "owner"})
        assert (await door.client.post(f"/people/{one['id']}/revoke")).json()["role"] == "revoked"


# ---- who is whom ----------------------------------------------------------------------------------------------------


async def test_two_are_linked_and_parted_and_keep_their_roles(door: Door) -> None:
    one, other = await door.let_in("1"), await door.let_in("2", "guest")
    linked = (await door.client.post("/people/links", json={"one": one["id"], "other": "fake:2"})).json()
    assert linked["person"]["id"] == one["id"]
    assert linked["person"]["ids"] == [one["id"], other["id"]]
    assert {account["key"] for account in linked["person"]["accounts"]} == {"fake:1", "fake:2"}
    link = linked["link"]
    assert (link["state"], link["by"], link["absorbed"]) == ("linked", "operator", other["id"])
    assert set(link["notified"]) == {"fake:1", "fake:2"}
    assert (await door.person(other["id"]))["id"] == one["id"], "the id that came in leads to the person"

    again = await door.client.post("/people/links", json={"one": "fake:1", "other": "fake:2"})
    assert again.status_code == 409
    undone = (await door.client.post(f"/people/links/{link['id']}/undo")).json()
    assert undone["state"] == "undone"
    assert (await door.person("fake:2"))["id"] == other["id"]
    gone = await door.client.post(f"/people/links/{link['id']}/undo")
    assert gone.status_code == 404
    assert gone.json()["detail"].startswith(f"there is no link of {link['id']} that counts; ")


async def test_an_account_that_has_not_written_yet_is_added_to_a_person(door: Door) -> None:
    one = await door.let_in("1")
    linked = (await door.client.post("/people/links", json={"one": one["id"], "other": "mail:new@example.org"})).json()
    assert linked["link"] is None
    assert [account["key"] for account in linked["person"]["accounts"]] == ["fake:1", "mail:new@example.org"]


async def test_a_stranger_who_waits_is_answered_when_an_operator_says_who_they_are(door: Door) -> None:
    one = await door.let_in("1")
    await door.knocks("2", "it is me")
    await door.client.post("/people/links", json={"one": one["id"], "other": "fake:2"})
    await settled(door.gateway)
    assert [each.text for each in door.channel.sent if each.conversation.conversation == "dm-2"][-1] == "fine"
    assert (await door.person("fake:2"))["accounts"][1]["access"][0]["how"] == "elsewhere"


async def test_somebody_who_is_barred_bars_nobody_else_by_a_link(door: Door) -> None:
    one = await door.let_in("1", "owner")
    other = await door.let_in("2")
    await door.client.post(f"/people/{other['id']}/revoke")
    response = await door.client.post("/people/links", json={"one": one["id"], "other": other["id"]})
    assert response.status_code == 409
    assert f"give {other['id']} a role first" in response.json()["detail"]
    assert (await door.person(one["id"]))["role"] == "owner"


async def test_an_account_that_was_barred_before_it_wrote_bars_nobody_by_a_link_until_it_has_a_role(door: Door) -> None:
    one = await door.let_in("1", "owner")
    at = datetime.now(UTC)
    await door.gateway.store.people.change(SetRank(accounts=("fake:9",), rank="revoked", via="test", at=at))
    door.gateway.people.changed()
    response = await door.client.post("/people/links", json={"one": one["id"], "other": "fake:9"})
    assert (response.status_code, "give fake:9 a role first" in response.json()["detail"]) == (409, True)
    assert (await door.person(one["id"]))["role"] == "owner"
    assert (await door.client.put("/people/fake:9/role", json={"role": "member"})).status_code == 200
    linked = await door.client.post("/people/links", json={"one": one["id"], "other": "fake:9"})
    assert (linked.status_code, linked.json()["person"]["role"]) == (200, "owner")


# ---- whom a key sees ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["member", "guest", "owner"])
async def test_the_key_of_a_person_sees_that_person_and_no_other(door: Door, role: str) -> None:
    """Whatever role they have: what an owner may do in a chat, a key of one person may not."""
    mine, other = await door.let_in("1", role), await door.let_in("2")
    await door.knocks("3")
    async with await door.key("people:read", user=mine["id"]) as client:
        assert [one["id"] for one in (await client.get("/people")).json()["items"]] == [mine["id"]]
        assert (await client.get("/people", params={"q": "fake:2"})).json()["items"] == []
        for who in (mine["id"], "fake:1"):
            assert (await client.get(f"/people/{who}")).json()["id"] == mine["id"]
        for who in (other["id"], "fake:2", "u_nobody", "fake:3"):
            response = await client.get(f"/people/{who}")
            assert response.status_code == 403
            assert not {"2", "3"} & set(re.findall(r"fake:(\d)", response.text)) - {who.rpartition(":")[2]}
        for call in (
            client.get("/people/pairing"),
            client.post("/people/pairing/approve", json={"who": "fake:3"}),
            client.put(f"/people/{mine['id']}/role", json={"role": "owner"}),
            client.post(f"/people/{other['id']}/revoke"),
            client.post("/people/links", json={"one": mine["id"], "other": other["id"]}),
        ):
            assert (await call).status_code == 403


async def test_a_key_that_reads_changes_nothing_and_one_that_writes_is_named(door: Door) -> None:
    person = await door.let_in("1")
    async with await door.key("people:read") as client:
        assert len((await client.get("/people")).json()["items"]) == 2
        assert (await client.post(f"/people/{person['id']}/revoke")).status_code == 403
    async with await door.key("people:write") as client:
        changed = (await client.put(f"/people/{person['id']}/role", json={"role": "guest"})).json()
        assert changed["accounts"][0]["assignedBy"] == "api:a key"
        assert (await client.get("/people")).status_code == 403


async def test_the_key_of_somebody_who_is_let_in_nowhere_opens_nothing(door: Door) -> None:
    person = await door.let_in("1")
    async with await door.key("people:read", user=person["id"]) as client:
        assert (await client.get("/people")).status_code == 200
        await door.client.post(f"/people/{person['id']}/revoke")
        assert (await client.get("/people")).status_code == 401


# ---- export and erasure ---------------------------------------------------------------------------------------------


async def test_a_person_is_given_everything_in_one_file_which_is_not_left_behind(door: Door) -> None:
    person = await door.let_in("1")
    await door.channel.ask("my secret word is marzipan", user="1", conversation="dm-1")
    await door.channel.ask("somebody else's words", user="9", conversation="dm-9")
    async with await door.key("people:read", "memory:read", "sessions:read", user=person["id"]) as client:
        response = await client.get("/people/fake:1/export")
    assert (response.status_code, response.headers["content-type"]) == (200, "application/zip")
    assert response.headers["content-disposition"].startswith('attachment; filename="ethos-export-')
    with zipfile.ZipFile(io.BytesIO(response.content)) as archive:
        texts = "\n".join(archive.read(name).decode() for name in archive.namelist())
    assert "marzipan" in texts
    assert "somebody else" not in texts
    assert list((door.gateway.home / "exports").glob("*/*")) == []


async def test_an_export_is_for_keys_that_may_read_all_that_is_in_it(door: Door) -> None:
    one, other = await door.let_in("1"), await door.let_in("2")
    for scopes, user, whose, status in (
        (("people:read",), None, one, 403),
        (("people:read", "memory:read"), one["id"], one, 403),
        (("people:read", "memory:read", "sessions:read"), one["id"], other, 403),
        (("people:read", "memory:read", "sessions:read"), None, other, 200),
    ):
        async with await door.key(*scopes, user=user) as client:
            assert (await client.get(f"/people/{whose['id']}/export")).status_code == status, (scopes, user)


async def test_an_erased_person_is_gone_with_all_keys_and_is_a_stranger_again(door: Door) -> None:
    person = await door.let_in("1")
    wrong = await door.client.post("/people/fake:1/erase", json={"confirm": "fake:1"})
    assert (wrong.status_code, wrong.json()["type"]) == (409, "urn:ethos:problem:not-possible")
    assert "nothing was erased" in wrong.json()["detail"]
    async with await door.key("people:read", user=person["id"]) as client:
        erased = (await door.client.post("/people/fake:1/erase", json={"confirm": person["id"]})).json()
        assert (erased["user"], erased["isDone"]) == (person["id"], True)
        assert (await client.get("/people")).status_code == 401
    assert (await door.client.get("/people/fake:1")).status_code == 404
    assert await door.knocks("1", "hello again")


async def test_a_key_ends_when_its_persons_erasure_is_decided(door: Door) -> None:
    person = await door.let_in("1")
    async with await door.key("people:read", "memory:write", user=person["id"]) as client:
        assert (await client.get("/people")).status_code == 200
        await door.gateway.privacy.eraser().schedule(person["id"])  # decided, and not yet begun
        body = {"store": "user", "content": "I am still here.\n", "expectedVersion": "0" * 64}
        assert (await client.put("/memory", json=body)).status_code == 401


async def test_a_stranger_who_only_asked_can_be_erased_too(door: Door) -> None:
    await door.knocks("5")
    body, headers = {"confirm": "fake:5"}, {"idempotency-key": "k"}
    erased = (await door.client.post("/people/fake:5/erase", json=body, headers=headers)).json()
    assert erased["isDone"] is True
    await forgets_all(door.gateway)  # the answer names who was erased
    assert (await door.client.get("/people/pairing")).json()["items"] == []
    assert (await door.client.post("/people/fake:6/erase", json={"confirm": "fake:6"})).status_code == 404


@pytest.mark.parametrize("by_account", [False, True])
async def test_a_repeated_erasure_is_told_of_the_first(door: Door, *, by_account: bool) -> None:
    """As by a client that lost the answer; who was erased is not kept, so another name is unknown as before."""
    person, other = await door.let_in("1"), await door.let_in("2")
    who = "fake:1" if by_account else person["id"]
    body, headers = {"confirm": person["id"]}, {"idempotency-key": "k"}
    first = await door.client.post(f"/people/{who}/erase", json=body, headers=headers)
    await forgets_all(door.gateway)
    again = await door.client.post(f"/people/{who}/erase", json=body, headers=headers)
    assert (again.status_code, again.json()) == (200, first.json())
    for wrong in (other["id"], "u_none"):
        assert (await door.client.post(f"/people/{who}/erase", json={"confirm": wrong})).status_code == 404
    assert (await door.person("fake:2"))["id"] == other["id"]


async def test_the_last_owner_is_not_erased(tmp_path: Path) -> None:
    """On a gateway without a channel that knows its operator."""
    async with opened(tmp_path / "home") as door:
        person = await door.let_in("1", "owner")
        response = await door.client.post("/people/fake:1/erase", json={"confirm": person["id"]})
        assert (response.status_code, response.json()["detail"][:22]) == (409, "this is the last owner")
        assert (await door.person("fake:1"))["role"] == "owner"


async def test_a_key_that_only_reads_erases_nobody_and_one_person_not_even_themselves(door: Door) -> None:
    person = await door.let_in("1")
    for user in (None, person["id"]):
        async with await door.key("people:read", "memory:read", "memory:write", user=user) as client:
            response = await client.post("/people/fake:1/erase", json={"confirm": person["id"]})
            assert response.status_code == 403
    assert (await door.person("fake:1"))["id"] == person["id"]


# ---- the whole map --------------------------------------------------------------------------------------------------


async def test_a_map_goes_out_and_comes_in_and_moves_nobody_unless_it_may(door: Door) -> None:
    person = await door.let_in("1")
    text = (await door.client.get("/people/identity-map")).json()["text"]
    assert json.loads(text)["identities"]["fake:1"]["userId"] == person["id"]

    async def brought(text: str, **options: bool) -> dict[str, Any]:
        response = await door.client.post("/people/identity-map", json={"text": text, **options})
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()
        return found

    assert (await brought(text))["same"] == len(json.loads(text)["identities"])
    other = json.dumps({"fake:1": "u_other", "fake:2": person["id"]})
    kept = {"account": "fake:1", "user": "u_other", "knownUser": person["id"]}
    added = {"account": "fake:2", "user": person["id"], "knownUser": None}
    plan = await brought(other, isDryRun=True)
    assert (plan["kept"], plan["added"], plan["moved"], plan["isDryRun"]) == ([kept], [added], [], True)
    assert (await door.client.get("/people/fake:2")).status_code == 404
    assert await brought(other) == {**plan, "isDryRun": False}
    assert [one["key"] for one in (await door.person("fake:2"))["accounts"]] == ["fake:1", "fake:2"]
    assert (await brought(other, isReplacing=True))["moved"] == [kept]
    assert (await door.person("fake:1"))["id"] == "u_other"


async def test_an_old_map_undoes_no_link_and_brings_nobody_back_who_was_erased(door: Door) -> None:
    ada, bob, cleo = [await door.let_in(user) for user in "123"]
    text = (await door.client.get("/people/identity-map")).json()["text"]
    linked = (await door.client.post("/people/links", json={"one": ada["id"], "other": bob["id"]})).json()
    assert linked["person"]["id"] == ada["id"]
    await door.client.post(f"/people/{cleo['id']}/erase", json={"confirm": cleo["id"]})
    body = {"text": text, "isReplacing": True}
    changes = (await door.client.post("/people/identity-map", json=body)).json()
    assert (changes["added"], changes["moved"]) == ([], [])
    assert changes["erased"] == [{"account": "fake:3", "user": cleo["id"], "knownUser": None}]
    assert (await door.person("fake:2"))["id"] == ada["id"]
    assert (await door.client.get("/people/fake:3")).status_code == 404


async def test_a_map_with_a_mistake_is_refused_with_its_place_and_changes_nothing(door: Door) -> None:
    before = (await door.client.get("/people/identity-map")).json()
    response = await door.client.post("/people/identity-map", json={"text": '{"fake:1": "u_1",\n "fake:2": 3}'})
    assert (response.status_code, response.json()["type"]) == (422, "urn:ethos:problem:invalid")
    assert response.json()["detail"].startswith("2:2: expected an object")
    assert (await door.client.get("/people/identity-map")).json() == before


async def test_the_map_is_the_operators_only(door: Door) -> None:
    async with await door.key("people:read", "people:write") as client:
        assert (await client.get("/people/identity-map")).status_code == 403
        assert (await client.post("/people/identity-map", json={"text": "{}"})).status_code == 403
