"""Every namespace over a real socket: what comes back is typed, and errors are exceptions."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path

import pytest

from ethos import (
    AddressError,
    APIConnectionError,
    AsyncEthos,
    AuthenticationError,
    ChangeSchedule,
    ConflictError,
    Ethos,
    NewSchedule,
    NotFoundError,
    PermissionDeniedError,
    UnprocessableEntityError,
    VersionConflictError,
)
from gateway.app.gateway import Gateway
from gateway.sdk.address import address_source
from tests.gateway.api.conftest import OPERATOR

from .conftest import KillableGateway

NOTHING = hashlib.sha256(b"").hexdigest()


async def test_a_document_is_written_looked_at_and_taken_back(client: AsyncEthos) -> None:
    written = await client.memory.write("memory", "Tea at five.\n", NOTHING)
    assert written.content == "Tea at five.\n"
    assert await client.memory.get_if_changed("memory", written.version) is None
    newer = await client.memory.get_if_changed("memory", NOTHING)
    assert newer == await client.memory.get("memory")
    [info] = [info async for info in client.memory.list()]
    assert (info.store, info.chars) == ("memory", 13)
    [change] = [change async for change in client.memory.history(store="memory")]
    assert change.action == "write"
    texts = await client.memory.diff(change.id)
    assert (texts.before, texts.after) == ("", "Tea at five.\n")
    assert (await client.memory.why("Tea", store="memory")).change == change
    assert (await client.memory.undo(change.id)).content == ""
    assert (await client.memory.restore(change.id, NOTHING)).content == "Tea at five.\n"
    assert len([one async for one in client.memory.history(limit=2)]) == 2


async def test_who_was_slower_gets_both_texts_and_can_write_over_the_newer(client: AsyncEthos) -> None:
    await client.memory.write("memory", "First.\n", NOTHING)
    with pytest.raises(VersionConflictError) as caught:
        await client.memory.write("memory", "Second.\n", NOTHING)
    conflict = caught.value
    assert (conflict.current, conflict.proposed) == ("First.\n", "Second.\n")
    united = await client.memory.write("memory", conflict.current + conflict.proposed, conflict.current_version)
    assert united.content == "First.\nSecond.\n"


async def test_proposals_are_listed_and_one_that_is_not_there_is_not_found(client: AsyncEthos) -> None:
    proposals = client.memory.proposals
    assert await proposals.list() == ()
    for call in (proposals.get(1), proposals.edit(1, "x"), proposals.approve(1), proposals.refuse(1)):
        with pytest.raises(NotFoundError):
            await call


async def test_sessions_are_found_forked_tidied_and_forgotten(client: AsyncEthos) -> None:
    answer = await client.chat.ask("The password is teapot")
    await client.chat.ask("Something else")
    assert len([one async for one in client.sessions.list()]) == 2
    [found] = [one async for one in client.sessions.list("teapot", limit=1)]
    assert found.id == answer.session
    assert any("[teapot]" in snippet.text for snippet in found.snippets)
    messages = [one async for one in client.sessions.messages(found.id)]
    fork = await client.sessions.fork(found.id, messages[0].id, title="Copy")
    assert (fork.title, fork.messages, fork.forked_from) == ("Copy", 1, found.id)
    changed = await client.sessions.update(found.id, title="Teapots", is_pinned=True)
    assert (changed.title, changed.is_pinned) == ("Teapots", True)
    assert [one.id async for one in client.sessions.list(pinned=True)] == [found.id]
    assert "# Teapots" in await client.sessions.markdown(found.id)
    assert (await client.sessions.export(found.id)).messages == tuple(messages)
    await client.sessions.delete(fork.id)
    with pytest.raises(NotFoundError):
        await client.sessions.get(fork.id)


async def test_a_list_goes_on_over_its_pages(client: AsyncEthos, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        await client.chat.ask(f"Number {number}")  # answered, so that the list stands still
    whole = [one.id async for one in client.sessions.list()]
    monkeypatch.setattr("gateway.sdk.request_sender.PAGE_ITEMS", 2)
    assert [one.id async for one in client.sessions.list()] == whole
    assert [one.id async for one in client.sessions.list(limit=3)] == whole[:3]
    assert len(set(whole)) == 5


async def test_schedules_are_made_changed_steered_and_removed(client: AsyncEthos) -> None:
    schedules = client.schedules
    with pytest.raises(ConflictError, match="has not written"):
        await schedules.create(NewSchedule(text="Tea", in_minutes=5))
    await client.chat.ask("Hello", conversation="main")
    with pytest.raises(NotFoundError, match="only local:operator"):
        await schedules.create(NewSchedule(text="Tea", in_minutes=5, to="mail"))
    made = await schedules.create(NewSchedule(text="Tea", cron="0 17 * * *", zone="UTC"), idempotency_key="tea")
    assert await schedules.create(NewSchedule(text="Tea", cron="0 17 * * *", zone="UTC"), idempotency_key="tea") == made
    assert (made.when, made.rule.cron, len(made.next)) == ("every day at 17:00 (UTC)", "0 17 * * *", 3)
    with pytest.raises(UnprocessableEntityError, match="exactly one of"):
        await schedules.change(made.id, ChangeSchedule(every_minutes=5, in_minutes=5))
    assert (await schedules.change(made.id, ChangeSchedule(text="Cake"))).text == "Cake"
    assert (await schedules.pause(made.id)).state == "paused"
    assert [one.id async for one in schedules.list(state="paused")] == [made.id]
    assert [one async for one in schedules.list(state="active")] == []
    resumed = await schedules.resume(made.id)
    assert (resumed.state, resumed == await schedules.get(made.id)) == ("active", True)
    await schedules.run(made.id)
    async with asyncio.timeout(60):
        while not (history := [one async for one in schedules.history(made.id)]) or history[0].outcome == "begun":
            await asyncio.sleep(0.05)
    assert (history[0].outcome, history[0].is_by_hand) == ("done", True)
    await schedules.remove(made.id)
    with pytest.raises(NotFoundError, match=f"no schedule {made.id}"):
        await schedules.get(made.id)


async def test_the_gateway_tells_how_it_is(client: AsyncEthos) -> None:
    health = await client.system.health()
    assert health.is_ready
    assert await client.system.channels() == ()
    assert (await client.system.usage(days=7)).rows == ()
    assert "channels" in (await client.system.config()).values


async def test_a_personality_is_made_and_changed(client: AsyncEthos) -> None:
    assert "engineer" in [one.id for one in await client.personalities.list()]
    made = await client.personalities.create("gardener", name="Gardener", copy_of="assistant")
    changed = await client.personalities.update("gardener", made.version, prompt="You love tea plants.")
    assert await client.personalities.get("gardener") == changed
    assert changed.prompt.strip() == "You love tea plants."
    with pytest.raises(ConflictError):
        await client.personalities.update("gardener", made.version, prompt="You love roses.")
    with pytest.raises(NotFoundError):
        await client.personalities.get("nobody")


async def test_a_file_is_listed_edited_and_merged(client: AsyncEthos) -> None:
    before = await client.files.revision()
    path = "personalities/assistant/MEMORY.md"
    first = await client.files.put(path, "One.\n")
    assert [one.path async for one in client.files.list()] == [path]
    await client.files.put(path, "One.\n\nTwo.\n", base=first.content)
    merged = await client.files.put(path, "Zero.\n\nOne.\n", base=first.content)
    assert merged.content == "Zero.\n\nOne.\n\nTwo.\n"
    assert await client.files.get(path) == merged
    assert await client.files.revision(seen=before, wait=10) != before
    with pytest.raises(VersionConflictError):
        await client.files.put(path, "Other.\n", base="Nothing of it.\n")
    with pytest.raises(NotFoundError):
        await client.files.get("MEMORY.md")


async def test_people_are_found_given_roles_linked_and_erased(gateway: Gateway, client: AsyncEthos) -> None:
    ada = await gateway.identities.resolve("mail:ada@example.org", "Ada")
    work = await gateway.identities.resolve("mail:ada@work.example", "Ada at work")
    assert {person.id async for person in client.people.list("ada")} == {ada, work}
    assert (await client.people.get("mail:ada@example.org")).id == ada
    assert (await client.people.set_role(ada, "member")).assigned_role == "member"
    linked = await client.people.link(ada, work, is_one_kept=True)
    assert linked.link is not None
    assert linked.person.id == ada
    assert (await client.people.revoke(ada)).role == "revoked"
    assert await client.people.pairing.list() == ()
    for call in (client.people.pairing.approve("ABCD1234"), client.people.pairing.refuse("ABCD1234")):
        with pytest.raises(NotFoundError):
            await call
    assert (await client.people.export(ada)).startswith(b"PK")
    assert await client.people.export_file(ada, gateway.home / "ada.zip") == gateway.home / "ada.zip"
    assert (gateway.home / "ada.zip").read_bytes().startswith(b"PK")
    assert (await client.people.erase(ada, confirm=ada)).user == ada
    with pytest.raises(NotFoundError):
        await client.people.unlink("l_nothing")


async def test_deliveries_are_listed_and_changed(client: AsyncEthos) -> None:
    answer = await client.chat.ask("Hello")
    assert [one async for one in client.deliveries.list("inbox", state="dead")] == []
    with pytest.raises(NotFoundError):
        await client.deliveries.get("outbox", "99")
    [said, _] = [one async for one in client.sessions.messages(answer.session)]
    first = await client.deliveries.get("inbox", said.turn)
    assert (first.text, first.state) == ("Hello", "done")
    for call in (client.deliveries.retry("inbox", first.id), client.deliveries.drop("inbox", first.id)):
        with pytest.raises(ConflictError):
            await call


def test_the_blocking_client_has_the_same_operations(blocking: Ethos) -> None:
    assert blocking.memory.write("memory", "Tea.\n", NOTHING).content == "Tea.\n"
    with pytest.raises(VersionConflictError):
        blocking.memory.write("memory", "Coffee.\n", NOTHING)
    assert [one.action for one in blocking.memory.history()] == ["write"]
    assert blocking.memory.proposals.list() == ()
    assert blocking.system.health().is_ready
    assert list(blocking.deliveries.list("outbox")) == []
    assert list(blocking.sessions.list()) == []


async def test_what_is_wrong_is_an_error_with_its_fields(client: AsyncEthos) -> None:
    with pytest.raises(UnprocessableEntityError) as caught:
        await client.system.usage(days=0)
    assert [one.where for one in caught.value.fields] == ["query.days"]


async def test_a_key_may_what_its_scopes_say(gateway: Gateway, client: AsyncEthos) -> None:
    assert gateway.web.api is not None
    key = await gateway.web.api.services.keys.create(OPERATOR, "reader", ["memory:read"])
    async with AsyncEthos(api_key=key.key, base_url=gateway.web.url) as reader:
        assert (await reader.memory.get("memory")).content == ""
        with pytest.raises(PermissionDeniedError, match="chat:write"):
            await reader.chat.send("Hello")
    async with AsyncEthos(api_key="ethos_wrong", base_url=gateway.web.url) as wrong:
        with pytest.raises(AuthenticationError):
            await wrong.system.health()


def test_url_and_key_come_from_the_environment(served: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETHOS_URL", json.loads((served / "run" / "gateway.json").read_text())["url"])
    monkeypatch.setenv("ETHOS_API_KEY", (served / "web-token").read_text())
    with Ethos() as client:
        assert client.system.health().is_ready


def test_without_anything_it_is_the_gateway_on_this_machine(served: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ETHOS_URL", raising=False)
    monkeypatch.setenv("ETHOS_HOME", str(served))
    with Ethos() as client:
        assert client.system.health().is_ready


@pytest.mark.parametrize(
    ("url", "key", "home", "told"),
    [
        ("http://localhost:8420", None, None, "ETHOS_API_KEY"),
        (None, "ethos_key", None, "ETHOS_URL"),
        ("localhost:8420", "ethos_key", None, "http://localhost:8420"),
        ("http://localhost:8420/?x=1", "ethos_key", None, "not the address"),
        ("http://me@localhost:8420/", "ethos_key", None, "not the address"),
        ("http://localhost:8420", "ethos key\n\x00", None, "characters"),
        ("http://localhost:8420", "ethos_key", Path("/nowhere"), "not both"),
    ],
)
def test_half_an_address_is_an_error_that_says_what_to_give(
    url: str | None, key: str | None, home: Path | None, told: str
) -> None:
    with pytest.raises(AddressError, match=told):
        address_source(url, key, home, {})


def test_no_key_is_shown_by_accident() -> None:
    assert "secret" not in repr(address_source("https://ethos.example.org/api/v1/", "ethos_secret", None, {})())
    assert (
        address_source("https://ethos.example.org/api/v1/", "k", None, {})().url == "https://ethos.example.org/api/v1"
    )


def test_where_no_gateway_runs_it_says_so(tmp_path: Path) -> None:
    with Ethos(home=tmp_path, max_retries=0) as client, pytest.raises(APIConnectionError, match="ethos serve"):
        client.system.health()


@pytest.mark.slow
@pytest.mark.parametrize("point", ["memory.compared", "memory.linked", "memory.renamed", "memory.synced"])
async def test_a_write_in_the_middle_of_which_the_gateway_is_killed_is_done_once(
    killable: KillableGateway, point: str
) -> None:
    killable.start(f"{point} 1")
    async with AsyncEthos(home=killable.home, max_retries=12) as client, asyncio.timeout(300):
        writing = asyncio.create_task(client.memory.write("memory", "Once.\n", NOTHING))
        await asyncio.to_thread(killable.wait_until_dead)
        await asyncio.to_thread(killable.start)
        assert (await writing).content == "Once.\n"
        changes = [change async for change in client.memory.history(store="memory")]
        assert [change.outcome for change in changes] == ["applied"]
        assert (await client.memory.get("memory")).content == "Once.\n"
