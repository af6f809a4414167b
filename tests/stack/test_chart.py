"""The Helm chart: made from the kustomize bases, linted and rendered by Helm."""

from __future__ import annotations

import copy
import tarfile
from typing import TYPE_CHECKING, Any

import kubernetes_validate
import pytest
import yaml

import mesh
from tests.stack.test_kubernetes import BASE, EXAMPLE, OBJECTS, VERSION, objects
from tests.support.helm import Helm, HelmError, find
from tools import chart

if TYPE_CHECKING:
    from pathlib import Path

ALL_ON = {name: {"enabled": True} for name in ("certificates", "ingress", "monitoring")}
#: Sets of values, and how many objects of which kind they have more or fewer.
OTHER: dict[str, dict[str, Any]] = {
    "all": ALL_ON,
    "registry": {
        "image": {"registry": "registry.example/", "tag": "9", "pullSecrets": [{"name": "login"}]},
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "mesh", "operator": "Exists"}],
        "worker": {"env": {"MESH_LOG_LEVEL": "DEBUG", "MESH_WORKER_CAPACITY": "4"}},
        "nats": {"storage": {"size": "1Gi", "className": "ssd"}},
    },
    "outside": {"nats": {"enabled": False, "url": "tls://n.example:4222"}},
    "fixed": {"autoscaling": {"enabled": False}, "worker": {"replicas": 5}},
    "no adapter": {"autoscaling": {"backlogSeconds": 0}},
    "small": {"receiver": {"enabled": False}, "networkPolicies": {"enabled": False}},
}
#: Kinds of operators, whose schemas Kubernetes does not have.
OPERATORS = {"ServiceMonitor", "Certificate", "Issuer"}


def test_the_templates_are_those_that_the_bases_make() -> None:
    for path, text in chart.texts().items():
        assert path.read_text("utf-8") == text, f"{path.name}: make chart"
    made = {path.name for path in chart.texts()} | {"_helpers.tpl", "NOTES.txt"}
    assert {path.name for path in (chart.CHART / "templates").iterdir()} <= made


def test_every_file_of_every_base_has_a_template() -> None:
    bases = {path.parent for path in BASE.parent.glob("*/kustomization.yaml")} - {EXAMPLE}
    files = {path for base in bases for path in base.glob("*.yaml")}
    named = {BASE.parent / one.source for one in chart.TEMPLATES}
    assert {path for path in files if path.name != "kustomization.yaml"} == named


def test_a_base_that_no_longer_fits_is_an_error() -> None:
    (nats,) = (one for one in chart.TEMPLATES if one.source == "base/nats.yaml")
    lost = chart.Replacement("a text that is not there", "x")
    with pytest.raises(chart.StaleError, match=r"base/nats\.yaml has 0 times"):
        chart.text_of(chart.Template(nats.source, nats.enabled, (*nats.replacements, lost)))


def test_versions_of_the_chart_its_archive_and_the_example_are_that_of_the_project(
    tmp_path: Path,
) -> None:
    about = yaml.safe_load((chart.CHART / "Chart.yaml").read_text())
    assert about["version"] == about["appVersion"] == mesh.__version__
    example = yaml.safe_load((EXAMPLE / "kustomization.yaml").read_text())
    assert {one["newTag"] for one in example["images"]} == {mesh.__version__}
    made = chart.package(tmp_path)
    assert made.name == f"mesh-{mesh.__version__}.tgz"
    with tarfile.open(made) as archive:
        names = set(archive.getnames())
    assert {"mesh/Chart.yaml", "mesh/values.schema.json", "mesh/templates/worker.yaml"} <= names


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    found = find(tmp_path_factory.mktemp("helm"))
    if isinstance(found, str):
        pytest.skip(found)
    return found


def name_of(one: dict[str, Any]) -> tuple[str, str]:
    return one["kind"], one["metadata"]["name"]


