"""Reads what lies in `deploy/` as an engine or a cluster would."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from gateway.config import Config
from gateway.config.file import load_config

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
[USER_OF_IMAGE] = re.findall(r"^USER (\d+:\d+)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
ENVIRONMENT = {
    "ETHOS_STORE_URL": "postgresql://ethos:p@postgres/ethos",
    "ETHOS_LISTEN_URL": "postgresql://ethos:p@postgres/ethos",
    "ETHOS_SECRET": bytes(range(32)).hex(),
    "HOSTNAME": "one",
}

Resource = dict[str, Any]


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def usable(path: Path, directory: Path) -> Config:
    """The configuration as the gateway loads it, with a secret where a pod would have it."""
    written = read(path)
    if isinstance(written.get("secret"), dict):
        (directory / "secret").touch(0o600)
        (directory / "secret").write_text(ENVIRONMENT["ETHOS_SECRET"])
        written["secret"] = {"file": str(directory / "secret")}
    (directory / "config.yaml").write_text(yaml.safe_dump(written))
    return load_config(directory / "config.yaml", environment=ENVIRONMENT).config


def built(directory: Path) -> list[Resource]:
    """What `kubectl kustomize` would print, for the few things that ours use; a name gets no hash."""
    wanted = read(directory / "kustomization.yaml")
    assert wanted.pop("apiVersion") == "kustomize.config.k8s.io/v1beta1"
    assert wanted.pop("kind") == "Kustomization"
    found: list[Resource] = []
    for name in wanted.pop("resources"):
        path = directory / name
        assert path.resolve().is_relative_to(DEPLOY), name
        found += built(path) if path.is_dir() else [read(path)]
    for generated in wanted.pop("configMapGenerator", []):
        data = {name: (directory / name).read_text() for name in generated["files"]}
        found.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": generated["name"]}, "data": data})
    for image in wanted.pop("images", []):
        containers = [each for one in found for each in containers_of(one) if each["image"] == image["name"]]
        assert containers, f"{image['name']}: no container has it"
        for container in containers:
            container["image"] = f"{image['newName']}:{image['newTag']}"
    for patch in wanted.pop("patches", []):
        [target] = [one for one in found if (one["kind"], one["metadata"]["name"]) == tuple(patch["target"].values())]
        for change in yaml.safe_load(patch["patch"]):
            _patch(target, change)
    namespace = wanted.pop("namespace")
    for one in found:
        one["metadata"]["namespace"] = namespace
    assert wanted == {}, "keys that this test does not know"
    return found


def _patch(target: Resource, change: Resource) -> None:
    """RFC 6902, as far as ours use it."""
    *above, last = change["path"].split("/")[1:]
    inner: Any = target
    for key in above:
        inner = inner[int(key) if isinstance(inner, list) else key]
    if change["op"] == "remove":
        del inner[last]
    elif last == "-":
        inner.append(change["value"])
    else:
        assert (change["op"], last in inner) == ("add", False)
        inner[last] = change["value"]


def containers_of(resource: Resource) -> Iterator[Resource]:
    if resource["kind"] == "Deployment":
        pod = resource["spec"]["template"]["spec"]
        yield from pod["initContainers"]
        yield from pod["containers"]


def only(resources: list[Resource], kind: str) -> Resource:
    [found] = [each for each in resources if each["kind"] == kind]
    return found


def secret_keys(resources: list[Resource]) -> set[str]:
    """Every key of the Secret that something refers to."""
    pod = only(resources, "Deployment")["spec"]["template"]["spec"]
    asked = [each["valueFrom"]["secretKeyRef"] for each in pod["containers"][0]["env"] if "secretKeyRef" in str(each)]
    found = {(each["name"], each["key"]) for each in asked}
    for volume in pod["volumes"]:
        for item in volume.get("secret", {}).get("items", []):
            found.add((volume["secret"]["secretName"], item["key"]))
    for each in resources:
        if each["kind"] == "TriggerAuthentication":
            found |= {(target["name"], target["key"]) for target in each["spec"]["secretTargetRef"]}
    assert {name for name, _ in found} == {"ethos"}
    return {key for _, key in found}
