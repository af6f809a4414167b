"""Logs with fields.

ERROR: data lost or an invariant broken, wake someone.  WARNING: recovered, but unexpected.
INFO: a state changed.  DEBUG: a message or a batch passed.  Libraries only call ``getLogger`` and
``fields``; a process configures its one handler here.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

import orjson

if TYPE_CHECKING:
    from collections.abc import Callable


#: Hides values of secrets in each line; ``mesh.model.secrets`` sets it.
mask: Callable[[str], str] = str


def fields(**values: object) -> dict[str, Any]:
    """The argument ``extra=`` that makes ``values`` fields of the log line."""
    return {"fields": values}


class TextFormatter(logging.Formatter):
    """``12:00:01.123 INFO  mesh.worker.agent group started app=Temperature epoch=3``."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and the traceback below it if there is one."""
        at = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S.%f")[:-3]
        values = getattr(record, "fields", {})
        shown = "".join(f" {name}={value}" for name, value in values.items() if value is not None)
        line = f"{at} {record.levelname:<7} {record.name} {record.getMessage()}{shown}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return mask(line)


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The record with its fields on the top level."""
        values = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            values["traceback"] = self.formatException(record.exc_info)
        try:
            return mask(orjson.dumps(values, default=str).decode())
        except TypeError:
            # A lone surrogate, as a file's name may have, is escaped.
            return mask(json.dumps(values, default=str))


def configure(level: str = "INFO", style: str = "text", stream: TextIO | None = None) -> None:
    """Send this process's logs to ``stream`` (standard error) as ``text`` or ``json`` lines."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.getLogger("py4j").setLevel("WARNING")
