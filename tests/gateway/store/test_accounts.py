"""Who is who, tombstones and tries as tables, on both engines, and what a commit asks of them."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import fields
from pathlib import Path

import pytest

from gateway.app.people import people_parts
from gateway.domain.tombstones import Tombstone
from gateway.errors import ForeignSecret
from gateway.ops.privacy.tombstones import TombstoneFile
from gateway.people.identity import IdentityMap
from gateway.people.identity.file import Move
from gateway.people.tries import ErasureCodesInMemory, OwnerTriesInMemory, SignInFailuresInMemory
from gateway.store.accounts import REMEMBERED, SqlAccounts, settle, still_is
from gateway.store.engine import Connection, Engine
from gateway.store.settings import check_secret
from gateway.store.stores import Stores, open_postgres, open_store
from gateway.store.tombstones import SqlTombstones
from gateway.store.tries import SqlErasureCodes, SqlOwnerTries, SqlSignInFailures
from tests.conformance.accounts import ADA, BOB, IdentitySuite, Maps, users_by_key
from tests.conformance.stores import House
from tests.conformance.tries import Clock, Door, TriesSuite
from tests.gateway.identity import minters


@pytest.fixture
def engine(house: House) -> Engine:
    return house.store.engine


class TestAccounts(IdentitySuite):
    @pytest.fixture
    def maps(self, engine: Engine) -> Maps:
        return lambda: SqlAccounts(engine.of("accounts"))

    async def test_what_is_remembered_is_bounded(self, maps: Maps) -> None:
        people = maps()
        assert isinstance(people, SqlAccounts)
        ada = await people.resolve(ADA, "Ada")
        people._users = {f"k:{number}": "u_1" for number in range(REMEMBERED)}
        await people.known([ADA])
        assert people._users == {ADA: ada}


class TestTries(TriesSuite):
    @pytest.fixture
    def door(self, house: House, engine: Engine) -> Door:
        class HouseClock(Clock):
            """The house's, which the database follows."""

            def __setattr__(self, name: str, value: float) -> None:
                house.wait(value - getattr(self, name, value))
                super().__setattr__(name, value)

        return Door(
            clock=HouseClock(),
            failures=SqlSignInFailures(engine.of("sign_in_failures"), max_addresses=100),
            owner_tries=SqlOwnerTries(engine.of("owner_tries")),
            codes=SqlErasureCodes(engine.of("erasure_codes")),
        )

    async def test_workers_count_together(self, engine: Engine) -> None:
        """More workers give nobody more tries."""
        workers = [SqlSignInFailures(engine.of("sign_in_failures")) for _ in range(5)]
        assert [await one.note_failure("10.0.0.1") for one in workers] == [0.0] * 4 + [60.0]
        taken = [await SqlOwnerTries(engine.of("owner_tries")).take("fake:7", f"t{number}") for number in range(6)]
        assert taken == [True] * 5 + [False]

    async def test_a_success_costs_nothing_where_no_failure_was_seen(self, engine: Engine) -> None:
        """So a program that shows its token in each request writes nothing."""
        one, other = SqlSignInFailures(engine), SqlSignInFailures(engine)
        await one.note_failure("10.0.0.1")
        await other.note_success("10.0.0.1")
        assert len(await engine.rows("SELECT * FROM sign_in_failures")) == 1
        await one.note_success("10.0.0.1")
        assert await engine.rows("SELECT * FROM sign_in_failures") == []


def test_the_database_keeps_it_only_where_others_use_it_too(engine: Engine, tmp_path: Path) -> None:
    """One machine has its files, and needs no write for a wrong token."""
    parts = people_parts(tmp_path, engine)
    in_tables = (SqlAccounts, SqlTombstones, SqlSignInFailures, SqlOwnerTries, SqlErasureCodes)
    on_one_machine = (IdentityMap, TombstoneFile, SignInFailuresInMemory, OwnerTriesInMemory, ErasureCodesInMemory)
    kinds = tuple(type(getattr(parts, field.name)) for field in fields(parts))
    assert kinds == (in_tables if engine.dialect.is_shared else on_one_machine)


# ---- tombstones -----------------------------------------------------------------------------------------------------


