"""`web.search` and what else the agent may do in the web: which service is chosen, and what is wrong with it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway.app.web import search_of
from gateway.config.changes import compare
from gateway.config.file import Loaded, load_config
from gateway.config.listing import settings_of
from gateway.config.search_kinds import PACKAGES
from gateway.errors import ConfigError
from gateway.runtime.logs import secrets_in

SECRET = "canary-7c0ffee"
ENCYCLOPEDIA = "tests.tool_packages.encyclopedia"


def load(tmp_path: Path, web: str) -> Loaded:
    path = tmp_path / "config.yaml"
    path.write_text(f"web: {web}\n")
    path.chmod(0o600)
    return load_config(path, environment={"KEY": SECRET})


def test_without_it_nothing_is_on(tmp_path: Path) -> None:
    web = load_config(home=tmp_path).config.web
    assert (web.fetch, web.search, web.ports, web.allow, web.allow_private) == (False, None, (), (), ())


def test_there_are_three_services_of_ours() -> None:
    assert PACKAGES.known() == ["brave", "searxng", "tavily"]


@pytest.mark.parametrize(
    "search",
    [
        "{kind: brave, api_key: '${KEY}'}",
        "{kind: tavily, api_key: '${KEY}', url: 'http://127.0.0.1/search'}",
        "{kind: searxng, url: 'http://127.0.0.1:8888', token: '${KEY}', language: de}",
        f"{{kind: {ENCYCLOPEDIA}, shelf: herbs, token: '${{KEY}}'}}",
    ],
)
def test_a_service_has_settings_of_its_own_and_its_key_is_shown_nowhere(tmp_path: Path, search: str) -> None:
    loaded = load(tmp_path, f"{{fetch: true, port: 0, search: {search}}}")
    chosen = loaded.config.web.search
    assert chosen is not None
    assert callable(search_of(chosen))
    assert (loaded.config.web.fetch, loaded.config.web.port) == (True, 0), "what stands beside it is kept"
    shown = settings_of(loaded.config, loaded.sources)
    assert SECRET not in f"{loaded}{loaded.config!r}{shown}"
    assert SECRET in set(secrets_in(loaded.config)), "so the log strikes it out"
    [hidden] = [one for one in shown if one.value == "(hidden)"]
    assert (hidden.key.rpartition(".")[0], hidden.source) == ("web.search", "config.yaml:1, from ${KEY}")


def test_a_key_in_the_file_is_warned_of(tmp_path: Path) -> None:
    assert (
        "web.search.api_key: a secret is in the file"
        in load(tmp_path, f"{{search: {{kind: brave, api_key: {SECRET}}}}}").warnings[0]
    )


@pytest.mark.parametrize(
    ("web", "problem"),
    [
        ("{search: brave}", "1:15: web.search: 'brave' is not a section"),
        ("{search: {}}", "web.search.kind: missing; expected one of brave, searxng, tavily, or a package"),
        ("{search: {kind: 7}}", "web.search.kind: 7 is not text"),
        ("{search: {kind: brav, api_key: x}}", "web.search.kind: there is no kind 'brav' (did you mean `brave`?)"),
        ("{search: {kind: brave}}", "web.search.api_key: missing"),
        ("{search: {kind: brave, api_key: '${GONE}'}}", "the environment variable GONE is not set"),
        ("{search: {kind: brave, api_key: {file: gone}}}", "web.search.api_key: "),
        ("{search: {kind: searxng, url: 127.0.0.1}}", "web.search.url: not a web address"),
        ("{search: {kind: searxng, url: 'http://h', tokn: a}}", "web.search.tokn: unknown key (did you mean `token`?)"),
        (f"{{search: {{kind: {ENCYCLOPEDIA}}}}}", "web.search.shelf: missing"),
        ("{fetch: 7}", "web.fetch: "),
        ("{ports: [0]}", "web.ports[0]: "),
        ("{ports: [true]}", "web.ports[0]: true is not a number"),
        ("{allow: [example.org]}", "web.allow[0]: not a web address"),
        ("{allow_private: ['http://wiki.lan/']}", "web.allow_private[0]: not a host"),
    ],
)
def test_what_is_wrong_is_said_with_its_line_and_key(tmp_path: Path, web: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, web)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        ("acme.search", "there is no package 'acme.search' here; expected one that is installed"),
        ("tests.tool_packages.counting", "is no search service; expected `Config` (a pydantic model) and `search`"),
        ("tests.gateway.config.kinds.explodes", "cannot be loaded (RuntimeError"),
    ],
)
def test_a_package_that_cannot_be_used_is_warned_of_and_left_out(tmp_path: Path, kind: str, fault: str) -> None:
    loaded = load(tmp_path, f"{{search: {{kind: {kind}, shelf: a}}}}")
    [warning] = loaded.warnings
    assert "web.search.kind" in warning
    assert fault in warning
    assert warning.endswith("It is left out")
    assert loaded.config.web.search is not None
    with pytest.raises(ValueError, match="expected"):
        search_of(loaded.config.web.search)


def test_a_package_of_another_version_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{ENCYCLOPEDIA}.PLUGIN_API", 0)
    [warning] = load(tmp_path, f"{{search: {{kind: {ENCYCLOPEDIA}, shelf: a}}}}").warnings
    assert "is for 0; expected `PLUGIN_API = 1` in it" in warning


async def test_the_package_and_the_configuration_of_the_page_are_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[3] / "docs" / "web.md").read_text(encoding="utf-8")
    [(name, code)] = re.findall(r"^```python\n# (\S+)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    (tmp_path / name).parent.mkdir()
    (tmp_path / name).write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    chosen = load(tmp_path, "{search: {kind: acme.shelves, shelf: herbs}}").config.web.search
    assert chosen is not None
    [hit] = await search_of(chosen)("tea", 1)
    assert hit.title == "herbs: tea"
    [yaml] = re.findall(r"^```yaml\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    (tmp_path / "page.yaml").write_text(yaml)
    config = load_config(tmp_path / "page.yaml", environment={"BRAVE_API_KEY": SECRET}).config
    assert config.web.search is not None
    assert (config.web.fetch, config.web.search.kind) == (True, "brave")


def test_what_is_allowed_is_taken_over_at_once_and_all_else_with_a_restart(tmp_path: Path) -> None:
    old = load(tmp_path, "{}").config
    new = load(tmp_path, "{fetch: true, allow: ['https://example.org/']}").config
    found = compare(old, new)
    assert (found.at_once, found.at_restart) == (("web.allow",), ("web.fetch",))
