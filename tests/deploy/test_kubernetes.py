"""The manifests for Kubernetes are valid, and fit one another and the gateway; without a cluster."""

from __future__ import annotations

import re
import stat
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import kubernetes_validate
import pytest
import yaml

from gateway.config.file import load_config
from gateway.files.home import prepare_home
from gateway.web.server import WebServer
from tests.deploy.manifests import DEPLOY, USER_OF_IMAGE, Resource, built, only, read, secret_keys, usable
from tests.fake_sign_ins import FakeSignIns

BASE = DEPLOY / "kubernetes" / "base"
KEDA = DEPLOY / "kubernetes" / "keda"
WORKSPACES = DEPLOY / "kubernetes" / "workspaces"
OVERLAYS = {"base": BASE, "keda": KEDA, "workspaces": WORKSPACES}
# The oldest that the Deployment's pause before the end needs, and the newest whose schemas are here.
KUBERNETES = ("1.30", kubernetes_validate.latest_version())
WITH_FILES = {"files": True, "workspaces": "/workspaces"}  # as docs/scale.md says
OF_KEDA = ("ScaledObject", "TriggerAuthentication")


@pytest.fixture(params=OVERLAYS)
def resources(request: pytest.FixtureRequest) -> list[Resource]:
    return built(OVERLAYS[request.param])


@pytest.fixture
def pod() -> Resource:
    spec: Resource = only(built(BASE), "Deployment")["spec"]["template"]["spec"]
    return spec


@pytest.fixture
def worker(pod: Resource) -> Resource:
    [container] = pod["containers"]
    return dict(container)


# ---- Kubernetes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", KUBERNETES)
def test_every_manifest_is_valid_by_the_published_schemas(resources: list[Resource], version: str) -> None:
    for resource in resources:
        if resource["kind"] not in OF_KEDA:
            kubernetes_validate.validate(resource, version, strict=True)


@pytest.mark.parametrize("version", KUBERNETES)
def test_a_mistake_in_a_manifest_would_be_noticed(version: str) -> None:
    for break_it in (
        lambda spec: spec.update(securityContextt={}),
        lambda spec: spec.update(terminationGracePeriodSeconds="60s"),
        lambda spec: spec["containers"][0].pop("name"),
    ):
        deployment = only(built(BASE), "Deployment")
        break_it(deployment["spec"]["template"]["spec"])
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(deployment, version, strict=True)


def test_all_that_lies_in_the_directories_is_used_and_each_resource_is_there_once(resources: list[Resource]) -> None:
    names = [(each["kind"], each["metadata"]["name"]) for each in resources]
    assert len(set(names)) == len(names)
    for directory in OVERLAYS.values():
        wanted = read(directory / "kustomization.yaml")
        listed = {
            *wanted["resources"],
            *(name for each in wanted.get("configMapGenerator", []) for name in each["files"]),
        }
        assert {path.name for path in directory.iterdir()} - {"kustomization.yaml"} == listed - {"../base"}


def test_selectors_and_ports_and_names_lead_to_the_workers(resources: list[Resource]) -> None:
    deployment = only(resources, "Deployment")
    template = deployment["spec"]["template"]
    [port] = template["spec"]["containers"][0]["ports"]
    [spread] = template["spec"]["topologySpreadConstraints"]
    service, budget = only(resources, "Service"), only(resources, "PodDisruptionBudget")
    for labels in (
        deployment["spec"]["selector"]["matchLabels"],
        service["spec"]["selector"],
        budget["spec"]["selector"]["matchLabels"],
        spread["labelSelector"]["matchLabels"],
    ):
        assert labels
        assert labels.items() <= template["metadata"]["labels"].items()
    assert [each["targetPort"] for each in service["spec"]["ports"]] == [port["name"]]
    assert {each["metadata"]["namespace"] for each in resources} == {"ethos"}


def test_what_is_mounted_is_there_and_what_is_there_is_mounted(pod: Resource) -> None:
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts = [mount for each in (*pod["initContainers"], *pod["containers"]) for mount in each["volumeMounts"]]
    assert {mount["name"] for mount in mounts} == set(volumes)
    config = only(built(BASE), "ConfigMap")
    assert volumes["config"]["configMap"] == {"name": config["metadata"]["name"]}
    assert set(config["data"]) == {"config.yaml"}


def test_no_manifest_has_a_secret_and_only_that_for_workspaces_claims_a_volume(
    resources: list[Resource], pod: Resource
) -> None:
    kinds = {each["kind"] for each in resources}
    assert kinds.isdisjoint({"Secret", "StatefulSet"})
    assert ("PersistentVolumeClaim" in kinds) == (resources == built(WORKSPACES))
    for volume in pod["volumes"]:
        [kind] = set(volume) - {"name"}
        assert kind in ("configMap", "secret", "emptyDir")
        assert kind != "emptyDir" or volume["emptyDir"]["medium"] == "Memory"


