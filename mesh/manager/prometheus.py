"""Longer history from the Prometheus that scrapes the managers (``manager.prometheus_url``)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError
from mesh.http.web_answers import ask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.model.values import JsonMapping

#: Time limit of a request, seconds.
LIMIT_S: Final = 10.0
#: Expressions by field; ``{of}`` is the selector, ``{window}`` the span of a rate.
_FLOW: Final = {
    "events_in": "sum(rate(mesh_instance_events_in_total{of}[{window}s]))",
    "events_out": "sum(rate(mesh_instance_events_out_total{of}[{window}s]))",
    "errors": "sum(rate(mesh_instance_events_failed_total{of}[{window}s]))",
    "backlog": "sum(mesh_instance_backlog_messages{of})",
    "backlog_s": "max(mesh_instance_backlog_seconds{of})",
    "batch_s": "histogram_quantile(0.5, sum by (le) "
    "(rate(mesh_instance_batch_seconds_bucket{of}[{window}s])))",
    **{
        field: f"histogram_quantile({share}, sum by (le) "
        "(rate(mesh_instance_latency_seconds_bucket{of}[{window}s])))"
        for field, share in (("latency_p50_s", 0.5), ("latency_p99_s", 0.99))
    },
}
_NODE: Final = {
    "cpu": "mesh_node_cpu_ratio{of}",
    "process_cpu": "mesh_node_process_cpu_ratio{of}",
    "memory_bytes": "mesh_node_memory_bytes{of}",
    "memory": "mesh_node_memory_ratio{of}",
    "load_1m": "mesh_node_load1{of}",
}
EXPRESSIONS: Final = {
    "cluster": _FLOW,
    "app": _FLOW,
    "group": _FLOW,
    "instance": _FLOW,
    "node": _NODE,
}


async def query_range(
    url: str, kind: str, name: str, since_s: int, until_s: int, step_s: int
) -> dict[str, list[float | None]]:
    """Values by field, one for each step; MESH-A502 when Prometheus does not answer."""
    # Only managers with a Prometheus need it.
    import httpx

    queries = expressions(kind, name, step_s)
    count = -(-(until_s - since_s) // step_s)
    values = {}
    try:
        async with httpx.AsyncClient(base_url=url, timeout=LIMIT_S) as client:
            for field, query in queries.items():
                params: dict[str, str | int] = {
                    "query": query,
                    "start": since_s,
                    "end": until_s - 1,
                }
                params["step"] = step_s
                answer = await ask(client, "GET", "/api/v1/query_range", params=params)
                answer.response.raise_for_status()
                result = json.loads(answer.whole())["data"]["result"]
                values[field] = aligned(result, since_s, step_s, count)
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        raise MeshError(
            "MESH-A502",
            f"Prometheus at {url} did not answer",
            detail=f"{type(error).__name__}: {error}.",
            hint="See manager.prometheus_url.  The last week is kept by the managers themselves.",
        ) from error
    return values


def expressions(kind: str, name: str, step_s: int) -> dict[str, str]:
    """The queries for an app, a group, an instance or a node."""
    first, _, second = name.partition("/")
    labels = {
        "cluster": {},
        "app": {"app": name},
        "group": {"app": first, "group": second},
        "instance": {"instance": name},
        "node": {"role": first, "node": second},
    }[kind]
    chosen = ",".join(f'{label}="{_quoted(value)}"' for label, value in labels.items())
    # A rate needs two samples: four scrapes of 5 s, or a whole step.
    window = str(max(20, step_s))
    return {
        field: query.replace("{of}", f"{{{chosen}}}").replace("{window}", window)
        for field, query in EXPRESSIONS[kind].items()
    }


def aligned(
    result: Sequence[JsonMapping], since_s: int, step_s: int, count: int
) -> list[float | None]:
    """The values of a matrix with one series at most, by step."""
    values: list[float | None] = [None] * count
    for at_s, text in result[0]["values"] if result else ():
        index = (int(at_s) - since_s) // step_s
        value = float(text)
        if 0 <= index < count and value == value:
            values[index] = value
    return values


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
