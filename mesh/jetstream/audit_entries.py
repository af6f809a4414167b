"""Entries of the audit; those of refused requests, counted for each address and minute."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

MINUTE_MS: Final = 60_000
#: Entries of one user and address in a minute before the others are counted.
_OF_USER: Final = 60
#: Addresses that are counted each; the others are counted together.
ADDRESSES_MAX: Final = 256
_OTHERS: Final = ("", "")
_REFUSALS: Final = (401, 403, 429)
_ERROR: Final = 400


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One request."""

    at_ms: int
    user: str
    #: ``password``, ``token``, ``oidc``, ``setup``, ``anonymous``; empty for an unknown user.
    how: str
    #: Address of the client.
    source: str
    method: str
    path: str
    status: int
    app: str = ""
    #: The permission that the request needed.
    permission: str = ""
    #: Requests that the entry stands for: refusals of one address are counted.
    count: int = 1

    @property
    def is_counted(self) -> bool:
        """Whether it is one of many, perhaps: a refusal, or a failure without a user."""
        failed = not self.how and self.status >= _ERROR
        return failed or result_of(self.status) == "refused"


def result_of(status: int) -> str:
    """One word for an HTTP status."""
    if status < _ERROR:
        return "done"
    return "refused" if status in _REFUSALS else "failed"


@dataclass(slots=True)
class _Minute:
    """The refusals of one address, without a user or of one."""

    ends_ms: int
    #: Entries that may still be written one by one.
    left: int
    #: The last that was not written, with the number of them.
    rest: AuditEntry | None = None


@dataclass(slots=True)
class Refused:
    """Decides which refusals are written now, and counts the others.

    The first of an address is written at once, the others as one entry when the minute is over.
    A user who is known has ``_OF_USER`` entries a minute instead of one.
    """

    _minutes: dict[tuple[str, str], _Minute] = field(default_factory=dict)

    def add(self, entry: AuditEntry) -> list[AuditEntry]:
        """The entries to write now: those whose minute is over, and this one or none."""
        entries = self.due(entry.at_ms)
        user = entry.user if entry.how else ""
        key = (entry.source, user)
        if key not in self._minutes and len(self._minutes) >= ADDRESSES_MAX:
            key = _OTHERS
            entry = replace(entry, source="")
        minute = self._minutes.get(key)
        if minute is None:
            left = _OF_USER if user and key != _OTHERS else 1
            minute = self._minutes[key] = _Minute(entry.at_ms + MINUTE_MS, left)
        if minute.left:
            minute.left -= 1
            return [*entries, entry]
        before = minute.rest.count if minute.rest is not None else 0
        minute.rest = replace(entry, count=before + 1)
        return entries

    def due(self, now_ms: int) -> list[AuditEntry]:
        """Entries of the minutes that are over; an address that continues begins another."""
        return list(self._over(now_ms))

    def rest(self) -> list[AuditEntry]:
        """Entries of all minutes, at the end of the process."""
        entries = [one.rest for one in self._minutes.values() if one.rest is not None]
        self._minutes.clear()
        return entries

    def _over(self, now_ms: int) -> Iterator[AuditEntry]:
        # A clock that was set back ends no minute early and none late.
        over = [k for k, m in self._minutes.items() if not 0 < m.ends_ms - now_ms <= MINUTE_MS]
        for key in over:
            minute = self._minutes.pop(key)
            if minute.rest is not None:
                yield minute.rest
                left = _OF_USER if key[1] else 0
                self._minutes[key] = _Minute(now_ms + MINUTE_MS, left)
