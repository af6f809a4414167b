"""``python -m tools.chart``: the templates of the Helm chart, from the kustomize bases.

    conf/kubernetes/base, certificates, ingress, monitoring ──▶ conf/kubernetes/chart/templates
    python -m tools.chart dist                              ──▶ dist/mesh-{version}.tgz

Each file of a base is one template.  A replacement has to be found in its file exactly as often as
the table says, so that a change of a base that a replacement depends on is an error, not a chart
that lags.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from mesh import __version__

_KUBERNETES: Final = Path(__file__).parent.parent / "conf" / "kubernetes"
CHART: Final = _KUBERNETES / "chart"
NATS_URL: Final = "nats://nats-0.nats:4222,nats://nats-1.nats:4222,nats://nats-2.nats:4222"
#: Values whose names are the operator's.
_FREE: Final = frozenset({"annotations", "env", "global", "nodeSelector", "resources"})
#: Labels as kustomize adds them, of each object: a helper of the chart has them.
_LABELS: Final = ' {{ include "mesh.labels" . }} '
_NAMED: Final = re.compile(
    r"^metadata: \{name: ([\w.-]+)(?:, labels: \{([^{}]*)\})?\}$", re.MULTILINE
)
#: Placement of pods and the secrets of a registry.
_POD: Final = """      automountServiceAccountToken: false
      {{- with .Values.image.pullSecrets }}
      imagePullSecrets: {{ toJson . }}
      {{- end }}
      {{- with .Values.nodeSelector }}
      nodeSelector: {{ toJson . }}
      {{- end }}
      {{- with .Values.tolerations }}
      tolerations: {{ toJson . }}
      {{- end }}
