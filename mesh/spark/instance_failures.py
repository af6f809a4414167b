"""Errors of an instance: the reason for users, and the cause that the life cycle asks for."""

from __future__ import annotations

from typing import Final

from pyspark_nats.errors import UnavailableError

#: Longest reason, characters.
_REASON_MAX: Final = 500
#: Refusals of the sink, which Spark's wrapping leaves as they are, and of the store of snapshots.
_REPLACED: Final = ("PYSPARK-NATS-FENCED", "StaleWriterError", "MESH-S110")


def is_replaced(reason: str) -> bool:
    """Whether an instance failed because a newer epoch has taken over."""
    return any(sign in reason for sign in _REPLACED)


def is_nats_timeout(failure: Exception) -> bool:
    """Whether a failure is caused by a missing answer from NATS."""
    return isinstance(failure, TimeoutError) or UnavailableError.code in str(failure)


def message_of(failure: Exception) -> str:
    """The message of a failure, never empty."""
    return str(failure) or type(failure).__name__


def first_line(error: str) -> str:
    """The first line that is not empty."""
    return next((line.strip() for line in error.splitlines() if line.strip()), "unknown")


def reason_of(failure: Exception) -> str:
    """The line of a query's failure that matters to users.

    Spark wraps it in traces of two languages.
    """
    lines = [line.strip().removeprefix(": ") for line in str(failure).splitlines()]
    # The first line of Py4J names a call by a meaningless number.
    lines = [line for line in lines if line and not line.startswith("An error occurred while")]
    ours = [line for line in lines if "[MESH-" in line or "PYSPARK-NATS" in line]
    python = [line for line in lines if "Error: " in line and not line.startswith(("at ", "File "))]
    # The error is the last line of Python's traces, and the first line of Spark's.
    return (ours[-1:] or python[-1:] or lines[:1] or [type(failure).__name__])[0][:_REASON_MAX]
