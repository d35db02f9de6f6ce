"""Which memory is used where the gateway's database is a server, for many workers."""

from __future__ import annotations

import pytest

from gateway.config.file import check
from gateway.config.memory_kinds import kind_on_server


def test_the_documents_are_in_the_database_unless_another_server_has_them() -> None:
    assert kind_on_server(None) == "database"
    for kind in ("database", "redis", "postgres", "traces", "acme_memory.provider"):
        assert kind_on_server(kind) == kind


@pytest.mark.parametrize(
    ("kind", "reason"), [("markdown", "its files lie on one machine"), ("webdav", "lie on one machine")]
)
def test_what_keeps_files_of_one_machine_is_refused_with_the_reason(kind: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as caught:
        kind_on_server(kind)
    assert "expected `database`" in str(caught.value)
    assert "`ethos files pull --watch`" in str(caught.value)


@pytest.mark.parametrize("provider", ["markdown", "{kind: markdown}"])
def test_a_configuration_that_names_files_beside_a_server_is_refused(write_config, provider: str) -> None:
    path = write_config(f"store:\n  url: postgresql://db.example.org/ethos\nmemory:\n  provider: {provider}\n")
    problems = check(path, environment={}).problems
    assert any("memory.provider: `markdown` cannot be used with `store.url`" in one for one in problems)


def test_a_configuration_with_a_server_needs_no_provider(write_config) -> None:
    path = write_config("store:\n  url: postgresql://db.example.org/ethos\nmemory:\n  provider: database\n")
    assert not [one for one in check(path, environment={}).problems if ": memory" in one]
