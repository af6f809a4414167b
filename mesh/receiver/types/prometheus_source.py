"""Source ``prometheus``: the samples of one metric that a target shows, at each scrape."""

from __future__ import annotations

import math
import secrets
from typing import TYPE_CHECKING, Final

import httpx
import orjson
from prometheus_client.parser import text_string_to_metric_families

from mesh.connect.contract import Batch, UnavailableError
from mesh.http.web_answers import ask
from mesh.receiver.access import check_url
from mesh.receiver.outcomes import reason_of
from mesh.receiver.tls import client_context
from mesh.receiver.types.schedule import Schedule
from mesh.receiver.types.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mesh.connect.contract import Context
    from mesh.model.values import JsonMapping

#: Bytes of an answer, and samples of one metric.
_ANSWER_MAX: Final = 16 << 20
_SAMPLES_MAX: Final = 50_000
#: Characters of a line: the library takes the square of them.  And of the help in all samples.
_LINE_MAX: Final = 16 << 10
_HELP_MAX: Final = 64 << 20
#: Label that some samples of a kind have, and the others have not.
_LABELS: Final = {"histogram": "le", "summary": "quantile"}
_SUBTYPES: Final = ("bucket", "sum", "count")


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
