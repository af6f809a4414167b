"""Wait of an idle query: for a message, for a wakeup, or until its trigger has to answer.

The query subscribes to its streams' subjects for one message and sleeps on the socket.  So an idle
query costs an occasional request, and a message is noticed when it is published.

Halt request of a query: it reads up to given sequences and reports its offset then.

The option ``haltPath`` names a file.  Once the file exists, the query reads no further than the
file's sequences, ``{stream: sequence}`` in JSON, and nothing more from other streams.  When nothing
is left to read, and every earlier batch is committed, the query writes its offset to a file next to
it.  The name of that file ends in ``.reached``.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_nats.errors import RefusedError
from pyspark_nats.protocol import jetstream
from pyspark_nats.source import ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark_nats.protocol.connection import Connection
    from pyspark_nats.protocol.jetstream import StreamInfo
    from pyspark_nats.source.ranges import Offset
    from pyspark_nats.source.source_options import SourceOptions


#: A subscriber may receive a message before the stream has stored it: the pauses before each look,
#: seconds.
_SETTLE_S = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
#: Interval of looks without notification: copies of other streams, batches of a minimum size.
_POLL_S = 0.1
#: Interval of empty batches while a stream grows only on other subjects.  Without them the query's
#: position would expire with the messages that it skips.
_ADVANCE_S = 10.0


@dataclass(frozen=True, slots=True)
class Probe:
    """State of the streams at one moment, relative to an offset."""

    infos: Mapping[str, StreamInfo]
    #: The streams with something to read.
    fresh: frozenset[str]
    #: Number of sequences after the offset, over all streams.
    sequences: int
    #: Whether a wakeup is due.
    is_woken: bool


class DataWaiter:
    """Probes the streams of one query, and waits for them to change."""

    def __init__(
        self,
        options: SourceOptions,
        connection: Connection,
        wakeup_ms: Callable[[], int | None] | None = None,
    ) -> None:
        """Observe the streams of ``options``.

        Args:
            options: of the source.
            connection: for requests.
            wakeup_ms: the time of the next wakeup; by default that in the files of ``wakeupPath``.
        """
        self._options = options
        self._wakeup_ms = wakeup_ms or self._written_wakeup_ms
        self._connection = connection
        #: Whether this account may subscribe to the streams' subjects.
        self._may_listen = True
        #: Time of the last advance past unwanted messages only, monotonic.
        self._advanced_s = time.monotonic()

    def look(self, start: Offset) -> Probe:
        """The present state of the streams."""
        return self._connection.retry_while_unavailable(
            "asking for the streams' ends", lambda: self._probe(start)
        )

    def wait(self, start: Offset, look: Probe, is_due: Callable[[Probe], bool]) -> Probe:
        """Wait until ``is_due``, at most for ``idleWaitMs``; the state of the streams then."""
        wait_s = self._options.idle_wait_ms / 1000
        wakeup_ms = self._wakeup_ms()
        now_ms = min(info.time_ms for info in look.infos.values())
        if wakeup_ms is not None and wakeup_ms > now_ms:
            wait_s = min(wait_s, (wakeup_ms - now_ms) / 1000)
        deadline_s = time.monotonic() + wait_s

        def watch() -> Probe:
            sids = self._listen(look)
            try:
                # A message may have arrived before the subscription.
                now = self._probe(start)
                while not is_due(now) and not is_halt_requested(self._options.halt_path):
                    left_s = deadline_s - time.monotonic()
                    if left_s <= 0:
                        break
                    if self._has_message(sids, left_s):
                        now = self._settled(start, is_due)
                        if not is_due(now):
                            # Other subjects, or not enough: later messages are found by polling.
                            left_s = deadline_s - time.monotonic()
                            self._has_message(set(), max(0.0, min(left_s, _POLL_S)))
                            now = self._probe(start)
                    else:
                        now = self._probe(start)
                return now
            finally:
                if self._connection.is_open:
                    self._connection.unsubscribe(*sids)

        return self._connection.retry_while_unavailable("waiting for messages", watch)

    # --- state of the streams

    def _probe(self, start: Offset) -> Probe:
        infos = jetstream.stream_infos(self._connection, self._options.streams)
        grown = {name: info for name, info in infos.items() if _has_news(start.get(name), info)}
        fresh = frozenset(name for name, info in grown.items() if self._is_fresh(start, info))
        if fresh or not grown:
            self._advanced_s = time.monotonic()
        elif time.monotonic() - self._advanced_s > _ADVANCE_S:
            self._advanced_s = time.monotonic()
            fresh = frozenset(grown)
        return Probe(
            infos,
            fresh,
            sum(max(0, info.last - start[n]["sequence"]) if n in start else info.last
                for n, info in grown.items()),
            self._is_woken(start, infos),
        )  # fmt: skip

    def _is_fresh(self, start: Offset, info: StreamInfo) -> bool:
        """Whether a stream with new messages has some on the wanted subjects."""
        subjects = self._options.subjects_of(info.name)
        before = start.get(info.name)
        if not subjects or before is None or info.last < before["sequence"]:
            return True
        first = before["sequence"] + 1
        candidates = (
            jetstream.next_message(self._connection, info.name, first, subject)
            for subject in subjects
        )
        return any(one is not None and one.sequence <= info.last for one in candidates)

    def _settled(self, start: Offset, is_due: Callable[[Probe], bool]) -> Probe:
        look = self._probe(start)
        for pause_s in _SETTLE_S:
            if is_due(look):
                break
            if pause_s:
                time.sleep(pause_s)
            look = self._probe(start)
        return look

    # --- wakeups

    def _is_woken(self, start: Offset, infos: Mapping[str, StreamInfo]) -> bool:
        wakeup_ms = self._wakeup_ms()
        if wakeup_ms is None:
            return False
        # A wakeup that the previous batch has already reached is left to its reader to remove.
        is_new = any(place["time_ms"] < wakeup_ms for place in start.values())
        return is_new and all(info.time_ms >= wakeup_ms for info in infos.values())

    def _written_wakeup_ms(self) -> int | None:
        """The earliest time in the files of ``wakeupPath``; None for none."""
        return wakeup_ms(self._options.wakeup_path)

    # --- notification

    def _listen(self, look: Probe) -> set[int]:
        """Subscribe to the streams' subjects, for one message each."""
        if not self._may_listen:
            return set()
        return {
            self._connection.subscribe(subject, most=1)
            for info in look.infos.values()
            for subject in self._options.subjects_of(info.name) or info.subjects
        }

    def _has_message(self, sids: set[int], wait_s: float) -> bool:
        """Whether a message arrived within ``wait_s``; without subscriptions it waits a little.

        A query that is to halt waits no longer.
        """
        if sids:
            try:
                if not self._options.halt_path:
                    return self._connection.wait_for_message(sids, wait_s)
                deadline_s = time.monotonic() + wait_s
                while (left_s := deadline_s - time.monotonic()) > 0:
                    if self._connection.wait_for_message(sids, min(left_s, _POLL_S)):
                        return True
                    if is_halt_requested(self._options.halt_path):
                        break
                return False
            except RefusedError:
                # An account may read a stream without seeing the messages published to it.
                self._may_listen = False
        return self._connection.wait_for_message(set(), min(wait_s, _POLL_S))


