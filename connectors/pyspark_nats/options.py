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


class OptionReader:
    """Looks options up by name, whatever their case; a wrong value is an ``OptionError``."""

    def __init__(self, given: Mapping[str, str], known: tuple[str, ...], side: str) -> None:
        """Check that every given option is in ``known``; ``side`` names their user in errors."""
        self._values = {str(name).lower(): str(value) for name, value in given.items()}
        lower = {name.lower() for name in known}
        for name in self._values:
            if name not in lower and name not in _SPARKS and not name.startswith(("__", "spark.")):
                raise OptionError(
                    f'option "{name}" of the nats {side} is not known', hint=nearest(name, known)
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


def nearest(name: str, known: tuple[str, ...]) -> str:
    """A hint: the one of ``known`` that ``name`` may mean, or all of them."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.5)
    if found:
        return f'Did you mean "{by_lower[found[0]]}"?'
    return f"There are: {', '.join(sorted(set(known)))}."


def parsed(name: str, text: str) -> Any:
    """The JSON value of option ``name``; OptionError if it is invalid."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise OptionError(f'option "{name}" is not JSON', detail=f"{error}.") from error
