"""The calls of docs/hooks.md, made by curl and openssl as they stand there."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gateway.people.access_records import SetRank
from tests.fake_channel import FakeChannel
from tests.gateway.way.conftest import House, settled
from tests.scripted_model import ScriptedModel

PAGE = (Path(__file__).parents[3] / "docs" / "hooks.md").read_text(encoding="utf-8")
CALLS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
SECRETS = {
    "CI_HOOK_SECRET": "whsec_" + "A" * 43 + "=",
    "REPO_HOOK_SECRET": "5" * 64,
    "ALERTS_HOOK_SECRET": "7" * 64,
}
HOOKS = {
    "ci": {"secret": SECRETS["CI_HOOK_SECRET"], "text": "Say what failed."},
    "repo": {"secret": SECRETS["REPO_HOOK_SECRET"], "proof": "github", "text": "Say what it is about."},
    "alerts": {"secret": SECRETS["ALERTS_HOOK_SECRET"], "proof": "address", "text": "Say how bad it is."},
}


async def test_each_call_of_the_page_begins_a_turn(tmp_path: Path) -> None:
    if shutil.which("curl") is None or shutil.which("openssl") is None:
        pytest.skip("no curl or openssl here")
    assert len(CALLS) == len(HOOKS)
    model = ScriptedModel(*(["answered"] * len(CALLS)))
    async with House(tmp_path / "home").served(model, hooks=HOOKS) as gateway:
        channel = gateway.adapters[0]
        assert isinstance(channel, FakeChannel)
        await gateway.identities.resolve("fake:1", "Ada")
        owner = SetRank(accounts=("fake:1",), rank="owner", via="test", at=datetime.now(UTC))
        await gateway.store.people.change(owner)
        gateway.admission.people.changed()
        await channel.ask("/help")
        assert gateway.web.url is not None
        environment = {**os.environ, **SECRETS, "ETHOS_URL": gateway.web.url.rstrip("/")}
        for shell in CALLS:
            process = await asyncio.create_subprocess_exec(
                "sh", "-c", shell, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
            )
            out, said = await process.communicate()
            assert (process.returncode, said) == (0, b"")
            assert b'"new":true' in out, out
        await settled(gateway)
        asked = [request.messages[-1].text.partition("\n") for request in model.requests]
        assert {instruction for instruction, _, _ in asked} == {str(hook["text"]) for hook in HOOKS.values()}
        assert any("disk of db1 is full" in sent for _, _, sent in asked)


def test_the_page_names_the_bounds_that_the_code_has() -> None:
    from gateway.schedules.hooks import MAX_SHOWN_CHARS, MOST_WAITING
    from gateway.web.hooks import BODY_TIMEOUT_S, MAX_BODY_BYTES

    for number in (MAX_BODY_BYTES, MAX_SHOWN_CHARS):
        assert f"{number:,}".replace(",", " ") in PAGE
    assert f"{MOST_WAITING} calls of this hook wait" in PAGE
    assert f"within {BODY_TIMEOUT_S:g} seconds" in PAGE
