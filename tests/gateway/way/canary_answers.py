"""What the API and an export give one person, looked through for the words of all others."""

from __future__ import annotations

import io
import itertools
import random
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
from fastapi.routing import APIRoute
from starlette.routing import Mount, Route

from gateway.app.gateway import Gateway
from gateway.services.caller import OF_A_PERSON, operator
from gateway.web.api.application import make_fastapi, routes_of, rule_of
from gateway.web.lazy import Lazy

SAMPLE = 3
ASKED = ("CANARY", "canary*")
# Lists that say which ids there are, each with the parameter that such an id is for.
LISTS = {
    "approval": "/approvals",
    "change": "/memory/changes",
    "proposal": "/memory/proposals",
    "schedule": "/schedules",
    "session": "/sessions",
}
# What answers nobody here with a person's key.
SILENT = {
    "/chat/events": "no session in this test was begun through the API",
    "/people/pairing": "is of strangers",
    "/memory/search": "is refused to the key of a person",
    "/personalities/{personality}": "its files are everybody's",
    **dict.fromkeys(("/files", "/files/text", "/files/revision"), "is refused to the key of a person"),
    **dict.fromkeys(("/mcp/servers", "/skills", "/skills/{skill}"), "is refused to the key of a person"),
    # The trace memory is off here; tests/gateway/api/test_traces.py asks each of these as two people.
    **dict.fromkeys(
        (
            "/traces",
            "/traces/consolidations",
            "/traces/export",
            "/traces/recalled",
            "/traces/{trace}",
            "/traces/{trace}/graph",
            "/traces/{trace}/strength",
        ),
        "needs the trace memory",
    ),
}


def canaries(text: str) -> set[str]:
    return set(re.findall(r"CANARY-(\d+)x", text))


async def whose_words_are_answered(gateway: Gateway, people: Mapping[str, str], personality: str) -> None:
    """Every GET of the API with each person's own key; `people` are the user ids of everybody, by their numbers."""
    assert gateway.web is not None
    services, choose = gateway.web.api.services, random.Random(28)
    routes = [route for route in routes_of(make_fastapi(services)) if "GET" in route.methods]
    answered: Counter[str] = Counter()
    async with httpx.AsyncClient(base_url=gateway.web.url + "api/v1", trust_env=False, timeout=60) as client:
        client.headers["authorization"] = f"Bearer {(gateway.home / 'web-token').read_text().strip()}"
        known = {name: await everything(client, path) for name, path in LISTS.items()}
        assert all(known.values())
        for user, user_id in people.items():
            key = await services.keys.create(operator("test"), f"of {user}", sorted(OF_A_PERSON), user_id)
            client.headers["authorization"] = f"Bearer {key.key}"
            others = choose.sample([one for one in people.values() if one != user_id], SAMPLE)
            for route in routes:
                ids = ids_for(known, user_id, others, personality, choose)
                for path, query in itertools.product(paths(route, ids), queries(route, [user_id, *others])):
                    response = await client.get(path, params=query)
                    text = read(response)
                    assert canaries(text) <= {user}, (user, path, query)
                    strangers = set(people.values()) - {user_id, *path.split("/"), query.get("user")}
                    assert not [one for one in strangers if one in text], (user, path, query)
                    answered[route.path] += response.status_code == 200 and bool(canaries(text))
                    answered[f"{route.path} 200"] += response.status_code == 200
                    is_others = set(path.split("/")) & set(others) or query.get("user") in others
                    assert not is_others or response.status_code >= 400, (path, query)
            await no_page_opens(gateway, client)
    silent = {route.path for route in routes if rule_of(route) in OF_A_PERSON and not answered[f"{route.path} 200"]}
    assert silent == set(SILENT), silent
    assert {"/memory", "/sessions/{session}", "/people/{user}/export"} <= {path for path in answered if answered[path]}


async def everything(client: httpx.AsyncClient, path: str) -> list[dict[str, Any]]:
    found, cursor = [], None
    while True:
        query = {"cursor": cursor} if cursor else {}
        page = (await client.get(path, params=query)).raise_for_status().json()
        found += page["items"]
        cursor = page["nextCursor"]
        if cursor is None:
            return found


def ids_for(
    known: Mapping[str, list[dict[str, Any]]], user_id: str, others: list[str], personality: str, choose: random.Random
) -> dict[str, list[str]]:
    """For each parameter of a path some that are the person's own, and some of others."""
    ids = {
        "user": [user_id, *others],
        "personality": [personality],
        "queue": ["inbox", "outbox"],
        "delivery": ["t_1", "t_2"],
        "trace": ["1"],
        "erasure": ["e_none"],
        "approval": ["1"],
        "skill": ["none"],
        "kind": ["webhook"],
        "channel": ["local"],
    }
    for name, items in known.items():
        own = [item for item in items if item.get("user") == user_id]
        ids[name] = [str(item["id"]) for item in (*own[:SAMPLE], *choose.sample(items, SAMPLE))]
    return ids


def paths(route: APIRoute, ids: Mapping[str, list[str]]) -> Iterator[str]:
    names = re.findall(r"{(\w+)}", route.path)
    for values in itertools.product(*(ids[name] for name in names)):
        path = route.path
        for name, value in zip(names, values, strict=True):
            path = path.replace(f"{{{name}}}", value)
        yield path


def queries(route: APIRoute, users: list[str]) -> Iterator[dict[str, str]]:
    """Each mixture of the questions that the route knows."""
    asked = {"user": [None, *users], "store": [None, "user", "memory"], "q": [None, *ASKED], "line": [ASKED[0]]}
    names = [param.alias for param in route.dependant.query_params if param.alias in asked]
    for values in itertools.product(*(asked[name] for name in names)):
        yield {name: value for name, value in zip(names, values, strict=True) if value is not None}


def read(response: httpx.Response) -> str:
    """All that an answer says, what is packed into it too."""
    if response.headers.get("content-type") == "application/zip":
        with zipfile.ZipFile(io.BytesIO(response.content)) as archive:
            return "\n".join([*archive.namelist(), *(archive.read(name).decode() for name in archive.namelist())])
    return response.text


async def no_page_opens(gateway: Gateway, client: httpx.AsyncClient) -> None:
    """A key is for the API; whatever else the server has asks for the operator."""
    assert gateway.web is not None
    (door,) = {route.app for route in gateway.web.routes if isinstance(route, Mount) and isinstance(route.app, Lazy)}
    dashboard = await door.application()
    pages = [
        re.sub(r"{[^}]+}", "1", f"dashboard{route.path}") for route in dashboard.routes if isinstance(route, Route)
    ]
    assert len(pages) > 4
    for path in (*pages, "", "metrics"):
        response = await client.get(gateway.web.url + path, headers={"accept": "text/html"})
        is_sent_away = response.status_code == 303 and response.headers["location"].startswith("/login")
        assert is_sent_away or response.status_code in (401, 403, 404), (path, response.status_code)
        assert not canaries(response.text)