def test_the_secret_is_named_with_the_keys_that_are_asked_for() -> None:
    assert secret_keys(built(BASE)) == {"store-url", "secret"}
    assert secret_keys(built(KEDA)) == {"store-url", "secret", "web-token"}


def test_the_configuration_of_the_config_map_can_be_used_and_fits_the_manifests(
    worker: Resource, pod: Resource, tmp_path: Path
) -> None:
    config = usable(BASE / "config.yaml", tmp_path)
    [port] = worker["ports"]
    assert (config.web.host, config.web.port) == ("0.0.0.0", port["containerPort"])  # noqa: S104 (of the pod)
    text = (BASE / "config.yaml").read_text()
    assert set(re.findall(r"\$\{(\w+)\}", text)) <= {each["name"] for each in worker["env"]}
    [mounted] = [mount["mountPath"] for mount in worker["volumeMounts"] if mount["name"] == "secrets"]
    [volume] = [each["secret"] for each in pod["volumes"] if each["name"] == "secrets"]
    assert yaml.safe_load(text)["secret"] == {"file": f"{mounted}/{volume['items'][0]['path']}"}
    assert volume["defaultMode"] & 0o027 == 0, "read by the pod's group at most"


def test_a_worker_may_write_nothing_but_memory_and_is_not_root(pod: Resource) -> None:
    security = pod["securityContext"]
    assert security["runAsNonRoot"] is True
    assert f"{security['runAsUser']}:{security['runAsGroup']}" == USER_OF_IMAGE
    assert pod["automountServiceAccountToken"] is False
    for container in (*pod["initContainers"], *pod["containers"]):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {"requests", "limits"} == set(container["resources"])
        assert container["image"].partition(":")[0] == "ethos-gateway"


def test_the_memory_of_the_pod_has_room_for_its_tmpfs(worker: Resource, pod: Resource) -> None:
    sizes = [each["emptyDir"]["sizeLimit"] for each in pod["volumes"] if "emptyDir" in each]
    limit = int(worker["resources"]["limits"]["memory"].removesuffix("Mi"))
    assert limit - sum(int(size.removesuffix("Mi")) for size in sizes) >= 512, "what one machine gives it"


