"""What `docs/scale.md` tells people to type fits the files in `deploy/`."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from tests.deploy.manifests import DEPLOY, ROOT, built, only, read, secret_keys, usable

PAGE = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")


def test_the_secrets_that_the_page_makes_are_those_that_the_files_ask_for() -> None:
    assert set(re.findall(r"([A-Z_]+)=%s", PAGE)) == set(
        re.findall(r"\$\{(\w+):\?", (DEPLOY / "compose.postgres.yaml").read_text())
    )
    assert set(re.findall(r"> ethos-secrets/([\w-]+)", PAGE)) == secret_keys(built(DEPLOY / "kubernetes" / "keda"))


def test_the_files_and_the_services_that_the_page_names_are_there() -> None:
    named = set(re.findall(r"\bdeploy/[\w./-]*\w", PAGE)) - {"deploy/.env"}
    assert len(named) >= 6
    assert all((ROOT / name).exists() for name in named), named
    base = DEPLOY / "kubernetes" / "base"
    table = set(re.findall(r"^\| `([\w-]+\.yaml)`", PAGE, re.MULTILINE))
    assert table == {path.name for path in base.iterdir()} - {"kustomization.yaml"}
    workers = {name for name in read(DEPLOY / "compose.postgres.yaml")["services"] if name != "postgres"}
    assert set(re.findall(r"\b(?:exec|--wait|restart) (worker-\w+)", PAGE)) == workers


def test_the_page_says_by_which_metric_the_workers_are_scaled() -> None:
    [trigger] = only(built(DEPLOY / "kubernetes" / "keda"), "ScaledObject")["spec"]["triggers"]
    assert f"`{trigger['metadata']['valueLocation']}`" in PAGE


def test_the_configuration_of_the_page_can_be_used_and_each_of_its_keys_is_explained(tmp_path: Path) -> None:
    [shown] = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    (tmp_path / "shown.yaml").write_text(shown)
    assert usable(tmp_path / "shown.yaml", tmp_path).limits.lease_s == 15
    keys = {
        f"{section}.{key}" if section != "secret" else section
        for section, values in yaml.safe_load(shown).items()
        for key in values
    }
    assert keys == set(re.findall(r"^\| `((?:store|worker|limits)\.\w+|secret)` \|", PAGE, re.MULTILINE))
