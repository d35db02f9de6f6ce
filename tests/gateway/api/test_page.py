"""The examples of `docs/api.md` do what the page says, in the order in which they stand there."""

from __future__ import annotations

import asyncio
import re
import zipfile
from pathlib import Path

import httpx

from gateway.app.gateway import Gateway
from gateway.services.caller import PERMISSIONS

PAGE = (Path(__file__).parents[3] / "docs" / "api.md").read_text(encoding="utf-8")


async def test_every_example_of_the_page_succeeds(gateway: Gateway, tmp_path: Path) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(blocks) > 6
    script = "\n".join(["set -eu", *blocks])
    script = script.replace("http://localhost:8420/", gateway.web.url).replace("~/.ethos/", f"{gateway.home}/")
    running = await asyncio.create_subprocess_exec(
        "bash", "-xc", script, cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    output, trace = await running.communicate()
    assert running.returncode == 0, trace.decode()[-2000:]
    text = output.decode()
    assert "event: live" in text
    assert "event: message" in text
    assert "Tea at five." in text
    assert '"title":"Names"' in text
    assert "# Names" in text
    assert zipfile.is_zipfile(tmp_path / "export.zip")


async def test_the_page_has_every_scope_and_every_namespace(operator_api: httpx.AsyncClient) -> None:
    assert set(re.findall(r"`([a-z]+:(?:read|write))`", PAGE)) == set(PERMISSIONS)
    paths = (await operator_api.get("/openapi.json")).json()["paths"]
    for namespace in {path.split("/")[1] for path in paths}:
        assert namespace in PAGE, namespace
