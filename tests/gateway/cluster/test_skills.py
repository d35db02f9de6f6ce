"""Skills where many workers share a database: what is trusted holds for all, and each compares its own files."""

from __future__ import annotations

import asyncio
from pathlib import Path

from gateway.app.gateway import Gateway
from gateway.services.caller import Refused, operator
from gateway.skills.archive import packed
from tests.gateway.cluster.test_gateways import PATIENCE_S, config, serving
from tests.gateway.skills.conftest import text, write

OPERATOR = operator("test")
FILES = {"SKILL.md": text().encode()}


async def has(gateway: Gateway, name: str = "packing") -> bool:
    offered = await gateway.skills.offered("assistant")
    return offered is not None and name in offered.skills


async def until(gateway: Gateway, *, is_there: bool) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await has(gateway) is not is_there:
            await asyncio.sleep(0.02)


async def test_a_yes_at_one_worker_reaches_the_other_whose_files_are_the_same(
    postgres_url: str, tmp_path: Path
) -> None:
    shared = f"skills: {{paths: ['{tmp_path / 'shared'}']}}\n"
    async with (
        serving(config(tmp_path / "north", postgres_url, "north", shared)) as (north, _),
        serving(config(tmp_path / "south", postgres_url, "south", shared)) as (south, _),
    ):
        service = (await north.load_services()).skills
        added = await service.added(OPERATOR, packed(FILES, "packing"), personality=None, replaces=False, pin=None)
        assert added.directory == str(tmp_path / "shared" / "packing"), "all workers have it there"
        assert not await has(north)
        assert not await has(south)
        assert added.pin is not None
        await service.trusted(OPERATOR, "packing", None, added.pin)
        assert await has(north)
        await until(south, is_there=True)
        await service.removed(OPERATOR, "packing", None)
        await until(south, is_there=False)
        assert [*(tmp_path / "shared").iterdir()] == []


async def test_a_worker_whose_files_differ_or_are_not_there_withholds_it_and_says_so(
    postgres_url: str, tmp_path: Path
) -> None:
    """Files on each machine: nothing shared but the database."""
    north_home, south_home = (config(tmp_path / name, postgres_url, name) for name in ("north", "south"))
    write(north_home / "skills")
    async with serving(north_home) as (north, _), serving(south_home) as (south, _):
        service = (await north.load_services()).skills
        seen = await service.shown(OPERATOR, "packing", None)
        assert seen.pin is not None
        await service.trusted(OPERATOR, "packing", None, seen.pin)
        assert (await has(north), await has(south)) == (True, False)
        problems = "\n".join((await south.health()).problems)
        assert "the skill packing is trusted, and its files are not on this machine" in problems
        assert "packing" not in "\n".join((await north.health()).problems)
        root = write(south_home / "skills")
        south.skills.reread()
        assert await has(south)
        (root / "SKILL.md").write_text(text() + "Another.")
        south.skills.reread()
        assert not await has(south)
        assert "(SKILL.md has changed)" in "\n".join((await south.health()).problems)


async def test_nothing_is_added_where_workers_share_no_directory(postgres_url: str, tmp_path: Path) -> None:
    async with serving(config(tmp_path / "north", postgres_url, "north")) as (north, _):
        service = (await north.load_services()).skills
        for personality, why in (
            (None, "name a directory that they share in `skills.paths`"),
            ("engineer", "share no"),
        ):
            try:
                await service.added(
                    OPERATOR, packed(FILES, "packing"), personality=personality, replaces=False, pin=None
                )
            except Refused as error:
                assert why in str(error)  # noqa: PT017 (the same for both)
            else:
                raise AssertionError("it was taken")
        assert not (north.home / "skills").exists()
