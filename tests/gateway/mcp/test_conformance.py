"""The protocol's own conformance program against our client. It knows the eras up to 2025-11-25."""

from __future__ import annotations

import re
import sys

import pytest

from tests.servers.npm import MISSING, conformance

pytestmark = [pytest.mark.slow, pytest.mark.skipif(MISSING is not None, reason=MISSING or "")]
CLIENT = f"{sys.executable} -m tests.gateway.mcp.conformance_client"
SCENARIOS = ("initialize", "tools_call", "sse-retry", "elicitation-sep1034-client-defaults")
LEFT_OUT = {
    "a sign-in by OAuth without a browser and a person": ("auth/",),
}


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_the_conformance_program_finds_no_fault_in_the_client(scenario: str) -> None:
    code, said = await conformance("client", "--command", CLIENT, "--scenario", scenario)
    assert code == 0, said
    assert "0 failed, 0 warnings" in said


async def test_each_scenario_of_the_program_is_run_or_has_a_reason() -> None:
    _, said = await conformance("list")
    _, of_clients = said.split("Client scenarios")
    reasons = tuple(name for names in LEFT_OUT.values() for name in names)
    found = re.findall(r"^  - (\S+)", of_clients, re.MULTILINE)
    assert sorted(name for name in found if not name.startswith(reasons)) == sorted(SCENARIOS)
