"""Sessions of people who signed in: kept in the memory of the process that served the sign-in.

A session ends when it was idle for half an hour, after twelve hours in any case, and with the
process.  Its name is 256 random bits; so is its token, which every form carries.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import Final

IDLE_S: Final = 1800.0
AGE_S: Final = 43_200.0
#: Sessions that are kept; the one idle for longest ends first.
COUNT_MAX: Final = 1000
#: With TLS the name binds the cookie to this host, without a parent domain or another path.
COOKIE_TLS: Final = "__Host-mesh"
COOKIE: Final = "mesh_session"


@dataclass(frozen=True, slots=True)
class Session:
    """A person who signed in; without users, all on this machine share one."""

    user: str
    #: Has to be in every form, so that no other site's page can send one.
    token: str = field(repr=False)
    #: Of the process's monotonic clock.
    began_s: float = 0.0
    used_s: float = 0.0


@dataclass(slots=True)
class Sessions:
    """The sessions of one process; the clock is an argument."""

    _kept: OrderedDict[str, Session] = field(default_factory=OrderedDict, repr=False)

    def begin(self, user: str, now_s: float) -> str:
        """Begin a session; its name, for the cookie."""
        name = secrets.token_urlsafe(32)
        self._kept[_digest(name)] = Session(user, secrets.token_urlsafe(32), now_s, now_s)
        while len(self._kept) > COUNT_MAX:
            self._kept.popitem(last=False)
        return name

    def find(self, name: str, now_s: float) -> Session | None:
        """The session of a cookie, used now; None if it has ended or never was."""
        key = _digest(name)
        found = self._kept.get(key)
        if found is None:
            return None
        if now_s - found.used_s > IDLE_S or now_s - found.began_s > AGE_S:
            del self._kept[key]
            return None
        used = replace(found, used_s=now_s)
        self._kept[key] = used
        self._kept.move_to_end(key)
        return used

    def end(self, name: str) -> None:
        """End a session."""
        self._kept.pop(_digest(name), None)


def is_same(given: str, wanted: str) -> bool:
    """Whether two tokens are equal, in a time that does not depend on where they differ."""
    return hmac.compare_digest(given.encode(), wanted.encode())


def _digest(name: str) -> str:
    # The names themselves are not kept: a dump of the memory opens no session.
    return hashlib.sha256(name.encode()).hexdigest()
