"""Source ``prometheus``: the samples of one metric that a target shows, at each scrape.

Sink ``prometheus``: totals of events by their labels, which are stored with the position.
"""

from __future__ import annotations

import math
import re
import secrets
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

import httpx
import orjson
from prometheus_client.parser import text_string_to_metric_families

from mesh.connect.access import check_listen, check_url
from mesh.connect.contract import Batch, RefusedRecordsError, UnavailableError
from mesh.errors import MeshError
from mesh.http.web_answers import ask
from mesh.receiver.http_server import SERVERS, Response
from mesh.receiver.outcomes import reason_of
from mesh.receiver.tls import client_context
from mesh.receiver.types.schedule import Schedule
from mesh.receiver.types.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.connect.contract import Context, Record
    from mesh.model.values import JsonMapping
    from mesh.receiver.http_server import Request


#: Bytes of an answer, and samples of one metric.
_ANSWER_MAX: Final = 16 << 20
_SAMPLES_MAX: Final = 50_000
#: Characters of a line: the library takes the square of them.  And of the help in all samples.
_LINE_MAX: Final = 16 << 10
_HELP_MAX: Final = 64 << 20
#: Label that some samples of a kind have, and the others have not.
_LABELS: Final = {"histogram": "le", "summary": "quantile"}
_SUBTYPES: Final = ("bucket", "sum", "count")

#: Label sets of one metric: its totals are one message.
_SERIES_MAX: Final = 2000
#: Characters of all label sets.
_LABELS_MAX: Final = 200_000
#: Labels that a kind of metric has itself.
_RESERVED_LABELS: Final = {"histogram": "le", "summary": "quantile"}
_LABEL: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_METRIC: Final = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*\Z")
_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_CALL_S: Final = 10.0
#: Totals of one label set: sum, count, then the count of each bucket.
Totals = dict[str, list[float]]


class Metric:
    """A metric and its totals."""

    def __init__(
        self, kind: str, name: str, help_text: str, bounds: Sequence[float], *, sets: bool = False
    ) -> None:
        if not _METRIC.match(name):
            raise ValueError(f'"{name}" is no name of a metric')
        self._kind, self._name, self._help = kind, name, help_text
        #: Whether the last value counts, instead of the sum of all.
        self._sets = sets
        self._bounds = tuple(sorted(bounds)) if kind == "histogram" else ()
        self.totals: Totals = {}

    def added(self, payload: bytes, attribute: str, totals: Totals) -> str | None:
        """Add an event to ``totals``; the reason if it can't be."""
        event = orjson.loads(payload)
        value = event.pop(attribute, None) if isinstance(event, dict) else None
        if not isinstance(value, int | float) or isinstance(value, bool):
            return f'attribute "{attribute}" is no number'
        if self._kind == "counter" and value < 0:
            return "a counter does not decrease"
        label = _RESERVED_LABELS.get(self._kind)
        wrong = next((n for n in event if not _LABEL.match(n) or n in (label, "__name__")), None)
        if wrong is not None:
            return f'"{wrong}" is no name of a label'
        labels = ",".join(f'{k}="{_escaped(v)}"' for k, v in sorted(event.items()))
        if labels not in totals and len(totals) >= _SERIES_MAX:
            return f"the metric has {_SERIES_MAX} label sets already"
        if labels not in totals and sum(map(len, totals)) + len(labels) > _LABELS_MAX:
            return f"the labels of the metric have more than {_LABELS_MAX} characters"
        if self._sets:
            totals[labels] = [float(value), 1.0]
            return None
        # Copied before it is changed: the caller may discard the changes.
        series = list(totals.get(labels) or [0.0] * (2 + len(self._bounds)))
        series[0] += value
        if not math.isfinite(series[0]):
            # JSON, in which totals are stored, has no number for it.
            return "the total would be beyond the range of a double"
        totals[labels] = series
        series[1] += 1
        for at, bound in enumerate(self._bounds, 2):
            series[at] += value <= bound
        return None

    def text(self) -> bytes:
        """The metric in Prometheus' text format."""
        lines = [f"# HELP {self._name} {self._help}", f"# TYPE {self._name} {self._kind}"]
        for labels, (total, count, *buckets) in self.totals.items():
            label_text = f"{{{labels}}}" if labels else ""
            if self._kind in ("counter", "gauge"):
                lines.append(f"{self._name}{label_text} {_number(total)}")
                continue
            for bound, below in zip((*self._bounds, math.inf), (*buckets, count), strict=True):
                if self._bounds:
                    le = ",".join(part for part in (labels, f'le="{_number(bound)}"') if part)
                    lines.append(f"{self._name}_bucket{{{le}}} {_number(below)}")
            lines.append(f"{self._name}_sum{label_text} {_number(total)}")
            lines.append(f"{self._name}_count{label_text} {_number(count)}")
        return ("\n".join(lines) + "\n").encode()


