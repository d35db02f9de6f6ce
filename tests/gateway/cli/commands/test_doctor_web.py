"""`ethos doctor` says what the agent lacks for the web, and asks the search service where it is told to."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.ops.doctor import web as doctor_web
from gateway.sandbox import probing
from gateway.tools.web import reading
from tests.gateway.cli.commands.conftest import Ethos
from tests.servers import free_port

KEY = "canary-7c0ffee"
Found = Callable[..., list[tuple[str, str, str]]]


class Service(ThreadingHTTPServer):
    """Answers as Brave does."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", free_port()), _Handler)
        self.status = 200
        self.body: Any = {"type": "search", "web": {"results": [{"title": "a", "url": "https://example.org/"}]}}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/search"


class _Handler(BaseHTTPRequestHandler):
    server: Service

    def do_GET(self) -> None:
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(json.dumps(self.server.body).encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the library's name)
        pass


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as service:
        thread = threading.Thread(target=service.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield service
        finally:
            service.shutdown()
            thread.join()


@pytest.fixture
def found(ethos: Ethos, home: Path) -> Found:
    """What the doctor finds of the web: level, what, advice."""

    def examine(web: dict[str, Any], *words: str) -> list[tuple[str, str, str]]:
        (home / "config.yaml").write_text(yaml.safe_dump({"web": web}))
        (home / "config.yaml").chmod(0o600)
        findings = ethos("doctor", "--json", *words).value
        told = [(one["level"], one["what"], one["advice"]) for one in findings]
        return [one for one in told if any(word in one[1] for word in ("ages", "PDF", "search of", "searches"))]

    return examine


def test_where_the_web_is_off_nothing_is_said_and_nothing_tried(found: Found, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_web, "find_sandbox", None)
    assert found({}) == []


def test_the_sandbox_that_reads_pages_is_named(found: Found) -> None:
    [(level, what, _)] = found({"fetch": True})
    assert (level, what.rpartition(" ")[0]) == ("note", "Pages are read in a sandbox:")


def test_what_is_missing_is_said_with_what_to_do(found: Found, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LIBRARY", "no_such_library")
    monkeypatch.setattr(reading, "PDF_LIBRARY", "no_such_reader")
    _, pages, pdfs = found({"fetch": True})
    assert pages[:2] == (
        "warning",
        "Pages are read as plain text, their menus too, because no_such_library is not installed.",
    )
    assert "pip install" in pages[2]
    assert pdfs[:2] == ("warning", "PDFs are not read, because no_such_reader is not installed.")
    monkeypatch.setattr(doctor_web, "HTTP_LIBRARY", "no_such_library")
    [(level, what, advice)] = found({"fetch": True})
    assert (level, what) == ("problem", "The library to fetch pages is not installed, so the agent reads none.")
    assert "pip install" in advice


def test_where_no_sandbox_works_the_remedy_is_said(found: Found, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fault(_tier: object) -> str:
        return "it was switched off"

    monkeypatch.setattr(probing, "bubblewrap", lambda: None)
    monkeypatch.setattr(probing, "fault_of", fault)
    [(level, what, advice)] = found({"fetch": True})
    assert (level, what.startswith("No sandbox works here, so pages are read as plain text")) == ("warning", True)
    assert "install it with `apt install bubblewrap`" in advice


def test_a_search_service_is_asked_where_models_are(found: Found, service: Service) -> None:
    search = {"search": {"kind": "brave", "api_key": KEY, "url": service.url}}
    assert found(search)[0][1] == (
        "The agent searches the web with brave. It was not asked: `ethos doctor --ask` does."
    )
    assert found(search, "--ask") == [("note", "The search of the web with brave works.", "")]
    service.status, service.body = 422, {"type": "ErrorResponse", "error": {"code": "SUBSCRIPTION_TOKEN_INVALID"}}
    [(level, what, advice)] = found(search, "--ask")
    refused = "does not work: Brave Search refuses the key; correct `web.search.api_key`."
    assert (level, what) == ("problem", f"The search of the web with brave {refused}")
    assert advice.startswith("Correct `web.search` in config.yaml")
    away = {"search": {"kind": "searxng", "url": f"http://127.0.0.1:{free_port()}"}}
    assert "SearXNG is not reached at 127.0.0.1" in found(away, "--ask")[0][1]


def test_a_package_that_is_not_there_is_a_problem(found: Found) -> None:
    told = found({"search": {"kind": "acme.search"}})
    assert ("problem", "there is no package 'acme.search' here") in [
        (level, what.partition(": ")[2].partition(";")[0]) for level, what, _ in told
    ]
