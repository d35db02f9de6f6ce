"""The memory by HTTP: the file itself, its history, and no path that a caller could build."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime

import httpx
import pytest

from gateway.app.gateway import Gateway
from gateway.memory.proposals import Proposal
from gateway.protocols import MemoryScope, MemoryUpdate
from gateway.store.memory_journal import insert_pending

from .conftest import OPERATOR

NOTHING = hashlib.sha256(b"").hexdigest()


async def written(api: httpx.AsyncClient, content: str, expected: str, **more: str) -> httpx.Response:
    body = {"store": "memory", "content": content, "expectedVersion": expected, **more}
    return await api.put("/memory", json=body)


async def test_what_is_read_is_the_file_with_its_place_size_and_caps(
    gateway: Gateway, operator_api: httpx.AsyncClient
) -> None:
    path = gateway.home.resolve() / "personalities" / "assistant" / "MEMORY.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("Ünïcode.\n", encoding="utf-8")
    found = (await operator_api.get("/memory", params={"store": "memory"})).json()
    assert found == {
        "store": "memory",
        "personality": "assistant",
        "user": None,
        "location": str(path),
        "modifiedAt": found["modifiedAt"],
        "version": hashlib.sha256(path.read_bytes()).hexdigest(),
        "bytes": 11,
        "maxBytes": 524_288,
        "chars": 9,
        "maxChars": 20_000,
        "content": "Ünïcode.\n",
    }


async def test_a_version_that_is_known_is_not_sent_again(operator_api: httpx.AsyncClient) -> None:
    first = await operator_api.get("/memory", params={"store": "memory"})
    assert first.headers["etag"] == f'"{NOTHING}"'
    again = await operator_api.get(
        "/memory", params={"store": "memory"}, headers={"if-none-match": f'"x", W/{first.headers["etag"]}'}
    )
    assert (again.status_code, again.content) == (304, b"")


async def test_a_write_over_an_older_version_gets_both_texts_and_changes_nothing(
    operator_api: httpx.AsyncClient,
) -> None:
    assert (await written(operator_api, "Mine.\n", NOTHING)).status_code == 200
    refused = await written(operator_api, "Theirs.\n", NOTHING)
    assert refused.status_code == 409
    assert refused.headers["content-type"] == "application/problem+json"
    problem = refused.json()
    assert problem["type"] == "urn:ethos:problem:conflict"
    assert (problem["current"], problem["proposed"]) == ("Mine.\n", "Theirs.\n")
    assert (await written(operator_api, "Theirs.\n", problem["currentVersion"])).status_code == 200


async def test_a_write_whose_text_is_there_already_is_no_conflict(operator_api: httpx.AsyncClient) -> None:
    """So that a client that did not hear the first answer may simply try again."""
    first = await written(operator_api, "Mine.\n", NOTHING)
    again = await written(operator_api, "Mine.\n", NOTHING)
    assert (again.status_code, again.json()["version"]) == (200, first.json()["version"])


@pytest.mark.parametrize(
    ("in_body", "if_match", "status"),
    [
        (NOTHING, None, 200),
        (NOTHING, f'"{NOTHING}"', 200),
        (NOTHING, f'"{"0" * 64}"', 412),
        ("0" * 64, f'"{NOTHING}"', 412),
        (None, f'"{NOTHING}"', 200),
        (None, f'"{"0" * 64}"', 412),
        (None, f'W/"{NOTHING}"', 412),
        (None, "nonsense", 412),
        (None, "*", 428),
        (None, f'"{NOTHING}", "{"0" * 64}"', 428),
        (None, None, 428),
        ("0" * 64, None, 409),
        (NOTHING, "*", 200),
        (NOTHING, f'W/"{NOTHING}"', 412),
        (NOTHING, "nonsense", 412),
    ],
)
async def test_a_write_says_which_version_was_read_and_its_if_match_must_not_differ(
    operator_api: httpx.AsyncClient, in_body: str | None, if_match: str | None, status: int
) -> None:
    body = {"store": "memory", "content": "Text.\n"} | ({} if in_body is None else {"expectedVersion": in_body})
    headers = {} if if_match is None else {"if-match": if_match}
    response = await operator_api.put("/memory", json=body, headers=headers)
    assert response.status_code == status
    if status in (409, 412):
        assert (response.json()["status"], response.json()["current"]) == (status, "")
    if status == 200:
        assert response.headers["etag"] == f'"{response.json()["version"]}"'


@pytest.mark.parametrize("name", ["../x", "a b", "a/b", "é", "a\n", "x" * 65])
async def test_an_id_that_could_lead_elsewhere_is_refused(operator_api: httpx.AsyncClient, name: str) -> None:
    for params in ({"store": "memory", "personality": name}, {"store": "user", "user": name}):
        response = await operator_api.get("/memory", params=params)
        assert response.status_code == 422
        assert response.json()["errors"]


async def test_whoever_is_not_known_is_404_and_whoever_is_not_clear_is_422(
    operator_api: httpx.AsyncClient, ada: str
) -> None:
    unknown = await operator_api.get("/memory", params={"store": "user", "user": "mail:bob@example.org"})
    assert unknown.status_code == 404
    assert "mail:ada@example.org" in unknown.json()["detail"]
    assert (await operator_api.get("/memory", params={"store": "memory", "personality": "nobody"})).status_code == 404
    unclear = await operator_api.get("/memory", params={"store": "user"})
    assert (unclear.status_code, unclear.json()["type"]) == (422, "urn:ethos:problem:ambiguous")
    assert unclear.json()["detail"] == "there are 2 users; say which with `user`; `people` lists all"
    found = await operator_api.get("/memory", params={"store": "user", "user": "mail:ada@example.org"})
    assert found.json()["user"] == ada


async def test_every_document_is_listed_page_by_page(operator_api: httpx.AsyncClient, ada: str) -> None:
    await written(operator_api, "Of all.\n", NOTHING)
    await written(operator_api, "Ada.\n", NOTHING, store="user", user=ada)
    first = (await operator_api.get("/memory/documents", params={"limit": 1})).json()
    rest = (await operator_api.get("/memory/documents", params={"cursor": first["nextCursor"]})).json()
    found = [(one["store"], one["user"], one["chars"]) for one in [*first["items"], *rest["items"]]]
    assert found == [("user", ada, 5), ("memory", None, 8)]
    assert rest["nextCursor"] is None


@pytest.mark.parametrize("params", [{}, {"store": "memory"}])
async def test_the_history_comes_in_pages_that_skip_and_repeat_nothing(
    operator_api: httpx.AsyncClient, params: dict[str, str]
) -> None:
    version = NOTHING
    for number in range(7):
        version = (await written(operator_api, f"{number}.\n", version)).json()["version"]
    seen, cursor = [], None
    while True:
        query = {**params, "limit": "3"} | ({} if cursor is None else {"cursor": cursor})
        page = (await operator_api.get("/memory/changes", params=query)).json()
        seen += [one["id"] for one in page["items"]]
        cursor = page["nextCursor"]
        if cursor is None:
            break
        version = (await written(operator_api, f"later {len(seen)}.\n", version)).json()["version"]
    assert seen == [7, 6, 5, 4, 3, 2, 1]


async def test_a_change_shows_both_texts_and_can_be_restored_and_taken_back(operator_api: httpx.AsyncClient) -> None:
    one = (await written(operator_api, "One.\n", NOTHING)).json()
    two = (await written(operator_api, "Two.\n", one["version"])).json()
    newest, oldest = (await operator_api.get("/memory/changes", params={"store": "memory"})).json()["items"]
    shown = (await operator_api.get(f"/memory/changes/{newest['id']}")).json()
    assert (shown["before"], shown["after"]) == ("One.\n", "Two.\n")
    assert shown["change"]["channel"] == "api"
    assert "-One." in shown["change"]["diff"]
    late = await operator_api.post(f"/memory/changes/{oldest['id']}/restore", json={"expectedVersion": NOTHING})
    assert (late.status_code, late.json()["current"]) == (409, "Two.\n")
    restored = await operator_api.post(
        f"/memory/changes/{oldest['id']}/restore", json={"expectedVersion": two["version"]}
    )
    assert restored.json()["content"] == "One.\n"
    assert (await operator_api.post(f"/memory/changes/{newest['id']}/undo")).status_code == 409
    assert (await operator_api.post("/memory/changes/3/undo")).json()["content"] == "Two.\n"
    assert (await operator_api.get("/memory/changes/99")).status_code == 404


async def test_a_change_that_was_refused_for_its_name_hides_no_other(
    gateway: Gateway, operator_api: httpx.AsyncClient
) -> None:
    scope = MemoryScope(personality_id="a/b", user_id="u_1", session_id=None, turn_id="t_refused")
    updates = [MemoryUpdate.add("memory", "Lost.")]
    await gateway.store.engine.write(lambda open_: insert_pending(open_, scope, updates, datetime.now(UTC)))
    await gateway.store.turns.settle_memory("t_refused", ["no_match"])
    assert (await written(operator_api, "One.\n", NOTHING)).status_code == 200
    items = (await operator_api.get("/memory/changes")).json()["items"]
    assert [(one["outcome"], one["personality"]) for one in items] == [("applied", "assistant"), ("no_match", None)]


async def test_a_line_says_where_it_comes_from(operator_api: httpx.AsyncClient) -> None:
    await written(operator_api, "Tea, not coffee.\n", NOTHING)
    origin = (await operator_api.get("/memory/why", params={"line": "not coffee"})).json()
    assert (origin["change"]["id"], origin["proposal"]) == (1, None)
    assert (await operator_api.get("/memory/why", params={"line": "milk"})).status_code == 404


async def proposed(gateway: Gateway, user_id: str, text: str) -> int:
    number = await gateway.store.proposals.reserve(1)
    scope = MemoryScope(personality_id="assistant", user_id=user_id, session_id=None, turn_id=f"t{number}")
    proposal = Proposal(
        id=number, scope=scope, store="user", updates=(MemoryUpdate.add("user", text),), sources=("a web page",)
    )
    await gateway.store.engine.write(lambda connection: insert(connection, proposal))
    return number


def insert(connection: object, proposal: Proposal) -> None:
    from gateway.store.proposals import insert_proposals

    insert_proposals(connection, (proposal,))  # type: ignore[arg-type]


async def test_what_waits_for_others_hides_nothing_of_ones_own(
    gateway: Gateway, client_with: Callable[[str | None], httpx.AsyncClient], ada: str
) -> None:
    bob = await gateway.identities.resolve("mail:bob@example.org", "Bob")
    mine = [await proposed(gateway, ada, f"Likes tea {number}.") for number in range(3)]
    for number in range(6):
        await proposed(gateway, bob, f"Likes milk {number}.")
    assert gateway.web.api is not None
    key = (await gateway.web.api.services.keys.create(OPERATOR, "hers", ("memory:read",), ada)).key
    async with client_with(key) as api:
        waiting = (await api.get("/memory/proposals", params={"limit": 2})).json()["items"]
    assert [one["id"] for one in waiting] == mine[1:]


async def test_a_proposal_says_how_much_of_it_nobody_can_see(
    gateway: Gateway, operator_api: httpx.AsyncClient, ada: str
) -> None:
    await proposed(gateway, ada, "Likes tea.\u200b\U000e0053")
    await proposed(gateway, ada, "Likes milk.")
    waiting = (await operator_api.get("/memory/proposals")).json()["items"]
    assert [one["hiddenCharacters"] for one in waiting] == [2, 0]


async def test_a_proposal_is_worded_anew_approved_once_and_then_written(
    gateway: Gateway, operator_api: httpx.AsyncClient, ada: str
) -> None:
    number = await proposed(gateway, ada, "Likes tea.")
    (waiting,) = (await operator_api.get("/memory/proposals")).json()["items"]
    assert (waiting["id"], waiting["user"], waiting["sources"]) == (number, ada, ["a web page"])
    assert "+Likes tea." in waiting["diff"]
    edited = await operator_api.patch(f"/memory/proposals/{number}", json={"content": "Likes green tea."})
    assert edited.json()["updates"] == [{"action": "add", "content": "Likes green tea."}]
    for _ in range(2):
        approved = await operator_api.post(f"/memory/proposals/{number}/approve")
        assert (approved.status_code, approved.json()["state"]) == (200, "approved")
    document = (await operator_api.get("/memory", params={"store": "user", "user": ada})).json()
    assert document["content"] == "Likes green tea.\n"
    assert (await operator_api.post(f"/memory/proposals/{number}/refuse")).status_code == 409
    assert (await operator_api.post("/memory/proposals/77/refuse")).status_code == 404
    origin = (await operator_api.get("/memory/why", params={"line": "green tea", "user": ada})).json()
    assert origin["proposal"]["id"] == number