def _escaped(value: object) -> str:
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


class PrometheusSink:
    """See ``mesh.connect.contract.Sink``."""

    def __init__(self) -> None:
        self.state: JsonMapping | None = {}
        self._at: tuple[str, int, str] | None = None
        self._client: httpx.AsyncClient | None = None

    async def open(self, context: Context, state: JsonMapping | None) -> None:
        """Continue from the stored totals, and bind the address."""
        options = context.options
        kind = str(options["metric.type"]).lower()
        bounds = [float(one) for one in str(options.get("buckets") or "").split(",") if one.strip()]
        name = options.get("metric.name") or context.stream
        text = options.get("metric.help") or f"help for {kind} {name}"
        sets = kind == "gauge" and str(options.get("gauge.operation")).lower() == "set"
        self._metric = Metric(kind, name, " ".join(text.split()), bounds or _BUCKETS, sets=sets)
        self._attribute = str(options["value.attribute"])
        self._metric.totals = dict((state or {}).get("totals") or {})
        self.state = {"totals": self._metric.totals}
        self._push = ""
        if str(options["publish.mode"]).lower() == "pushgateway":
            check_url(context.access, str(options["push.url"]), 80)
            pairs = [("job", options["job"]), *(options.get("grouping.key") or ())]
            path = "/".join(quote(text, safe="") for pair in pairs for text in pair)
            self._push = f"{str(options['push.url']).rstrip('/')}/metrics/{path}"
            self._method = "PUT" if str(options["push.operation"]).lower() == "push" else "POST"
            self._client = httpx.AsyncClient(timeout=_CALL_S, trust_env=False)
            return
        parts = urlsplit(str(options["server.url"]))
        if parts.scheme != "http" or not parts.hostname:
            raise MeshError(
                "MESH-C133",
                f"server.url {options['server.url']} is not served",
                hint="Write http://host:port; a reverse proxy serves https.",
            )
        port = parts.port if parts.port is not None else 9080
        check_listen(context.access, parts.hostname, port)
        path = parts.path if parts.path not in ("", "/") else "/metrics"
        bound = await SERVERS.open(parts.hostname, port, path, self._answer, access=context.access)
        self._at = parts.hostname, bound, path

    async def _answer(self, _: Request) -> Response:
        kind = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")
        return Response(200, self._metric.text(), (kind,))

    async def write(self, records: Sequence[Record]) -> Sequence[str | None]:
        """Add the events, all or none; and push the totals."""
        totals = dict(self._metric.totals)
        reasons: dict[int, str] = {}
        for at, record in enumerate(records):
            try:
                reason = self._metric.added(record.payload, self._attribute, totals)
            except orjson.JSONDecodeError:
                reason = "the payload is no map: use the mapper keyvalue"
            if reason is not None:
                reasons[at] = reason
        if reasons:
            raise RefusedRecordsError(reasons)
        before, self._metric.totals = self._metric.totals, totals
        if self._client is not None:
            try:
                text = self._metric.text()
                answer = await ask(self._client, self._method, self._push, content=text)
                answer.response.raise_for_status()
            except httpx.HTTPError as error:
                self._metric.totals = before
                raise UnavailableError(f"{error}" or type(error).__name__) from error
        self.state = {"totals": totals}
        return [None] * len(records)

    async def close(self) -> None:
        """Serve the metric no more."""
        if self._at is not None:
            at, self._at = self._at, None
            await SERVERS.close(*at)
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


