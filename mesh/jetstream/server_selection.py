"""Choice of the next server to reconnect to, and its timeout.

nats-py tries servers in any order, the one just lost included, and each with the timeout of a
first connection: a server whose machine is gone doesn't refuse, and costs 5 s more than a term.
"""

from __future__ import annotations

import random
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nats.aio.client import Server

    from mesh.model.values import JsonObject

#: Time for which a server may be silent while there are others, seconds.
HURRY_S: Final = 1.0


@dataclass(eq=False, repr=False)
class ServerSelection:
    """Order of servers: the others in any order, then the one that was lost."""

    #: Host and port of the server that the connection was to.
    _left: Callable[[], str]
    #: Called with the timeout of the next server's responses, seconds.
    _wait: Callable[[float], None]
    _: KW_ONLY
    #: That timeout once all servers were tried, and the pause after each further attempt.
    timeout_s: float
    pause_s: float
    _order: list[str] = field(default_factory=list)
    _tried: int = 0

    def begin(self) -> None:
        """The connection is open again."""
        self._order, self._tried = [], 0

    def next(self, servers: Sequence[Server], _: JsonObject) -> tuple[Server | None, float]:
        """The server to try next and the pause before, as nats-py requests them."""
        by_address = {server.uri.netloc: server for server in servers}
        if not self._tried:
            left = self._left()
            others = [name for name in by_address if name != left]
            random.shuffle(others)
            self._order = [*others, left]
        order = [name for name in self._order if name in by_address]
        # A server may announce others meanwhile.
        order += [name for name in by_address if name not in order]
        is_round = self._tried >= len(order)
        is_last = len(order) == 1 or is_round
        self._wait(self.timeout_s if is_last else min(HURRY_S, self.timeout_s))
        chosen = by_address[order[self._tried % len(order)]]
        self._tried += 1
        return chosen, self.pause_s if is_round else 0.0
