"""The connector's errors: a code that is part of the text, a message, a detail and a hint.

Spark passes an error of a Python worker to the driver as text.  So ``str(error)`` holds everything
that a person needs, with a searchable code.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

#: Part of the text of every ``StaleWriterError``, and of no other error.
FENCED: Final = "PYSPARK-NATS-FENCED"


class ConnectorError(Exception):
    """An error that a person can act on."""

    #: The code, in brackets after the message.
    code = "PYSPARK-NATS-ERROR"

    def __init__(self, message: str, *, detail: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.hint = hint

    def __str__(self) -> str:
        lines = [f"{self.message} [{self.code}]"]
        if self.detail:
            lines.append(f"  detail: {self.detail}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[Callable[..., ConnectorError], tuple[()]]:
        return (partial(type(self), self.message, detail=self.detail, hint=self.hint), ())


class OptionError(ConnectorError):
    """An option is unknown, missing or of the wrong form."""

    code = "PYSPARK-NATS-OPTION"


class SchemaError(ConnectorError):
    """The columns of a DataFrame do not fit the source or the sink."""

    code = "PYSPARK-NATS-SCHEMA"


class UnavailableError(ConnectorError):
    """No server, or no leader, answered within ``timeoutS``."""

    code = "PYSPARK-NATS-UNAVAILABLE"


class RefusedError(ConnectorError):
    """The server answered with a refusal."""

    code = "PYSPARK-NATS-REFUSED"

    def __init__(
        self, message: str, *, detail: str = "", hint: str = "", err_code: int = 0
    ) -> None:
        super().__init__(message, detail=detail, hint=hint)
        #: JetStream's error code, 0 for none.
        self.err_code = err_code

    def __reduce__(self) -> tuple[Callable[..., ConnectorError], tuple[()]]:
        rebuild, _ = super().__reduce__()
        return (partial(rebuild, err_code=self.err_code), ())


class DataLossError(ConnectorError):
    """Messages that were not read yet are gone; the message names the range."""

    code = "PYSPARK-NATS-DATA-LOSS"


class CorruptError(ConnectorError):
    """A message does not hold rows of the schema."""

    code = "PYSPARK-NATS-CORRUPT"


class OrderError(ConnectorError):
    """The rows of a producer are not in the order of their positions."""

    code = "PYSPARK-NATS-ORDER"


class DivergedError(ConnectorError):
    """Rows written again are not, or not provably, equal to the published ones."""

    code = "PYSPARK-NATS-DIVERGED"


class StaleWriterError(ConnectorError):
    """A writer with a newer epoch has taken over; this one must stop."""

    code = FENCED
