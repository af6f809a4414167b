"""Reader of Spark options: strings, looked up by name without regard to case, and validated."""

from __future__ import annotations

import difflib
import json
from typing import TYPE_CHECKING, Any, Final

from pyspark_nats.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Options that Spark itself adds.
_SPARKS: Final = frozenset(
    (
        "path", "paths", "checkpointlocation", "queryname", "outputmode", "triggerinterval",
        "asyncprogresstrackingenabled", "asyncprogresstrackingcheckpointintervalms",
        "_asyncprogresstrackingoverridesinksupportcheck",
    )
)  # fmt: skip

#: Options that Spark hands on of a table of its catalog, instead of the table's own.
_CATALOGS: Final = frozenset(("provider", "owner"))
_CATALOG_DETAIL: Final = (
    "A table of Spark's catalog, by CREATE TABLE or saveAsTable, passes no options on to a source "
    "in Python."
)
_CATALOG_HINT: Final = "Use CREATE TEMPORARY VIEW name USING nats OPTIONS (...)."

#: Names of Spark's other sources, and what takes their place here.
_ELSEWHERE: Final = {
    "mode": 'Set "corrupt" to "fail", "drop" or "column" for events that can\'t be read.',
    "columnnameofcorruptrecord": 'Set "corrupt" to "column": "_error" has the reason, "_data" the '
    "payload.",
    "subscribe": 'Set "stream" to the names of streams, and "subject" to read a part of them.',
    "assign": 'Set "stream" or "streams" to the names of streams.',
    "topic": 'Set "stream" to the name of the stream, and "subject" to the subject.',
    "subscribepattern": 'Name the streams in "stream". A new stream needs a restart of the query; '
    'a new subject does not: "subject" takes wildcards, such as "orders.*".',
    "kafka.bootstrap.servers": 'Set "servers" to "nats://host:4222".',
    "startingoffsetsbytimestamp": 'Set "startingTimestamp", which may be a JSON object by stream.',
    "endingoffsetsbytimestamp": 'Set "endingTimestamp", which may be a JSON object by stream.',
    "includetimestamp": 'Set "metadata" to "_timestamp".',
    "inferschema": 'Set "schema" to the columns of the events.',
}


class OptionReader:
    """Looks options up by name, whatever their case; a wrong value is an ``OptionError``."""

    def __init__(self, options: Mapping[str, str], names: tuple[str, ...], side: str) -> None:
        """Check that every given option is in ``names``; ``side`` names their user in errors."""
        self._values = {str(name).lower(): str(value) for name, value in options.items()}
        lower = {name.lower() for name in names}
        if not self._values:
            raise OptionError(
                'option "servers" is missing',
                detail=_CATALOG_DETAIL,
                hint=f'Give "servers", for example "nats://host:4222". {_CATALOG_HINT}',
            )
        if self._values.keys() >= _CATALOGS or any(n.startswith("option.") for n in self._values):
            raise OptionError(
                f"the nats {side} is used as a table of Spark's catalog",
                detail=_CATALOG_DETAIL,
                hint=_CATALOG_HINT,
            )
        for name in self._values:
            if name not in lower and name not in _SPARKS and not name.startswith(("__", "spark.")):
                raise OptionError(
                    f'option "{name}" of the nats {side} is not known',
                    hint=_ELSEWHERE.get(name) or nearest(name, names),
                )

    def text(self, name: str, default: str = "") -> str:
        """The value without surrounding space."""
        return self._values.get(name.lower(), default).strip()

    def names(self, name: str) -> list[str]:
        """A comma-separated list."""
        return [part.strip() for part in self.text(name).split(",") if part.strip()]

    def integer(self, name: str, default: int, *, least: int) -> int:
        """A whole number, at least ``least``."""
        text = self.text(name)
        if not text:
            return default
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise OptionError(f'option "{name}" is "{text}", not a whole number from {least} up')
        return value

    def number(self, name: str, default: float) -> float:
        """A number above 0."""
        text = self.text(name)
        try:
            value = float(text) if text else default
        except ValueError:
            value = -1.0
        if not value > 0:
            raise OptionError(f'option "{name}" is "{text}", not a number above 0')
        return value

    def flag(self, name: str, default: bool) -> bool:
        """A truth value, written "true" or "false"."""
        text = self.text(name, str(default)).lower()
        if text not in ("true", "false"):
            raise OptionError(f'option "{name}" is "{text}", neither "true" nor "false"')
        return text == "true"

    def one_of(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        """One of ``allowed``, in its spelling there."""
        text = self.text(name, default)
        if text not in allowed:
            raise OptionError(f'option "{name}" is "{text}"', hint=nearest(text, allowed))
        return text


def nearest(name: str, names: tuple[str, ...]) -> str:
    """A hint: the one of ``names`` that ``name`` may mean, or all of them; "" if none is."""
    if not names:
        return ""
    by_lower = {candidate.lower(): candidate for candidate in names}
    matches = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.5)
    if matches:
        return f'Did you mean "{by_lower[matches[0]]}"?'
    return f"There are: {', '.join(sorted(set(names)))}."


def parsed(name: str, text: str) -> Any:
    """The JSON value of option ``name``; OptionError if it is invalid."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise OptionError(f'option "{name}" is not JSON', detail=f"{error}.") from error
