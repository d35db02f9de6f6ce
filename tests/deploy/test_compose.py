"""The compose files are valid, and that with two workers on one PostgreSQL fits its parts; without an engine."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from urllib.parse import urlsplit

import jsonschema
import pytest
from check_jsonschema.builtin_schemas import get_builtin_schema

from tests.deploy.manifests import DEPLOY, ROOT, USER_OF_IMAGE, read, usable

COMPOSE = read(DEPLOY / "compose.postgres.yaml")
WORKERS = {name: service for name, service in COMPOSE["services"].items() if name != "postgres"}


@pytest.mark.parametrize("name", ["compose.yaml", "compose.postgres.yaml", "compose.workspaces.yaml"])
def test_a_compose_file_is_valid_by_the_schema_of_the_specification(name: str) -> None:
    schema = get_builtin_schema("vendor.compose-spec")
    validator = jsonschema.validators.validator_for(schema)(schema)
    document = read(DEPLOY / name)
    assert [error.message for error in validator.iter_errors(document)] == []
    for service in document["services"].values():
        service["read_onyl"] = True
    assert not validator.is_valid(document), "a key that does not exist would be noticed"


def test_two_workers_differ_in_their_name_and_their_port_only() -> None:
    one, two = (copy.deepcopy(service) for service in WORKERS.values())
    assert (one.pop("hostname"), two.pop("hostname")) == tuple(WORKERS)
    assert (one.pop("ports"), two.pop("ports")) == (["127.0.0.1:8420:8420"], ["127.0.0.1:8421:8420"])
    assert one == two


def test_only_the_database_has_a_volume_and_it_is_open_to_the_workers_alone() -> None:
    postgres = COMPOSE["services"]["postgres"]
    assert {mount.partition(":")[0] for mount in postgres["volumes"]} == set(COMPOSE["volumes"])
    assert "ports" not in postgres
    assert int(re.fullmatch(r"postgres:(\d+)-\w+", postgres["image"])[1]) >= 15
    for worker in WORKERS.values():
        assert [(mount["type"], mount["read_only"]) for mount in worker["volumes"]] == [("bind", True)]
        assert worker["read_only"] is True
        assert worker["cap_drop"] == ["ALL"]


def test_both_workers_share_the_directory_for_workspaces_if_that_is_wanted() -> None:
    more = read(DEPLOY / "compose.workspaces.yaml")["services"]
    assert set(more) == set(WORKERS)
    for service in more.values():
        [mount] = service["volumes"]
        assert (mount["source"], mount["target"], "read_only" in mount) == ("../workspaces", "/workspaces", False)
        assert mount["bind"] == {"create_host_path": False}, "else the engine makes one that is root's"
        assert set(service) == {"volumes"}
    assert "/workspaces/" in (ROOT / ".gitignore").read_text().split()


def test_a_worker_may_write_its_home_in_memory_as_the_images_user() -> None:
    user, group = USER_OF_IMAGE.split(":")
    for worker in WORKERS.values():
        homes = [mount for mount in worker["tmpfs"] if mount.startswith("/data:")]
        assert [f"uid={user},gid={group},mode=0700" in mount for mount in homes] == [True]


def test_a_worker_waits_for_the_database_and_is_well_when_it_takes_messages() -> None:
    health = COMPOSE["services"]["postgres"]["healthcheck"]["test"]
    environment = COMPOSE["services"]["postgres"]["environment"]
    wanted = [f"--username={environment['POSTGRES_USER']}", f"--dbname={environment['POSTGRES_DB']}"]
    assert health == ["CMD", "pg_isready", "--host=127.0.0.1", *wanted]
    for worker in WORKERS.values():
        assert worker["depends_on"] == {"postgres": {"condition": "service_healthy"}}
        assert "http://127.0.0.1:8420/health/ready" in worker["healthcheck"]["test"][-1]


def test_the_image_of_the_workers_has_the_driver_of_the_database() -> None:
    for worker in WORKERS.values():
        build = worker["build"]
        root = (DEPLOY / build["context"]).resolve()
        assert (root / build["dockerfile"]).is_file()
        assert re.search(r"^psycopg==", (root / build["args"]["LOCK"]).read_text(), re.MULTILINE)


def test_the_workers_are_told_where_the_database_is_and_every_secret_comes_from_outside() -> None:
    """Compose refuses to start without them, and says where to read on."""
    given = r"\$\{(\w+):\?see docs/scale\.md\}"
    postgres = COMPOSE["services"]["postgres"]["environment"]
    [password] = re.fullmatch(given, postgres["POSTGRES_PASSWORD"]).groups()
    for worker in WORKERS.values():
        url = worker["environment"]["ETHOS_STORE_URL"]
        assert re.findall(given, url) == [password]
        parts = urlsplit(re.sub(given, "p", url))
        assert (parts.username, parts.hostname) == (postgres["POSTGRES_USER"], "postgres")
        assert parts.path == f"/{postgres['POSTGRES_DB']}"
        assert re.fullmatch(given, worker["environment"]["ETHOS_SECRET"])
    ignored = (ROOT / ".gitignore").read_text().split()
    assert ".env" in ignored, "where the page puts them"


def test_the_configuration_of_the_compose_file_can_be_used_and_fits_it(tmp_path: Path) -> None:
    for worker in WORKERS.values():
        [mount] = worker["volumes"]
        assert mount["target"] == "/data/config.yaml"
        config = usable(DEPLOY / mount["source"], tmp_path)
        assert (config.web.host, config.web.port) == ("0.0.0.0", 8420)  # noqa: S104 (of the container)
        assert float(worker["stop_grace_period"].removesuffix("s")) > config.shutdown_s
        variables = re.findall(r"\$\{(\w+)\}", (DEPLOY / mount["source"]).read_text())
        assert set(variables) == {*worker["environment"], "HOSTNAME"}, "the last is the container's own"
