"""An address of a memory that cannot be used gives one error, which says what to do and never shows the password."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pydantic import SecretStr

from gateway.config.addresses import shown
from gateway.config.file import load_config
from gateway.errors import ConfigError
from gateway.runtime.logs import hiding, secrets_in

SECRET = "canary-7c0ffee"
ESCAPE = "the user or password is not escaped; expected %40 for @, %2F for /, %3F for ? and %23 for #"
POSTGRES = "expected such as postgresql://ethos:…@db.example.org/ethos"
REDIS = "expected such as redis://redis.example.org:6379/0"
WEBDAV = "expected such as https://cloud.example.org/remote.php/dav/files/ada/Ethos"


def problems(tmp_path: Path, provider: str) -> list[str]:
    path = tmp_path / "config.yaml"
    path.write_text(f"memory:\n  provider: {provider}\n")
    path.chmod(0o600)
    try:
        load_config(path, environment={})
    except ConfigError as error:
        found = list(error.problems)
    else:
        found = []
    assert SECRET not in "".join(found)
    return found


@pytest.mark.parametrize(
    ("kind", "url", "wanted"),
    [
        ("redis", f"ada:{SECRET}@127.0.0.1", f"not an address with redis:// or rediss:// or unix://; {REDIS}"),
        ("redis", "127.0.0.2:6379", REDIS),
        ("redis", "127.0.0.1:6379", REDIS),
        ("redis", "http://127.0.0.1", REDIS),
        ("redis", "redis:///5", REDIS),
        ("redis", "redis://127.0.0.1:70000", REDIS),
        ("redis", f"redis://:12/{SECRET}@127.0.0.1", ESCAPE),
        ("redis", f"redis://:12#{SECRET}@127.0.0.1", ESCAPE),
        ("redis", f"redis://:12?{SECRET}@127.0.0.1", ESCAPE),
        ("redis", f"redis://:12@{SECRET}@127.0.0.1", ESCAPE),
        ("redis", f"redis://:{SECRET}@127.0.0.1/0?socket_timeout=soon", f"Redis's library takes; {REDIS}"),
        ("redis", f"redis://:{SECRET}@127.0.0.1/0?unheard=of", f"Redis's library takes; {REDIS}"),
        ("redis", f"redis://:{SECRET}@127.0.0.1/notes", f"Redis's library takes; {REDIS}"),
        ("postgres", f"ada:{SECRET}@127.0.0.1/notes", POSTGRES),
        ("postgres", f"host=127.0.0.1 password={SECRET}", POSTGRES),
        ("postgres", f"postgresql://ada:12/{SECRET}@127.0.0.1/notes", ESCAPE),
        (
            "postgres",
            f"postgresql://ada:{SECRET}@127.0.0.1/notes?unheard=of",
            f"PostgreSQL's library takes; {POSTGRES}",
        ),
        ("webdav", f"ada:{SECRET}@cloud.example.org/notes", WEBDAV),
        ("webdav", "cloud.example.org/notes", WEBDAV),
        ("webdav", "davs://cloud.example.org/notes", WEBDAV),
        ("webdav", f"https://ada:{SECRET}@cloud.example.org", "expected `username` and `password` beside it"),
        ("webdav", f"https://cloud.example.org/?token={SECRET}", "expected `username` and `password` beside it"),
    ],
)
def test_an_address_that_cannot_be_used(tmp_path: Path, kind: str, url: str, wanted: str) -> None:
    [problem] = problems(tmp_path, f"{{kind: {kind}, url: '{url}'}}")
    assert problem.startswith("config.yaml:2:")
    assert "memory.provider.url: " in problem
    assert wanted in problem


@pytest.mark.parametrize(
    "provider",
    [
        "{kind: redis, url: 'redis://:a%40b%2Fc@127.0.0.1:1/3?health_check_interval=9'}",
        "{kind: redis, url: 'unix:///run/redis/redis.sock'}",
        "{kind: postgres, url: 'postgresql:///notes?host=/run/postgresql'}",
        "{kind: postgres, url: 'postgres://ada:a%40b@[::1]:1/notes?options=-csearch_path%3Dethos'}",
        "{kind: webdav, url: 'https://cloud.example.org/remote.php/dav/files/ada%40example.org/Ethos'}",
        "{kind: webdav, url: 'https://cloud.example.org/dav/ada@example.org/Ethos'}",
    ],
)
def test_addresses_that_can_be_used(tmp_path: Path, provider: str) -> None:
    assert problems(tmp_path, provider) == []


@pytest.mark.parametrize("kind", ["redis", "postgres", "webdav"])
def test_certificates_that_cannot_be_read(tmp_path: Path, kind: str) -> None:
    url = {"redis": "rediss://h", "postgres": "postgresql://h", "webdav": "https://h"}[kind]
    [problem] = problems(tmp_path, f"{{kind: {kind}, url: '{url}', ca_file: /gone.pem}}")
    assert "memory.provider.ca_file: /gone.pem cannot be read (No such file or directory)" in problem
    (tmp_path / "no.pem").write_text("hello")
    [problem] = problems(tmp_path, f"{{kind: {kind}, url: '{url}', ca_file: {tmp_path}/no.pem}}")
    assert "expected the whole path of a file with certificates in PEM" in problem


def test_certificates_without_tls(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    [problem] = problems(tmp_path, f"{{kind: redis, url: 'redis://h', ca_file: {tmp_path}/ca.pem}}")
    assert "`ca_file` is for TLS; expected an `url` with rediss://, or no `ca_file`" in problem


@pytest.mark.parametrize(
    ("kind", "library"), [("redis", "redis"), ("postgres", "psycopg"), ("postgres", "psycopg_pool")]
)
def test_a_library_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, library: str) -> None:
    for name in [
        name for name in sys.modules if name.split(".")[0] == library or f"gateway.memory.kinds.{kind}" in name
    ]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name == f"gateway.memory.stored.{kind}"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    [problem] = problems(tmp_path, f"{{kind: {kind}, url: '{kind}://h'}}")
    assert f"memory.provider.kind: {kind} needs {library}" in problem
    assert "which is not installed; expected `" in problem
    assert " -m pip install " in problem


def test_an_address_is_shown_without_all_that_is_private() -> None:
    assert shown(f"postgresql://ada:{SECRET}@[::1]:5432/notes?password={SECRET}") == "postgresql://[::1]:5432/notes"
    assert shown("unix:///run/redis.sock?db=1") == "unix:///run/redis.sock"


@pytest.mark.parametrize("escaped", ["canary%40home", "canary-at-home"])
def test_the_password_of_an_address_is_cut_out_of_logs_alone_too(tmp_path: Path, escaped: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"memory: {{provider: {{kind: redis, url: 'redis://:{escaped}@127.0.0.1/0'}}}}\n")
    path.chmod(0o600)
    hide = hiding(secrets_in(load_config(path, environment={}).config))
    for form in (escaped, escaped.replace("%40", "@")):
        assert hide(f"HELLO 3 AUTH default {form}!") == "HELLO 3 AUTH default ***!"


@pytest.mark.parametrize("url", ["redis://127.0.0.1:6379/0", "unix:///run/redis.sock"])
def test_an_address_without_a_password_is_shown(tmp_path: Path, url: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"memory: {{provider: {{kind: redis, url: '{url}'}}}}\n")
    hide = hiding(secrets_in(load_config(path, environment={}).config))
    assert hide(f"the memory at {url} is away") == f"the memory at {url} is away"


def test_a_page_whose_path_may_be_a_secret_is_not_shown() -> None:
    assert hiding(secrets_in(SecretStr(url := "https://hooks.example.org/T0/canary")))(url) == "***"


@pytest.mark.parametrize("prefix", ["a b", "{a}", "a\\nb"])
def test_a_prefix_has_no_sign_that_a_key_cannot_have(tmp_path: Path, prefix: str) -> None:
    [problem] = problems(tmp_path, f"{{kind: redis, url: 'redis://h', prefix: \"{prefix}\"}}")
    assert "memory.provider.prefix: " in problem
