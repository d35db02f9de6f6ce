"""Tools that the configuration names and that cannot be used here are left out, and health says why."""

from __future__ import annotations

from tests.gateway.way.conftest import House

SECRET = "canary-of-tools"


async def test_health_says_which_tools_are_left_out(house: House) -> None:
    package = {"package": "tests.tool_packages.failing", "token": SECRET}
    more = {"tools": {"python": True, "packages": [package]}, "sandbox": {"command": ["no-such-program"]}}
    async with house.gateway(**more) as (gateway, _):
        health = await gateway.health()
    said = "\n".join(health.problems)
    assert "no sandbox works here, so tools that run programs are left out" in said
    assert "the tools of tests.tool_packages.failing are left out" in said
    assert SECRET not in said
