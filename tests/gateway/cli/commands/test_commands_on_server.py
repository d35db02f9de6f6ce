"""Commands whose answer is another one where the database is a server: nothing of it is in the data directory."""

from __future__ import annotations

from pathlib import Path

from tests.gateway.cli.commands.conftest import Ethos
from tests.gateway.cluster.test_gateways import SECRET


def test_what_is_on_the_server_is_not_looked_for_in_files(ethos: Ethos, fresh_home: Path, postgres_url: str) -> None:
    fresh_home.mkdir(mode=0o700)
    (fresh_home / "config.yaml").write_text(f"secret: {SECRET}\nstore: {{url: '{postgres_url}'}}\n")
    assert "texts of messages" in ethos("retention").out
    made = ethos("personalities", "create", "gardener").out
    assert "Made in the database: personalities/gardener" in made
    assert "`ethos files push" in made
    refused = ethos("memory", "copy", "--to", "markdown")
    assert refused.code == 78
    assert "`ethos files pull` writes" in refused.err