async def test_tombstones_are_kept_once_and_name_nobody(engine: Engine) -> None:
    tombstones = SqlTombstones(engine.of("tombstones"))
    assert await tombstones.all() == []
    stones = [Tombstone.of([f"u_{number}", f"fake:{number}"]) for number in range(20)]
    await asyncio.gather(*(tombstones.add([stone]) for stone in (*stones, stones[0])))
    found = await SqlTombstones(engine).all()
    assert {stone.id for stone in found} == {stone.id for stone in stones}
    assert len(found) == 20
    assert [stone.erased_at for stone in found] == sorted(stone.erased_at for stone in found)
    of_three = next(stone for stone in found if stone.id == stones[3].id)
    assert of_three.names(["u_3", "u_4", "fake:3", "fake:33"]) == {"u_3", "fake:3"}
    rows = [list(row) for row in await engine.rows("SELECT * FROM tombstones")]
    assert "u_3" not in repr(rows)
    assert "fake" not in repr(rows)


# ---- what a commit asks ---------------------------------------------------------------------------------------------


async def is_still(engine: Engine, key: str, user_id: str) -> bool:
    return await engine.write(lambda connection: still_is(connection, key, user_id))


async def link(engine: Engine, survivor: str, absorbed: str) -> None:
    sql = (
        "INSERT INTO user_links (id, survivor, absorbed, accounts, parties, linked_by, linked_at, state)"
        " VALUES ('l_1', ?, ?, '[]', '[]', 'code', 1, 'decided')"
    )
    await engine.write(lambda connection: connection.execute(sql, (survivor, absorbed)).rowcount)


async def test_an_account_is_who_was_answered_until_that_changes(engine: Engine) -> None:
    people = SqlAccounts(engine.of("accounts"))
    ada, bob = await people.resolve(ADA, "Ada"), await people.resolve(BOB, "Bob")
    assert await is_still(engine, ADA, ada)
    assert not await is_still(engine, ADA, bob)
    assert not await is_still(engine, "k:stranger", ada)
    await link(engine, bob, ada)
    assert not await is_still(engine, ADA, ada), "a link that is decided counts"
    assert await is_still(engine, ADA, bob)
    await people.move({ADA: Move(from_users=(ada,), to_user=bob, via="link-code")})
    assert await is_still(engine, ADA, bob)


async def test_nobody_is_answered_whose_erasure_is_decided_and_who_comes_again_is_somebody_new(engine: Engine) -> None:
    people, tombstones = SqlAccounts(engine.of("accounts")), SqlTombstones(engine)
    ada, bob = await people.resolve(ADA, "Ada"), await people.resolve(BOB, "Bob")
    stone = Tombstone.of([ada, ADA])
    await tombstones.add([stone])
    assert not await is_still(engine, ADA, ada)
    assert await is_still(engine, BOB, bob)
    await people.erase([ada])
    assert not await is_still(engine, ADA, ada)
    again = await people.resolve(ADA, "Ada")
    assert await is_still(engine, ADA, again), "before the database has noted that it is done, too"
    sql = "INSERT INTO erasures (id, applied_at) VALUES (?, 1)"
    await engine.write(lambda connection: connection.execute(sql, (stone.id,)).rowcount)
    assert await is_still(engine, ADA, again)


@pytest.mark.parametrize("what", ["link", "erasure"])
async def test_who_was_answered_stays_who_they_are_until_the_commit_ends(postgres_url: str, what: str) -> None:
    """A link and an erasure of another worker wait for the commit, and the next commit hears of them."""
    one, other = [await asyncio.to_thread(open_postgres, postgres_url, connections=4) for _ in range(2)]
    asked, may_end = threading.Event(), threading.Event()
    order: list[str] = []

    def commit(connection: Connection) -> bool:
        is_same = still_is(connection, ADA, ada)
        asked.set()
        may_end.wait(60)
        order.append("committed")
        return is_same

    async def change() -> None:
        if what == "link":
            await elsewhere.move({ADA: Move(from_users=(ada,), to_user=bob, via="link-code")})
        else:
            await SqlTombstones(other.engine).add([Tombstone.of([ada])])
            await other.engine.write(lambda connection: settle(connection, [ada]), alone=())
        order.append("changed")

    try:
        people, elsewhere = SqlAccounts(one.engine.of("accounts")), SqlAccounts(other.engine.of("accounts"))
        ada, bob = await people.resolve(ADA, "Ada"), await people.resolve(BOB, "Bob")
        committing = asyncio.create_task(one.engine.write(commit, alone=()))
        await asyncio.to_thread(asked.wait, 60)
        changing = asyncio.create_task(change())
        while not await other.engine.rows("SELECT 1 FROM pg_locks WHERE NOT granted"):
            assert not changing.done()
        may_end.set()
        assert await committing
        await changing
        assert order == ["committed", "changed"]
        assert not await is_still(one.engine, ADA, ada)
    finally:
        may_end.set()
        await one.close()
        await other.close()