def test_a_rolling_restart_starts_one_before_it_ends_one_and_gives_each_time_to_end(
    worker: Resource, pod: Resource, tmp_path: Path
) -> None:
    spec = only(built(BASE), "Deployment")["spec"]
    assert spec["replicas"] >= 2
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    pause_s = worker["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] > pause_s + usable(BASE / "config.yaml", tmp_path).shutdown_s
    assert only(built(BASE), "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


def test_the_home_that_is_prepared_is_one_that_the_gateway_takes(
    worker: Resource, pod: Resource, tmp_path: Path
) -> None:
    """An emptyDir is open to all; the gateway wants a directory of its own, with the configuration in it."""
    data, mounted = tmp_path / "data", tmp_path / "etc"
    data.mkdir()
    data.chmod(0o2777)
    mounted.mkdir()
    (mounted / "config.yaml").write_text("shutdown_s: 7\n")
    [prepare] = pod["initContainers"]
    *shell, script = prepare["command"]
    script = script.replace("/data/", f"{data}/").replace("/etc/ethos/", f"{mounted}/")
    for _ in range(2):  # a container that is started again finds what it did
        subprocess.run([*shell, script], check=True)
    places = {mount["name"]: mount["mountPath"] for mount in worker["volumeMounts"]}
    assert (places["data"], places["config"]) == ("/data", "/etc/ethos")
    [home] = [data / Path(each["value"]).relative_to("/data") for each in worker["env"] if each["name"] == "ETHOS_HOME"]
    prepare_home(home)
    assert stat.S_IMODE(home.stat().st_mode) & 0o777 == 0o700
    assert load_config(home=home, environment={}).config.shutdown_s == 7


async def test_the_probes_ask_what_the_gateway_answers(worker: Resource, tmp_path: Path) -> None:
    """Under the address of a pod, which no configuration names."""

    async def health() -> dict[str, Any]:
        return {"status": "ok", "is_ready": False}

    everywhere = "0.0.0.0"  # noqa: S104 (as in a pod; it is not started, and listens nowhere)
    settings: dict[str, Any] = {"health": health, "sign_ins": FakeSignIns(), "host": everywhere, "port": 0}
    server = WebServer(data_dir=tmp_path, adapters=[], **settings)
    transport = httpx.ASGITransport(server.app)
    answers = {}
    async with httpx.AsyncClient(transport=transport, base_url="http://10.1.2.3:8420") as client:
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            asked = worker[probe]["httpGet"]
            assert asked["port"] == worker["ports"][0]["name"]
            answers[probe] = (asked["path"], (await client.get(asked["path"])).status_code)
    assert answers["startupProbe"] == answers["livenessProbe"] == ("/health/live", 200)
    assert answers["readinessProbe"] == ("/health/ready", 503)


def test_all_workers_have_one_volume_for_workspaces_if_that_is_wanted(tmp_path: Path) -> None:
    resources = built(WORKSPACES)
    claim, pod = only(resources, "PersistentVolumeClaim"), only(resources, "Deployment")["spec"]["template"]["spec"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    [volume] = [each for each in pod["volumes"] if each["name"] == "workspaces"]
    assert volume["persistentVolumeClaim"] == {"claimName": claim["metadata"]["name"]}
    [container] = pod["containers"]
    [mount] = [each for each in container["volumeMounts"] if each["name"] == "workspaces"]
    assert mount == {"name": "workspaces", "mountPath": "/workspaces"}
    assert pod["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"
    written = read(BASE / "config.yaml")
    (tmp_path / "with.yaml").write_text(yaml.safe_dump({**written, "tools": WITH_FILES}))
    assert usable(tmp_path / "with.yaml", tmp_path).tools.workspaces == mount["mountPath"]


# ---- KEDA -----------------------------------------------------------------------------------------------------------


def test_the_scaling_has_only_keys_of_its_specification_and_valid_values() -> None:
    """https://keda.sh/docs/latest/reference/scaledobject-spec/, looked at on 2026-11-25.

    KEDA gives the counts and the behaviour to an autoscaler of Kubernetes, whose schema is published.
    """
    scaled = only(built(KEDA), "ScaledObject")
    assert scaled["apiVersion"] == "keda.sh/v1alpha1"
    spec = scaled["spec"]
    assert set(spec) <= {
        "scaleTargetRef", "minReplicaCount", "maxReplicaCount", "pollingInterval", "fallback", "advanced", "triggers",
    }  # fmt: skip
    assert set(spec["fallback"]) == {"failureThreshold", "replicas"}
    assert set(spec["advanced"]) == {"horizontalPodAutoscalerConfig"}
    assert set(spec["advanced"]["horizontalPodAutoscalerConfig"]) == {"behavior"}
    autoscaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "ethos"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", **spec["scaleTargetRef"]},
            "minReplicas": spec["minReplicaCount"],
            "maxReplicas": spec["maxReplicaCount"],
            **spec["advanced"]["horizontalPodAutoscalerConfig"],
        },
    }
    for version in KUBERNETES:
        kubernetes_validate.validate(autoscaler, version, strict=True)


def test_the_workers_are_as_many_as_the_lanes_that_are_due_need() -> None:
    """https://keda.sh/docs/latest/scalers/metrics-api/, looked at on 2026-11-25."""
    resources = built(KEDA)
    [trigger] = only(resources, "ScaledObject")["spec"]["triggers"]
    authentication = only(resources, "TriggerAuthentication")
    assert authentication["apiVersion"] == "keda.sh/v1alpha1"
    assert [target["parameter"] for target in authentication["spec"]["secretTargetRef"]] == ["token"]
    assert trigger["type"] == "metrics-api"
    assert trigger["authenticationRef"] == {"name": authentication["metadata"]["name"]}
    assert set(trigger["metadata"]) == {"url", "format", "valueLocation", "targetValue", "authMode"}
    assert all(isinstance(value, str) for value in trigger["metadata"].values())
    assert trigger["metadata"]["format"] == "prometheus"
    assert trigger["metadata"]["valueLocation"] == "ethos_lanes_due"
    assert trigger["metadata"]["authMode"] == "bearer"
    deployment = only(resources, "Deployment")
    assert only(resources, "ScaledObject")["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    assert "replicas" not in deployment["spec"], "else each apply would set the number back"


def test_the_metrics_can_be_fetched_where_the_scaling_looks_for_them(tmp_path: Path) -> None:
    resources = built(KEDA)
    service = only(resources, "Service")
    url = urlsplit(only(resources, "ScaledObject")["spec"]["triggers"][0]["metadata"]["url"])
    assert url.hostname == f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc"
    assert url.port == service["spec"]["ports"][0]["port"]
    assert url.path == "/metrics"
    config = usable(BASE / "config.yaml", tmp_path)
    assert config.telemetry.metrics
    assert url.hostname in config.web.allowed_hosts, "where a proxy looks for the pages"
