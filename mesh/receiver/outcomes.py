"""Outcomes of writes: outages, records that fail, and the next step after a failure."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from nats.errors import BadSubjectError, MaxPayloadError
from nats.errors import Error as NatsError

from mesh.connect.contract import FailedRecordsError, UnavailableError
from mesh.model.secrets import masked

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from mesh.connect.contract import Record, Sink

#: Attempts with the same records, and with one of them alone.
TRIES: Final = 2
TRIES_ALONE: Final = 3
#: Errors of the system that a name causes, and that no time ends.
OF_NAMES: Final = (
    errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EINVAL, errno.EILSEQ,
)  # fmt: skip


class Step(Enum):
    """Next step with records that could not be written."""

    AGAIN = auto()
    DIVIDE = auto()
    REFUSE = auto()


@dataclass
class Search:
    """Search for the record that fails, among those of one write."""

    #: With the same records.
    tries: int = 0
    #: The records are a part of those that have failed.
    is_part: bool = False
    #: Others were written since the first failure.
    others_work: bool = False

    def step(self, count: int, written: bool) -> Step:
        """Next step after a failure that is no outage, with ``count`` records left.

        ``written``: some of the records were written before one has failed.
        """
        self.tries += 1
        self.others_work = self.others_work or written
        if count > 1:
            if not self.is_part and self.tries < TRIES:
                return Step.AGAIN
            self.is_part, self.tries = True, 0
            return Step.DIVIDE
        is_isolated = self.is_part and self.others_work
        return Step.REFUSE if is_isolated or self.tries >= TRIES_ALONE else Step.AGAIN

    def written(self) -> None:
        """Record that a part was written."""
        self.tries, self.others_work = 0, True


async def written(sink: Sink, records: Sequence[Record]) -> Sequence[str | None]:
    """The outcomes of a write, one for each record."""
    outcomes = await sink.write(records)
    if len(outcomes) != len(records):
        raise TypeError(f"the sink gave {len(outcomes)} outcomes for {len(records)} records")
    return outcomes


def is_outage(error: BaseException) -> bool:
    """Whether an error of a write may end by itself; others are of a record, or of the code."""
    if isinstance(error, MaxPayloadError | BadSubjectError):
        return False
    if isinstance(error, OSError):
        return error.errno not in OF_NAMES
    return isinstance(error, UnavailableError | NatsError | EOFError)


def reason_of(error: BaseException) -> str:
    """The text of an error, or else its class."""
    return str(error) or type(error).__name__


def outcomes_of(
    results: Sequence[str | BaseException | None], *, is_lost: bool = False
) -> list[str | None]:
    """The outcomes of records that were written side by side; an error is that of one record.

    Raises:
        UnavailableError, FailedRecordsError: some have failed; with the outcomes of the others.
    """
    failures = [one for one in results if isinstance(one, BaseException)]
    done = {at: one for at, one in enumerate(results) if not isinstance(one, BaseException)}
    if not failures:
        return list(done.values())
    for failure in failures:
        if not isinstance(failure, Exception):
            raise failure
    away = next(filter(is_outage, failures), None)
    if away is None:
        raise FailedRecordsError(described(failures[0]), done) from failures[0]
    after_s = getattr(away, "retry_after_s", None)
    raise UnavailableError(
        reason_of(away), retry_after_s=after_s, outcomes=done, is_lost=is_lost
    ) from away


async def sent(
    send: Callable[[Record], Awaitable[str | None]], records: Sequence[Record], at_once: int
) -> list[str | None]:
    """The outcomes of records that are sent ``at_once`` at a time, as ``outcomes_of`` has them."""
    outcomes: list[str | None] = []
    for first in range(0, len(records), at_once):
        some = records[first : first + at_once]
        results = await asyncio.gather(*map(send, some), return_exceptions=True)
        outcomes = outcomes_of([*outcomes, *results])
    return outcomes


def described(error: BaseException) -> str:
    """An unexpected error, for the entry of its record."""
    if isinstance(error, FailedRecordsError):
        return str(error)
    return masked(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
