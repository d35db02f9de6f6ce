"""The gateway itself by HTTP."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.agent.budgets import Bill
from gateway.agent.model import ModelUsage, Spender
from gateway.app.gateway import Gateway
from gateway.config import LiveConfig
from gateway.config.file import load_config
from gateway.services.caller import Caller, NotAllowed
from gateway.services.system import HIDDEN, SystemService

from .traces import traced


async def test_health_is_what_the_checkup_says(tmp_path: Path) -> None:
    async with traced(tmp_path / "home") as running:
        await running.gateway.supervisor.all_tried.wait()
        found = (await running.api.get("/system/health")).json()
        assert (found["status"], found["isReady"], found["storeProblem"]) == ("ok", True, None)
        assert [one["name"] for one in found["channels"]] == ["fake"]
        (channel,) = (await running.api.get("/system/channels")).json()["items"]
        assert (channel["kind"], channel["state"], channel["error"]) == ("fake", "up", None)


async def test_usage_is_by_day_person_personality_and_model(
    gateway: Gateway, operator_api: httpx.AsyncClient, ada: str
) -> None:
    cache = {"cached_tokens": 4, "written_tokens": 1}
    call = ModelUsage(model="small", input_tokens=10, output_tokens=5, cost_usd=0.5, **cache)
    day = (await operator_api.get("/system/usage", params={"days": 1})).json()["since"]
    for user in (ada, "u_other"):
        spender = Spender(user_id=user, personality_id="assistant", turn_id=user)
        await gateway.store.usage.settle(Bill(None, spender, day, [call]))
    rows = (await operator_api.get("/system/usage", params={"user": "mail:ada@example.org"})).json()["rows"]
    assert rows == [
        {
            "day": day,
            "user": ada,
            "personality": "assistant",
            "model": "small",
            "turns": 1,
            "calls": 1,
            "inputTokens": 10,
            "outputTokens": 5,
            "cachedTokens": 4,
            "writtenTokens": 1,
            "cachedShare": 0.4,
            "costUsd": 0.5,
        }
    ]
    assert len((await operator_api.get("/system/usage")).json()["rows"]) == 2


CONFIG = """
model: big
models:
  big: {provider: openai, model: m, base_url: "http://127.0.0.1:9/v1", api_key: "${BIG_KEY}"}
channels:
  hook: {kind: webhook, secret: "${HOOK_SECRET}", reply_url: "http://127.0.0.1:9/replies"}
"""


async def test_the_configuration_is_shown_without_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIG_KEY", "sk-canary-of-the-model")
    secret = "whsec_" + base64.b64encode(b"canary-of-the-hook-canary-of-it!").decode()
    monkeypatch.setenv("HOOK_SECRET", secret)
    (tmp_path / "config.yaml").write_text(CONFIG, encoding="utf-8")
    config = load_config(home=tmp_path).config
    unused: Any = None
    desk = SystemService(
        checkup=unused,
        usage=unused,
        config=LiveConfig(config),
        naming=unused,
        reload=unused,
        privacy=unused,
        workers=unused,
        holding=unused,
    )
    values = (await desk.settings(Caller(name="test"))).values
    assert "canary" not in str(values)
    assert secret not in str(values)
    assert values["models"]["big"]["api_key"] == HIDDEN
    assert values["models"]["big"]["base_url"] == "http://127.0.0.1:9/v1"
    assert values["channels"]["hook"]["kind"] == "webhook"
    with pytest.raises(NotAllowed):
        await desk.settings(Caller(name="test", user_id="u_1"))