# ---- several processes ----------------------------------------------------------------------------------------------


@pytest.fixture(params=["sqlite", "postgres"])
async def address(request: pytest.FixtureRequest, path: Path) -> str:
    """An empty database that several processes open."""
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    await (await asyncio.to_thread(open_store, path)).close()
    return str(path)


async def found(address: str) -> dict[str, str]:
    store: Stores = await asyncio.to_thread(minters.opened, address)
    try:
        return await users_by_key(SqlAccounts(store.engine))
    finally:
        await store.close()


@pytest.mark.slow
async def test_first_messages_in_four_processes_at_once_make_one_user(address: str) -> None:
    answers = minters.run_together([minters.start(address, ["telegram:1"] * 10) for _ in range(4)])
    ids = {user_id for answer in answers for user_id in answer}
    assert len(ids) == 1
    assert await found(address) == {"telegram:1": ids.pop()}


@pytest.mark.slow
async def test_four_processes_that_meet_the_same_fifty_people_agree_on_each(address: str) -> None:
    keys = [f"telegram:{number}" for number in range(50)]
    shifts = (0, 13, 26, 39)
    answers = minters.run_together([minters.start(address, keys[shift:] + keys[:shift]) for shift in shifts])
    ids = dict(zip(keys, answers[0], strict=True))
    for answer, shift in zip(answers, shifts, strict=True):
        assert dict(zip(keys[shift:] + keys[:shift], answer, strict=True)) == ids
    assert await found(address) == ids


async def test_a_process_that_is_killed_while_it_writes_loses_nobody(address: str) -> None:
    process = minters.start(address, [f"k:{number}" for number in range(2000)], "in-turn")
    try:
        minters.let_go(process)
        assert process.stdout is not None
        told = [process.stdout.readline() for _ in range(5)]
    finally:
        process.kill()
        told += process.communicate()[0].splitlines(keepends=True)
    there = await found(address)
    for line in told[:-1]:
        key, user_id = line.decode().split()
        assert there[key] == user_id


# ---- one secret -----------------------------------------------------------------------------------------------------

OWN, OTHER = bytes(range(32)), bytes(range(1, 33))


async def test_workers_with_one_secret_are_let_in_and_one_with_another_is_refused(engine: Engine) -> None:
    await asyncio.gather(*(check_secret(engine, OWN) for _ in range(4)))
    with pytest.raises(ForeignSecret, match="Give it theirs") as refused:
        await check_secret(engine, OTHER)
    assert OTHER.hex() not in str(refused.value)
    await check_secret(engine, OWN)


async def test_a_worker_without_a_secret_is_refused_and_told_how_to_make_one(engine: Engine) -> None:
    with pytest.raises(ForeignSecret, match="openssl rand"):
        await check_secret(engine, None)
    await check_secret(engine, OTHER)


async def test_after_a_secret_was_exchanged_on_purpose_the_new_one_counts(engine: Engine) -> None:
    """By the statement that the refusal names."""
    await check_secret(engine, OWN)
    with pytest.raises(ForeignSecret) as refused:
        await check_secret(engine, OTHER)
    statement = str(refused.value).split("`")[3]
    await engine.write(lambda connection: connection.execute(statement).rowcount)
    await check_secret(engine, OTHER)
    with pytest.raises(ForeignSecret):
        await check_secret(engine, OWN)
