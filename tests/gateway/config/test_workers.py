"""`store:` and `worker:`: what many workers need, and what is wrong with it, with what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config import Config
from gateway.config.file import load_config
from gateway.errors import ConfigError

SECRET = "00" * 15 + "11" * 17
URL = "postgresql://ethos:canary-7c0ffee@db.example.org/ethos"
SHARED = f"secret: '${{SECRET}}'\nstore: {{url: '{URL}'}}\n"


def loaded(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    path.chmod(0o600)
    return load_config(path, environment={"SECRET": "".join(f"{number:02x}" for number in range(32))}).config


def problems(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        loaded(tmp_path, text)
    assert "canary" not in str(raised.value)
    return raised.value.problems


def test_without_a_word_of_it_there_is_one_worker_with_all_roles_and_a_file(tmp_path: Path) -> None:
    config = loaded(tmp_path, "")
    assert not config.has_others
    assert config.store.listens_at is None
    assert (config.worker.roles, config.worker.channels) == (("channels", "turns", "web"), "all")
    assert config.limits.lease_s == 60


def test_a_claim_is_shorter_where_others_can_take_it_over_unless_it_is_said(tmp_path: Path) -> None:
    assert loaded(tmp_path, SHARED).limits.lease_s == 15
    assert loaded(tmp_path, SHARED + "limits: {running_turns: 3}").limits.lease_s == 15
    assert loaded(tmp_path, SHARED + "limits: {lease_s: 30}").limits.lease_s == 30


def test_news_are_heard_at_the_database_or_at_the_server_behind_its_pooler_or_not_at_all(tmp_path: Path) -> None:
    direct = URL.replace("db.", "direct.")
    assert loaded(tmp_path, SHARED).store.listens_at == URL
    listening = SHARED.replace("'}", f"', listen_url: '{direct}'}}")
    assert loaded(tmp_path, listening).store.listens_at == direct
    assert loaded(tmp_path, listening.replace(direct, "off")).store.listens_at is None


def test_several_hosts_stand_in_one_address(tmp_path: Path) -> None:
    url = URL.replace("db.example.org", "a:5432,b:5433") + "?target_session_attrs=read-write"
    assert loaded(tmp_path, SHARED.replace(URL, url)).store.listens_at == url


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("mysql://ethos:canary@db/ethos", "not an address with postgresql:// or postgres://; expected such as"),
        ("ethos.db", "not an address with postgresql:// or postgres://; expected such as"),
        ("postgresql://ethos:ca/nary@db/ethos", "is not escaped; expected %40 for @"),
        ("postgresql://ethos:canary@db/ethos?unheard=of", "PostgreSQL's library takes; expected such as"),
    ],
)
@pytest.mark.parametrize("key", ["url", "listen_url"])
def test_an_address_that_cannot_be_used(tmp_path: Path, url: str, wanted: str, key: str) -> None:
    [problem] = problems(tmp_path, f"store: {{{key}: '{url}'}}")
    assert problem.startswith("config.yaml:1:")
    assert f"store.{key}: " in problem
    assert wanted in problem


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("worker: {roles: [cook]}", "worker.roles[0]: 'cook'"),
        ("worker: {roles: []}", "worker.roles: no role at all; expected some of channels, turns, web"),
        ("channels: {}\nworker: {channels: [chat]}", "there is no channel 'chat'; expected `all`, or names of"),
        ("store: {connections: 1}", "store.connections"),
        ("store: {upgrade: never}", "store.upgrade"),
        ("store: {statement_timeout_s: 0}", "store.statement_timeout_s"),
        (f"store: {{url: '{URL}'}}", "secret: missing; workers that share a database have one secret"),
    ],
)
def test_what_else_is_wrong(tmp_path: Path, text: str, wanted: str) -> None:
    assert any(wanted in problem for problem in problems(tmp_path, text)), problems(tmp_path, text)


@pytest.mark.parametrize("provider", ["markdown", "{kind: markdown}"])
def test_markdown_files_are_refused_where_many_workers_would_share_them(tmp_path: Path, provider: str) -> None:
    told = "\n".join(problems(tmp_path, f"{SHARED}memory: {{provider: {provider}}}"))
    assert "`markdown` cannot be used with `store.url`: its files lie on one machine" in told


@pytest.mark.parametrize("name", ["files", "python", "shell"])
def test_tools_for_files_need_a_directory_that_all_workers_share(tmp_path: Path, name: str) -> None:
    told = "\n".join(problems(tmp_path, f"{SHARED}tools: {{{name}: true}}"))
    assert f"tools.{name}: true, but with `store.url` workers on other machines would not have these files" in told
    assert "set `tools.workspaces` to a directory that all workers share" in told
    told = "\n".join(problems(tmp_path, f"{SHARED}tools: {{{name}: true, workspaces: files}}"))
    assert "tools.workspaces: 'files' is no whole path; expected one such as /mnt/ethos" in told
    assert loaded(tmp_path, f"{SHARED}tools: {{{name}: true, workspaces: /mnt/ethos}}").tools.workspaces == "/mnt/ethos"


def test_a_shared_directory_without_other_workers_has_no_effect(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("tools: {files: true, workspaces: /mnt/ethos}")
    [warning] = load_config(path, environment={}).warnings
    assert "tools.workspaces: has no effect without `store.url`" in warning


def test_roles_stand_in_one_order(tmp_path: Path) -> None:
    assert loaded(tmp_path, "worker: {roles: [web, turns], name: north}").worker.roles == ("turns", "web")


def test_roles_of_the_only_worker_are_unwise(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("worker: {roles: [turns], name: north}")
    [warning] = load_config(path, environment={}).warnings
    assert "worker: has no effect without `store.url`" in warning
