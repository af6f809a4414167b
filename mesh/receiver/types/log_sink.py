"""Sink ``log``: each payload is a line of the host's log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.connect.contract import Context, Record
    from mesh.model.values import JsonMapping

log = logging.getLogger(__name__)

_LEVELS: Final = {
    "DEBUG": logging.DEBUG, "TRACE": logging.DEBUG, "INFO": logging.INFO,
    "WARN": logging.WARNING, "ERROR": logging.ERROR, "FATAL": logging.CRITICAL, "OFF": 0,
}  # fmt: skip


class LogSink:
    """See ``mesh.connect.contract.Sink``."""

    state: JsonMapping | None = None

    async def open(self, context: Context, state: JsonMapping | None) -> None:
        """Take the prefix and the level."""
        self._level = _LEVELS[str(context.options["priority"]).upper()]
        self._prefix = context.options.get("prefix") or f"{context.app} : {context.stream}"

    async def write(self, records: Sequence[Record]) -> Sequence[str | None]:
        """Log."""
        for record in records if self._level else ():
            log.log(self._level, "%s : %s", self._prefix, record.payload.decode(errors="replace"))
        return [None] * len(records)

    async def close(self) -> None:
        """Nothing to release."""
