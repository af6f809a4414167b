"""Which server is tried when a connection was lost, and how long it may keep us waiting.

nats-py tries them in any order, the one just lost among them, and gives each all the time of a
first connection: one whose machine is gone refuses nobody, and costs 5 s more than a term has.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nats.aio.client import Server

#: How long a server may say nothing while there are others, seconds.
HURRY_S: Final = 1.0


class Turns:
    """Whose turn it is: that of the others in any order, then that of the server that was left."""

    def __init__(
        self,
        left: Callable[[], str],
        wait: Callable[[float], None],
        *,
        timeout_s: float,
        pause_s: float,
    ) -> None:
        """Turns of a connection that stands.

        Args:
            left: host and port of the server that the connection was to.
            wait: told how long the next server may take for each of its answers, seconds.
            timeout_s: how long that is when all have had a turn.
            pause_s: how long nobody is tried after that, each time.
        """
        self._left = left
        self._wait = wait
        self._timeout_s = timeout_s
        self._pause_s = pause_s
        self._order: list[str] = []
        self._tried = 0

    def begin(self) -> None:
        """The connection stands again."""
        self._order, self._tried = [], 0

    def next(self, servers: Sequence[Server], _: dict[str, Any]) -> tuple[Server | None, float]:
        """The server to try now, and how long not to before; what nats-py asks for."""
        known = {server.uri.netloc: server for server in servers}
        if not self._tried:
            left = self._left()
            others = [name for name in known if name != left]
            random.shuffle(others)
            self._order = [*others, left]
        order = [name for name in self._order if name in known]
        # What a server tells of others may come meanwhile.
        order += [name for name in known if name not in order]
        is_round = self._tried >= len(order)
        is_last = len(order) == 1 or is_round
        self._wait(self._timeout_s if is_last else min(HURRY_S, self._timeout_s))
        chosen = known[order[self._tried % len(order)]]
        self._tried += 1
        return chosen, self._pause_s if is_round else 0.0
