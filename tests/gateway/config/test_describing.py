"""What is said of each key of the configuration, and how a person writes a key and a value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway.cluster.worker import SeenWorker, Worker
from gateway.config import Config, LiveConfig
from gateway.config.describing import NoSuchKey, describe, describe_entry, path_of_key, read_typed, written_key
from gateway.config.example import example_text, switched_on
from gateway.domain.personalities import Personalities
from gateway.files.positions.yaml import KeyPath, parse_marked_yaml
from gateway.runtime.process import Restart
from gateway.sdk.models.settings import Restarting
from gateway.sdk.models.system import Reloaded
from gateway.services.caller import Refused, operator
from gateway.services.settings import SettingsService

WHOLE = parse_marked_yaml(switched_on(example_text()).encode(), "example").values


def test_every_key_of_the_example_is_described_with_its_group_and_text() -> None:
    described = {one.path: one for one in describe(WHOLE)}
    inner = {"provider", "env", "headers", "oauth", "sandbox", "effects", "search", "embeddings"}
    leaves = [path for path, value in _leaves(WHOLE, ()) if not inner & set(path[1:-1])]
    assert [path for path in leaves if path not in described] == []
    assert [one.key for one in described.values() if not one.group] == []
    assert [one.key for one in described.values() if not one.text and one.path[-1] != "kind"] == []


def _leaves(values: Mapping[str, Any], path: KeyPath) -> list[tuple[KeyPath, Any]]:
    found: list[tuple[KeyPath, Any]] = []
    for key, value in values.items():
        here = (*path, key)
        is_secret = isinstance(value, dict) and set(value) == {"file"}
        found += _leaves(value, here) if isinstance(value, dict) and not is_secret else [(here, value)]
    return found


def test_a_channel_has_the_texts_of_its_kind_and_its_limits() -> None:
    found = {one.path[-1]: one for one in describe_entry(("channels",), "mine", {"kind": "webhook"})}
    assert found["secret"].control == "secret"
    assert found["secret"].text.startswith("Shared with the program")
    assert found["access"].choices == ("owner", "allowlist", "pairing", "open")
    assert (found["timeout_s"].control, found["timeout_s"].at_least, found["timeout_s"].at_most) == ("number", 1, 300)


@pytest.mark.parametrize("path", [("web", "port"), ("models", "gpt-5.4", "model"), ("a", 'q"u', 3, "b c")])
def test_a_key_is_written_and_read_back(path: KeyPath) -> None:
    assert path_of_key(written_key(path), {}) == path


def test_a_name_with_dots_that_is_there_needs_no_quotes() -> None:
    values = {"models": {"gpt-5.4": {}, "gpt": {}}}
    assert path_of_key("models.gpt-5.4.model", values) == ("models", "gpt-5.4", "model")
    assert path_of_key("models.gpt.model", values) == ("models", "gpt", "model")
    for wrong in ("", "web.", "a..b", "[", 'a."b'):
        with pytest.raises(NoSuchKey):
            path_of_key(wrong, values)


@pytest.mark.parametrize(
    ("key", "typed", "value"),
    [
        ("limits.steps_per_turn", "7", 7),
        ("limits.steps_per_turn", "many", "many"),
        ("memory.timeout_s", "1.5", 1.5),
        ("tools.files", "on", True),
        ("session_scope", "user", "user"),
        ("web.allowed_hosts", "a.example\n\nb.example\n", ["a.example", "b.example"]),
        ("web.ports", "[8443, 8444]", [8443, 8444]),
        ("retention.log_days", "null", None),
        ("worker.channels", "[a]", ["a"]),
        ("personality", "1e5", "1e5"),
    ],
)
def test_what_is_typed_means_what_its_key_has(key: str, typed: str, value: object) -> None:
    described = {one.key: one for one in describe({})}
    found = read_typed(described[key], typed)
    assert (found, type(found)) == (value, type(value))


# ---- the restart ----------------------------------------------------------------------------------------------------


def service(home: Path, restart: Restart) -> SettingsService:
    async def workers() -> Sequence[SeenWorker]:
        names = (("a", "north", 1.0), ("b", "south", 2.0), ("c", "gone", 900.0))
        return [SeenWorker(worker=Worker(id=one, name=name), silent_s=silent, holds=()) for one, name, silent in names]

    async def reload() -> Reloaded:
        return Reloaded()

    return SettingsService(
        home=home,
        config=LiveConfig(Config()),
        personalities=Personalities(home),
        reload=reload,
        is_running=lambda: True,
        restart=restart,
        workers=workers,
        worker_id="b",
    )


async def test_a_restart_is_of_the_process_that_is_asked_and_the_others_are_named(tmp_path: Path) -> None:
    restart, stops = Restart(), list[bool]()
    with pytest.raises(Refused, match="was not started by `ethos serve`"):
        await service(tmp_path, restart).restarted(operator("test"))
    restart.offer(lambda: stops.append(True))
    found = await service(tmp_path, restart).restarted(operator("test"))
    assert found == Restarting(worker="south", others=("north",))
    assert (restart.is_wanted, stops) == (True, [True])