def samples_of(
    text: str, name: str, kind: str, matchers: Mapping[str, str]
) -> list[dict[str, str | float | None]]:
    """The samples of a metric as events: its labels, and what the original adds to them.

    A value that is no finite number is none of a stream's, and left out.

    Args:
        text: in Prometheus' text format.
        name: of the metric; that of a counter with or without ``_total``.
        kind: its type.
        matchers: values that labels have to have.

    Raises:
        ValueError, LookupError: the text is of another format.
    """
    if max(map(len, text.split("\n"))) > _LINE_MAX:
        raise ValueError(f"a line has more than {_LINE_MAX} characters")
    events: list[dict[str, str | float | None]] = []
    for family in text_string_to_metric_families(text):
        names = (family.name, f"{family.name}_total") if kind == "counter" else (family.name,)
        if name not in names or family.type != kind:
            continue
        for sample in family.samples:
            if not math.isfinite(sample.value) or not matchers.items() <= sample.labels.items():
                continue
            end = sample.name.removeprefix(f"{family.name}_")
            label = _LABELS.get(kind)
            if len(events) * len(family.documentation) > _HELP_MAX:
                raise ValueError(f"the help of {name} is too long for its samples")
            events.append(
                {
                    **({label: None} if label is not None else {}),
                    **sample.labels,
                    "metric_name": name,
                    "metric_type": kind,
                    "help": family.documentation,
                    "subtype": end if end in _SUBTYPES and label is not None else None,
                    "value": sample.value,
                }
            )
    return events


class PrometheusSource:
    """See ``mesh.connect.contract.Source``."""

    def __init__(self) -> None:
        self._client: httpx.AsyncClient | None = None

    async def open(self, context: Context, position: JsonMapping | None) -> None:
        """Prepare a client; each scrape asks the target."""
        options = self._options = context.options
        self._url = str(options["target.url"])
        check_url(context.access, self._url, 443 if self._url.startswith("https") else 80)
        self._name = str(options.get("metric.name") or context.stream)
        self._kind = str(options["metric.type"]).lower()
        self._matchers = dict(options.get("grouping.key") or ())
        self._matchers |= {key: options[key] for key in ("job", "instance") if options.get(key)}
        self._schedule = Schedule(int(options["scrape.interval"]), None)
        self._salt, self._number = secrets.token_hex(4), 0
        login = None
        if options.get("username"):
            login = (str(options["username"]), str(options.get("password") or ""))
        self._client = httpx.AsyncClient(
            auth=login,
            verify=client_context(options) or True,
            timeout=int(options["scrape.timeout"]) / 1000,
            follow_redirects=False,
            # The environment of the worker is not the app's.
            trust_env=False,
        )

    async def read(self) -> Batch | None:
        """The samples of a scrape, if one is due; waits otherwise."""
        if not self._schedule.is_due:
            await self._schedule.rest()
            return None
        self._schedule.end_look()
        return await self._scraped()

    async def check(self, context: Context) -> Batch | None:
        """The samples of one scrape."""
        try:
            await self.open(context, None)
            return await self._scraped()
        finally:
            await self.close()

    async def _scraped(self) -> Batch | None:
        assert self._client is not None
        headers = list(self._options.get("headers") or ())
        try:
            answer = await ask(self._client, "GET", self._url, _ANSWER_MAX, headers=headers)
            if not answer.response.is_success:
                raise UnavailableError(f"{self._url} answered {answer.response.status_code}")
            text = answer.whole().decode()
            events = await in_thread(samples_of, text, self._name, self._kind, self._matchers)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise UnavailableError(f"{self._url}: {reason_of(error)}") from error
        except (ValueError, LookupError) as error:
            raise UnavailableError(f"{self._url} can't be read: {reason_of(error)}") from error
        if len(events) > _SAMPLES_MAX:
            raise UnavailableError(f"metric {self._name} has more than {_SAMPLES_MAX} samples")
        if not events:
            return None
        self._number += 1
        names = [f"{self._salt}-{self._number}-{at}" for at in range(len(events))]
        return Batch([orjson.dumps(one) for one in events], {"scrape": self._number}, None, names)

    async def committed(self, position: JsonMapping) -> None:
        """The target wants no acknowledgement."""

    async def close(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()
