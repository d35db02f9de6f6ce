"""The running API against its own document: schemathesis sends what it allows and what it forbids, all checks on."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import httpx
import pytest

from gateway.app.gateway import Gateway
from gateway.people.tries import SignInFailuresInMemory

# `/chat/events` never ends by itself; test_chat.py has it.
ARGUMENTS = ["--checks", "all", "--max-examples", "15", "--exclude-path", "/chat/events", "--no-color", "--seed", "1"]
# More than a schema can say, so a 422 may be right: that a personality's text is valid YAML, and that whoever erases a
# person has typed that person's id.
# A cursor is opaque (400), and the version to replace may be in the body or in a header (428). The Markdown files
# cannot be searched (501). No schema says which path is a document, or which text is a map of accounts (422), nor that
# a schedule has exactly one rule, in a zone that there is, and is not due too often, nor which keys there are and what
# the configuration takes together; nor whom a request without a person means, once an invitation has made a second one.
CONFIG = """
[auth.openapi.token]
bearer = {token}

[checks]
positive_data_acceptance.expected-statuses = ["2xx", "3xx", 400, 401, 403, 404, 409, 412, 428, 429, "5xx"]

[[operations]]
include-path = "/personalities/{{personality}}"

[operations.checks]
positive_data_acceptance.expected-statuses = [200, 401, 403, 404, 409, 422]

[[operations]]
include-path = "/memory/search"

[operations.checks]
not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", 501]

[[operations]]
include-path = "/people/{{user}}/erase"

[operations.checks]
positive_data_acceptance.expected-statuses = [200, 202, 401, 403, 404, 409, 422]

[[operations]]
include-path = "/files"

[operations.checks]
positive_data_acceptance.expected-statuses = ["2xx", 400, 401, 403, 404, 409, 412, 422, 428]

[[operations]]
include-path = "/files/text"

[operations.checks]
positive_data_acceptance.expected-statuses = ["2xx", 400, 401, 403, 404, 409, 412, 422, 428]

[[operations]]
include-path = "/people/identity-map"

[operations.checks]
positive_data_acceptance.expected-statuses = ["2xx", 400, 401, 403, 404, 409, 412, 422, 428]

[[operations]]
include-path-regex = "^/schedules(/{{schedule}})?$"

[operations.checks]
positive_data_acceptance.expected-statuses = ["2xx", 400, 401, 403, 404, 409, 422]

[[operations]]
include-path-regex = "^/(settings(/propose)?|channels(/try)?|models(/offers|/try)?|people/invitations)$"

[operations.checks]
positive_data_acceptance.expected-statuses = ["2xx", 400, 401, 403, 404, 409, 422]

[[operations]]
include-path-regex = "^/memory(/why)?$"

[operations.checks]
positive_data_acceptance.expected-statuses = ["2xx", 400, 401, 403, 404, 409, 412, 422, 428]
"""
PROGRAM = "import sys; from schemathesis.cli import schemathesis; sys.argv[0] = 'st'; schemathesis()"


@pytest.mark.slow
async def test_the_api_keeps_what_its_document_says(
    gateway: Gateway, operator_api: httpx.AsyncClient, tmp_path: Path
) -> None:
    """Every status, header and body is as documented; nothing invalid is taken and nothing valid refused."""
    gateway.web._auth._failures = SignInFailuresInMemory(max_failures=1_000_000)  # it tries wrong tokens, too
    document = tmp_path / "openapi.json"
    document.write_bytes((await operator_api.get("/openapi.json")).content)
    token = (gateway.home / "web-token").read_text().strip()
    config = tmp_path / "schemathesis.toml"
    config.write_text(CONFIG.format(token=json.dumps(token)), encoding="utf-8")
    arguments = ["--config-file", config, "run", document, "--url", gateway.web.url + "api/v1", *ARGUMENTS]
    hooks = {"SCHEMATHESIS_HOOKS": "schemathesis_hooks", "PYTHONPATH": str(Path(__file__).parent)}
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, *map(str, arguments)),
        env={**os.environ, **hooks},
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await running.communicate()
    assert running.returncode == 0, output.decode()
    health = (await operator_api.get("/system/health")).json()
    assert health["storeProblem"] is None