def without_additions(one: dict[str, Any], images: dict[str, str]) -> dict[str, Any]:
    """An object of the chart as the base has it: labels, tags and pull policies are left out."""
    found = copy.deepcopy(one)
    labels = found["metadata"]["labels"]
    for label in ("part-of", "managed-by", "instance"):
        del labels[f"app.kubernetes.io/{label}"]
    del labels["helm.sh/chart"]
    if not labels:
        del found["metadata"]["labels"]
    for container in (
        found.get("spec", {}).get("template", {}).get("spec", {}).get("containers", ())
    ):
        name, _, tag = container["image"].rpartition(":")
        assert tag == images.get(name, mesh.__version__)
        container["image"] = name
        container.pop("imagePullPolicy", None)
    return found


@pytest.mark.thorough
def test_helm_renders_the_objects_of_the_bases(helm: Helm) -> None:
    kustomization = yaml.safe_load((BASE / "kustomization.yaml").read_text())
    images = {one["name"]: one["newTag"] for one in kustomization["images"]}

    def rendered(values: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
        found = helm.template(chart.CHART, values)
        return {name_of(one): without_additions(one, images) for one in found}

    assert rendered({}) == {name_of(one): one for one in OBJECTS}
    more = [one for folder in ALL_ON for one in objects(BASE.parent / folder)]
    whole = {name_of(one): copy.deepcopy(one) for one in (*OBJECTS, *more)}
    for one in whole.values():
        one["metadata"].pop("labels", None)
    found = rendered(ALL_ON)
    for one in found.values():
        one["metadata"].pop("labels", None)
    assert found == whole


@pytest.mark.thorough
@pytest.mark.parametrize("values", OTHER.values(), ids=OTHER.keys())
def test_helm_accepts_the_chart_and_its_objects_fit_the_schemas(
    helm: Helm, values: dict[str, Any]
) -> None:
    helm.lint(chart.CHART, values)
    found = helm.template(chart.CHART, values)
    for one in found:
        if one["kind"] not in OPERATORS:
            kubernetes_validate.validate(one, VERSION, strict=True)
    kinds = {name_of(one): one for one in found}
    worker = kinds["StatefulSet", "mesh-worker"]["spec"]
    scaler = kinds.get(("HorizontalPodAutoscaler", "mesh-worker"))
    # One of the two has the number of replicas.
    assert ("replicas" in worker) == (scaler is None)
    if values is OTHER["fixed"]:
        assert worker["replicas"] == 5
    if values is OTHER["no adapter"]:
        assert scaler is not None
        assert [one["type"] for one in scaler["spec"]["metrics"]] == ["Resource"]
    pod = worker["template"]["spec"]
    variables = {one["name"]: one.get("value") for one in pod["containers"][0]["env"]}
    to_nats = kinds.get(("NetworkPolicy", "mesh-to-nats"), {"spec": {"egress": [{}]}})
    if values is OTHER["outside"]:
        assert not any(name == "nats" for kind, name in kinds if kind != "NetworkPolicy")
        assert variables["MESH_NATS_URL"] == "tls://n.example:4222"
        assert to_nats["spec"]["egress"] == [{"ports": [{"port": 4222}]}]
    if values is OTHER["registry"]:
        assert pod["containers"][0]["image"] == "registry.example/mesh-worker:9"
        assert pod["imagePullSecrets"] == [{"name": "login"}]
        assert pod["nodeSelector"] == {"disk": "fast"}
        assert variables["MESH_WORKER_CAPACITY"] == "4"
        (claim,) = kinds["StatefulSet", "nats"]["spec"]["volumeClaimTemplates"]
        assert claim["spec"]["storageClassName"] == "ssd"


@pytest.mark.thorough
def test_helm_refuses_values_that_the_chart_does_not_know(helm: Helm) -> None:
    wrong: list[dict[str, Any]] = [
        {"workers": {}},
        {"worker": {"replica": 2}},
        {"worker": {"replicas": "two"}},
    ]
    for values in wrong:
        with pytest.raises(HelmError, match=r"worker|replica"):
            helm.template(chart.CHART, values)