"""


@dataclass(frozen=True, slots=True)
class Replacement:
    """A text of a base, and the text of the template."""

    old: str
    new: str
    times: int = 1


@dataclass(frozen=True, slots=True)
class Template:
    """The template of a file: the value that switches it on, and its replacements."""

    source: str
    enabled: str
    replacements: tuple[Replacement, ...] = ()


class StaleError(Exception):
    """A base has changed in a way that the table of replacements does not know."""


def _image(name: str, value: str = "image") -> Replacement:
    return Replacement(
        f"image: {name}\n",
        f'image: "{{{{ .Values.{value}.registry }}}}{name}:'
        f'{{{{ .Values.{value}.tag | default .Chart.AppVersion }}}}"\n'
        "          imagePullPolicy: {{ .Values.image.pullPolicy }}\n",
    )


def _other_image(name: str, value: str) -> Replacement:
    return Replacement(f"image: {name}\n", f"image: {{{{ .Values.nats.{value}.image }}}}\n")


def _process(role: str, resources: str, last_variable: str, replicas: str) -> list[Replacement]:
    """Of a Deployment or StatefulSet of our processes."""
    more = (
        f"            {{{{- range $name, $value := .Values.{role}.env }}}}\n"
        "            - {name: {{ $name }}, value: {{ $value | quote }}}\n"
        "            {{- end }}\n"
    )
    found = [
        Replacement("      automountServiceAccountToken: false\n", _POD),
        Replacement(f'value: "{NATS_URL}"', "value: {{ .Values.nats.url | quote }}"),
        Replacement(resources, f"resources: {{{{ toJson .Values.{role}.resources }}}}"),
        Replacement(last_variable, last_variable + more),
    ]
    if replicas:
        found.append(Replacement(replicas, f"  replicas: {{{{ .Values.{role}.replicas }}}}\n"))
    return found


TEMPLATES: Final = (
    Template(
        "base/nats.yaml",
        "nats.enabled",
        (
            _image("mesh-nats"),
            _other_image("natsio/nats-server-config-reloader", "reloader"),
            _other_image("natsio/prometheus-nats-exporter", "exporter"),
            Replacement("      automountServiceAccountToken: false\n", _POD),
            Replacement(
                "resources: {requests: {cpu: 500m, memory: 512Mi}, limits: {memory: 2Gi}}",
                "resources: {{ toJson .Values.nats.resources }}",
            ),
            Replacement("value: 1700MiB", "value: {{ .Values.nats.goMemoryLimit }}"),
            Replacement(
                "        accessModes: [ReadWriteOnce]\n",
                "        accessModes: [ReadWriteOnce]\n"
                "        {{- with .Values.nats.storage.className }}\n"
                "        storageClassName: {{ . }}\n"
                "        {{- end }}\n",
            ),
            Replacement("{storage: 20Gi}", "{storage: {{ .Values.nats.storage.size }}}"),
        ),
    ),
    Template(
        "base/manager.yaml",
        "",
        (
            _image("mesh-manager"),
            *_process(
                "manager",
                "resources: {requests: {cpu: 200m, memory: 256Mi}, limits: {memory: 1Gi}}",
                '            - {name: MESH_MANAGER_MIN_WORKERS, value: "2"}\n',
                "  replicas: 2\n",
            ),
        ),
    ),
    Template(
        "base/worker.yaml",
        "",
        (
            _image("mesh-worker"),
            *_process(
                "worker",
                'resources: {requests: {cpu: "2", memory: 3Gi}, limits: {memory: 4Gi}}',
                '            - {name: MESH_WORKER_TAKES_RECEIVERS, value: "false"}\n',
                "",
            ),
            Replacement(
                "  serviceName: mesh-worker\n",
                "  serviceName: mesh-worker\n"
                "  {{- if not .Values.autoscaling.enabled }}\n"
                "  replicas: {{ .Values.worker.replicas }}\n"
                "  {{- end }}\n",
            ),
        ),
    ),
    Template(
        "base/receiver.yaml",
        "receiver.enabled",
        (
            _image("mesh-worker"),
            *_process(
                "receiver",
                "resources: {requests: {cpu: 200m, memory: 256Mi}, limits: {memory: 1Gi}}",
                '            - {name: MESH_RECEIVER_LISTEN, value: "*:8280-8289"}\n',
                "  replicas: 2\n",
            ),
        ),
    ),
    Template(
        "base/scaling.yaml",
        "autoscaling.enabled",
        (
            Replacement("minReplicas: 3", "minReplicas: {{ .Values.autoscaling.minReplicas }}"),
            Replacement("maxReplicas: 8", "maxReplicas: {{ .Values.autoscaling.maxReplicas }}"),
            Replacement(
                "averageUtilization: 80",
                "averageUtilization: {{ .Values.autoscaling.cpuPercent }}",
            ),
            Replacement(
                "    # Of the leader, through",
                "    {{- with .Values.autoscaling.backlogSeconds }}\n    # Of the leader, through",
            ),
            Replacement(
                'target: {type: Value, value: "20"}\n',
                "target: {type: Value, value: {{ . | quote }}}\n    {{- end }}\n",
            ),
        ),
    ),
    Template(
        "base/network.yaml",
        "networkPolicies.enabled",
        (
            # Servers of one's own may be anywhere.
            Replacement(
                "    - to: [{podSelector: {matchLabels: {app.kubernetes.io/name: nats}}}]\n"
                "      ports: [{port: 4222}]\n",
                "    - ports: [{port: 4222}]\n"
                "      {{- if .Values.nats.enabled }}\n"
                "      to: [{podSelector: {matchLabels: {app.kubernetes.io/name: nats}}}]\n"
                "      {{- end }}\n",
            ),
        ),
    ),
    Template(
        "certificates/certificates.yaml",
        "certificates.enabled",
        (Replacement("mesh-manager.mesh.svc", "mesh-manager.{{ .Release.Namespace }}.svc"),),
    ),
    Template(
        "ingress/ingress.yaml",
        "ingress.enabled",
        (
            Replacement(
                "metadata:\n  name: mesh-manager\n  annotations:\n"
                "    nginx.ingress.kubernetes.io/backend-protocol: HTTPS\n"
                "    # Of cert-manager, which makes the secret below;"
                " leave it out for a certificate of your own.\n"
                "    cert-manager.io/cluster-issuer: letsencrypt\n",
                "metadata:\n  name: mesh-manager\n"
                f"  labels: {{{_LABELS}}}\n"
                "  annotations: {{ toJson .Values.ingress.annotations }}\n",
            ),
            Replacement(
                "ingressClassName: nginx", "ingressClassName: {{ .Values.ingress.className }}"
            ),
            Replacement("hosts: [mesh.example.org]", "hosts: [{{ .Values.ingress.host }}]"),
            Replacement("- host: mesh.example.org", "- host: {{ .Values.ingress.host }}"),
            Replacement("secretName: mesh-ingress", "secretName: {{ .Values.ingress.secretName }}"),
            Replacement(
                "kubernetes.io/metadata.name: ingress-nginx",
                "kubernetes.io/metadata.name: {{ .Values.ingress.namespace }}",
            ),
        ),
    ),
    Template(
        "monitoring/monitors.yaml",
        "monitoring.enabled",
        (
            Replacement(
                "kubernetes.io/metadata.name: monitoring",
                "kubernetes.io/metadata.name: {{ .Values.monitoring.namespace }}",
            ),
            Replacement(
                "app.kubernetes.io/name: prometheus",
                "app.kubernetes.io/name: {{ .Values.monitoring.prometheus }}",
            ),
        ),
    ),
)


def text_of(template: Template) -> str:
    """The text of a template.

    Raises:
        StaleError: a replacement is not found, or more often than it should be.
    """
    text = (_KUBERNETES / template.source).read_text("utf-8")
    if "{{" in text:
        raise StaleError(f"{template.source} has braces that Helm would read")
    for one in template.replacements:
        if text.count(one.old) != one.times:
            raise StaleError(f"{template.source} has {text.count(one.old)} times: {one.old}")
        text = text.replace(one.old, one.new)
    text = _NAMED.sub(_with_labels, text)
    head = f"{{{{- /* Made by `make chart` from ../{template.source}. */ -}}}}\n"
    if template.enabled:
        return f"{head}{{{{- if .Values.{template.enabled} }}}}\n{text}{{{{- end }}}}\n"
    return head + text


def _with_labels(found: re.Match[str]) -> str:
    own = f"{found[2]}, " if found[2] else ""
    return f"metadata: {{name: {found[1]}, labels: {{{own}{_LABELS}}}}}"


def schema_of(value: Any, name: str = "") -> dict[str, Any]:
    """The schema of a value: a name that the chart does not know is an error of Helm."""
    if isinstance(value, dict):
        if name in _FREE:
            return {"type": "object"}
        parts = {one: schema_of(inner, one) for one, inner in value.items()}
        return {"type": "object", "additionalProperties": False, "properties": parts}
    kinds = ((bool, "boolean"), (int, "integer"), (str, "string"), (list, "array"))
    return {"type": next(kind for of, kind in kinds if isinstance(value, of))}


def texts() -> dict[Path, str]:
    """The generated files of the chart."""
    values = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    # Helm adds it for the charts that have this one as a part.
    schema = schema_of({**values, "global": {}})
    return {
        CHART / "values.schema.json": json.dumps(schema, indent=1) + "\n",
        **{
            CHART / "templates" / template.source.rpartition("/")[2]: text_of(template)
            for template in TEMPLATES
        },
    }


def package(folder: Path) -> Path:
    """The chart as ``helm package`` makes it, with the version of the project.

    The same files give the same archive.
    """
    files = sorted(path for path in CHART.rglob("*") if path.is_file())
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in files:
            data = path.read_bytes()
            entry = tarfile.TarInfo(f"mesh/{path.relative_to(CHART)}")
            entry.size, entry.mode = len(data), 0o644
            archive.addfile(entry, io.BytesIO(data))
    made = folder / f"mesh-{__version__}.tgz"
    made.write_bytes(gzip.compress(buffer.getvalue(), mtime=0))
    return made


def main(arguments: list[str]) -> None:
    """Write the templates, or with a folder the chart's archive."""
    if arguments:
        sys.stdout.write(f"{package(Path(arguments[0]))}\n")
        return
    for path, text in texts().items():
        path.write_text(text, "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