def wakeup_ms(path: str) -> int | None:
    """The earliest time in the files of a ``wakeupPath``; None for none, as for an empty path."""
    if not path:
        return None
    times: list[int] = []
    for file in sorted(Path(path).glob("*")):
        try:
            times.append(int(file.read_text()))
        except (OSError, ValueError):
            # The file is being replaced or removed: the next look reads it.
            continue
    return min(times, default=None)


def _has_news(before: Mapping[str, int] | None, info: StreamInfo) -> bool:
    if before is None:
        return info.last > 0
    is_another = ranges.is_another(before.get("created_ms", 0), info.created_ms)
    return is_another or info.last != before["sequence"]


def ask(halt_path: Path, until: Mapping[str, int] | None = None) -> None:
    """Request the halt of the query with this ``haltPath``.

    Args:
        halt_path: in an existing directory.
        until: the last sequence to read, by stream; other streams halt at once.
    """
    halted_path(halt_path).unlink(missing_ok=True)
    _replace(halt_path, json.dumps(dict(until or {})))


def halted_positions(halt_path: Path) -> dict[str, dict[str, int]] | None:
    """The offset at which the query has halted; None as long as it runs."""
    try:
        positions: dict[str, dict[str, int]] = json.loads(halted_path(halt_path).read_text())
    except FileNotFoundError:
        return None
    return positions


def halted_path(halt_path: Path) -> Path:
    """The file for the offset at which the query has halted."""
    return halt_path.with_name(f"{halt_path.name}.reached")


def is_halt_requested(halt_path: str) -> bool:
    """Whether the query is to halt; False without a path."""
    return bool(halt_path) and Path(halt_path).exists()


def last_sequences(halt_path: str) -> dict[str, int] | None:
    """The last sequences that a halting query may read; None without a request."""
    if not halt_path:
        return None
    try:
        sequences: dict[str, int] = json.loads(Path(halt_path).read_text())
    except FileNotFoundError:
        return None
    return sequences


def tell(halt_path: str, until: Mapping[str, int], start: Offset) -> None:
    """Report that all messages up to ``start`` are processed, unless the request has changed."""
    if last_sequences(halt_path) == until:
        _replace(halted_path(Path(halt_path)), json.dumps({**start}))


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}")
    temporary.write_text(text)
    temporary.replace(path)
