"""Each extra brings all that its part of the program imports: it is imported while every other library is missing."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# The part of the program that an extra is for: packages with all modules below them, or single modules.
PARTS: Mapping[str, tuple[str, ...]] = {
    "models": ("gateway.agent.providers", "gateway.speech", "genai_prices"),
    "embeddings": ("gateway.agent.providers.embeddings", "gateway.traces.vectors", "aiohttp"),
    "slack": ("adapters.slack",),
    "telegram": ("adapters.telegram",),
    "discord": ("adapters.discord",),
    "email": ("adapters.email",),
    "webhook": ("adapters.webhook",),
    "postgres": ("gateway.store.postgres", "gateway.memory.kinds.postgres"),
    "redis": ("gateway.memory.kinds.redis",),
    "web": ("gateway.tools.web", "trafilatura"),
    "documents": ("pypdf", "PIL", "cryptography"),
    "oidc": ("gateway.web.oidc", "authlib.oidc.core", "joserfc.jwk"),
    "mcp": ("gateway.mcp", "gateway.web.mcp", "jsonschema"),
    "testing": ("gateway.testing",),
    "otel": ("gateway.ops.telemetry", "opentelemetry.exporter.otlp.proto.http.trace_exporter"),
    "keyring": ("keyring",),
    "": ("gateway.app", "gateway.cli", "gateway.web.api", "gateway.web.dashboard", "ethos"),
}
IMPORT = """
import importlib, json, pkgutil, sys

missing = set(json.loads(sys.argv[1]))

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
for part in sys.argv[2:]:
    module = importlib.import_module(part)
    if part.partition(".")[0] in ("gateway", "adapters", "ethos"):
        for found in pkgutil.walk_packages(getattr(module, "__path__", []), f"{part}."):
            if not found.name.endswith("__main__"):
                importlib.import_module(found.name)
"""


def named(extra: str) -> list[Requirement]:
    """What `pyproject.toml` asks for, for us and for an extra of ours."""
    ours = [*PROJECT["dependencies"], *(PROJECT["optional-dependencies"][extra] if extra else [])]
    return [Requirement(one) for one in ours]


def brought_by(requirements: list[Requirement]) -> set[str]:
    """The distributions that come with these, as they are installed here."""
    found: set[tuple[str, str]] = set()
    waiting = [(canonicalize_name(one.name), extra) for one in requirements for extra in ("", *one.extras)]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in found:
            continue
        found.add((name, extra))
        try:
            declared = [Requirement(one) for one in metadata.requires(name) or []]
        except metadata.PackageNotFoundError:
            continue  # for another platform
        for one in declared:
            if one.marker is None or one.marker.evaluate({"extra": extra}):
                waiting += [(canonicalize_name(one.name), inner) for inner in ("", *one.extras)]
    return {name for name, _ in found}


def test_every_extra_is_tried_but_those_that_are_sums() -> None:
    assert set(PARTS) - {""} == set(PROJECT["optional-dependencies"]) - {"all", "channels"}


@pytest.mark.parametrize("extra", PARTS, ids=lambda extra: extra or "none")
def test_a_part_of_the_program_needs_the_libraries_of_its_extra_and_no_others(extra: str) -> None:
    assert fault(PARTS[extra], extra) == ""


def test_a_library_that_no_extra_brings_is_noticed() -> None:
    assert "No module named 'telegram'" in fault(PARTS["telegram"], "webhook")


def fault(parts: tuple[str, ...], extra: str) -> str:
    """What comes of importing them with us and one extra alone; empty where nothing does."""
    there = brought_by(named(extra)) | {"ethos-gateway"}
    owners = metadata.packages_distributions()
    missing = [module for module, names in owners.items() if not there & set(map(canonicalize_name, names))]
    assert "playwright" in missing, "which the tests alone have"
    done = subprocess.run(
        [sys.executable, "-c", IMPORT, json.dumps(missing), *parts], cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'gateway' / 'sdk' / 'src'}", "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode == 0) == (not done.stderr), done.stderr
    return done.stderr
