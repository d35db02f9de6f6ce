"""A gateway, and clients of `/v1` on a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.app.gateway import Gateway
from gateway.domain.sessions import SessionMessage
from gateway.services.caller import operator
from gateway.store.session_edits import ListedSession, SessionFilter
from tests.gateway.way.conftest import House

OPERATOR = operator("test")
TALKS = ("chat:read", "chat:write")
WAIT_S = 60


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path / "home")


def base_of(gateway: Gateway) -> str:
    return f"{gateway.web.url}v1"


def token_of(gateway: Gateway) -> str:
    return (gateway.home / "web-token").read_text().strip()


async def key_of(gateway: Gateway, *scopes: str, user: str | None = None) -> str:
    return (await gateway.web.api.services.keys.create(OPERATOR, "a key", scopes or TALKS, user)).key


@asynccontextmanager
async def client_of(gateway: Gateway, key: str | None = None, **headers: str) -> AsyncIterator[httpx.AsyncClient]:
    """A program with this key; with the operator's token without one."""
    headers["authorization"] = f"Bearer {key or token_of(gateway)}"
    async with httpx.AsyncClient(base_url=base_of(gateway), headers=headers, trust_env=False, timeout=WAIT_S) as client:
        yield client


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


async def complete(client: httpx.AsyncClient, *messages: Any, **more: Any) -> dict[str, Any]:
    """The whole answer, where there is one."""
    response = await client.post("/chat/completions", json={"model": "ethos", "messages": messages, **more})
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


async def answer(client: httpx.AsyncClient, *messages: Any, **more: Any) -> str:
    """Its text."""
    text: str = (await complete(client, *messages, **more))["choices"][0]["message"]["content"]
    return text


async def refusal(client: httpx.AsyncClient, status: int, body: Any, path: str = "/chat/completions") -> dict[str, Any]:
    """OpenAI's error, where there is one of this status."""
    response = await client.post(path, json=body)
    assert response.status_code == status, response.text
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


async def sessions_of(gateway: Gateway) -> Sequence[ListedSession]:
    """All, in the order in which they began."""
    found = await gateway.store.session_edits.listed(SessionFilter(), limit=100)
    return sorted(found, key=lambda one: one.number)


async def messages_of(gateway: Gateway, session: ListedSession) -> Sequence[SessionMessage]:
    return await gateway.store.sessions.messages(session.session.id)


async def texts_of(gateway: Gateway, session: ListedSession) -> list[str]:
    return [message.text for message in await messages_of(gateway, session)]


async def has_answer(gateway: Gateway) -> bool:
    """Whether a program is noted to have an answer."""
    return bool(await gateway.store.engine.rows("SELECT 1 FROM talks WHERE answered IS NOT NULL"))


async def has_left(gateway: Gateway) -> bool:
    """Whether a program is noted to have gone away."""
    return bool(await gateway.store.engine.rows("SELECT 1 FROM talks WHERE left_at IS NOT NULL"))


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(WAIT_S):
        while not await holds():
            await asyncio.sleep(0.01)
