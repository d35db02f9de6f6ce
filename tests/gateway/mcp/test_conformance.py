"""The protocol's own conformance program against our client. It knows the eras up to 2025-11-25."""

from __future__ import annotations

import re
import sys

import pytest

from tests.servers.npm import MISSING, conformance

pytestmark = [pytest.mark.slow, pytest.mark.skipif(MISSING is not None, reason=MISSING or "")]
CLIENT = f"{sys.executable} -m tests.gateway.mcp.conformance_client"
SIGNING_CLIENT = f"{sys.executable} -m tests.gateway.mcp.conformance_sign_in"
SCENARIOS = ("initialize", "tools_call", "sse-retry", "elicitation-sep1034-client-defaults")
SIGN_INS = (
    "auth/metadata-default",
    "auth/metadata-var1",
    "auth/metadata-var2",
    "auth/metadata-var3",
    "auth/scope-from-www-authenticate",
    "auth/client-credentials-basic",
    "auth/scope-step-up",
    "auth/scope-retry-limit",
    "auth/scope-from-scopes-supported",
    "auth/scope-omitted-when-undefined",
    "auth/token-endpoint-auth-basic",
    "auth/token-endpoint-auth-post",
    "auth/token-endpoint-auth-none",
    "auth/pre-registration",
    "auth/2025-03-26-oauth-endpoint-fallback",
    "auth/resource-mismatch",
    "auth/offline-access-scope",
    "auth/offline-access-not-supported",
)
LEFT_OUT = {
    "the program takes one address for a client's metadata document, and ours is at another": ("auth/basic-cimd",),
    "its metadata names another issuer than the address it is at, which RFC 8414 (section 3.3) forbids": (
        "auth/2025-03-26-oauth-metadata-backcompat",
    ),
    "not offered: a signed assertion in place of a secret, and a token of another application": (
        "auth/client-credentials-jwt",
        "auth/cross-app-access-complete-flow",
    ),
}


@pytest.mark.parametrize("scenario", SCENARIOS + SIGN_INS)
async def test_the_conformance_program_finds_no_fault_in_the_client(scenario: str) -> None:
    client = SIGNING_CLIENT if scenario in SIGN_INS else CLIENT
    code, said = await conformance("client", "--command", client, "--scenario", scenario)
    assert code == 0, said
    assert "0 failed, 0 warnings" in said


async def test_each_scenario_of_the_program_is_run_or_has_a_reason() -> None:
    _, said = await conformance("list")
    _, of_clients = said.split("Client scenarios")
    reasons = tuple(name for names in LEFT_OUT.values() for name in names)
    found = re.findall(r"^  - (\S+)", of_clients, re.MULTILINE)
    assert sorted(name for name in found if not name.startswith(reasons)) == sorted(SCENARIOS + SIGN_INS)
