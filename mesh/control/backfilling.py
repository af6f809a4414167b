"""The cut between history and the live stream, decided; and the progress of a history in words.

past:   rows .......... ┐ cut                 the last sequence that history includes
stream:    ... 118  119 │ 120  121 ...        live groups read on after it
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.errors import MeshError
from mesh.model.begin import StartPositionKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mesh.control.restoring import JetStreamState
    from mesh.model.begin import StartPosition
    from mesh.model.history import HistoryReport


def cuts(
    end: StartPosition,
    states: Mapping[str, JetStreamState],
    last_before: Mapping[str, int],
    now_ms: int,
) -> dict[str, int]:
    """By JetStream stream of the input: the last sequence that the past events include.

    Args:
        end: where they end: a sequence, which they include, or a time, which they don't.
        states: the streams.
        last_before: of a time: by stream, the last sequence stored before it.
        now_ms: the present time.

    Raises:
        MeshError: MESH-A410 if messages after the cut may be gone, MESH-A422 for an end that is
            none of the stream.
    """
    match end.kind:
        case StartPositionKind.SEQUENCE:
            if len(states) != 1:
                raise _no_end(
                    end, "The input is divided by key, and each part has sequences of its own."
                )
            sequences = dict.fromkeys(states, end.sequence)
        case StartPositionKind.TIME if end.time_ms > now_ms:
            raise _no_end(end, "Messages before a time of the future are still to come.")
        case StartPositionKind.TIME:
            sequences = {stream: last_before.get(stream, 0) for stream in states}
        case _:
            raise _no_end(end, "An end is a sequence or a time.")
    for stream, sequence in sequences.items():
        state = states[stream]
        if sequence > state.last:
            raise _no_end(end, f"The last message of {stream} is {state.last}.")
        is_gone = sequence + 1 < state.first
        # Of a time it is not known whether the messages that are gone were before it.
        is_doubtful = end.kind is StartPositionKind.TIME and 1 < state.first == sequence + 1
        if is_gone or is_doubtful:
            raise MeshError(
                "MESH-A410",
                "messages between the history and the live stream may be gone",
                detail=f"{stream} begins with message {state.first}; the history ends at {end}.",
                hint="Choose a later --until, up to which the files hold all events; a sequence "
                "says exactly where they end.",
            )
    return sequences


def progress(stream: str, report: HistoryReport) -> str:
    """The progress of a history, as the reason of an app that does not run yet."""
    # Of a stream the number of messages is known, which may have several rows.
    has_total = report.rows + report.later < report.of or report.rows == report.of
    rows = f"{report.rows:,} of {report.of:,} rows" if has_total else f"{report.rows:,} rows"
    rate = f"{report.rows_per_s:,.0f} rows/s"
    left = ""
    if has_total and report.rows_per_s:
        left = f", {max(0, report.of - report.rows - report.later) / report.rows_per_s:.0f} s left"
    done = "its history is stored: " if report.is_done else "its history is run: "
    return f"{done}{stream}, {rows}, {rate}{left}"


def _no_end(end: StartPosition, why: str) -> MeshError:
    return MeshError(
        "MESH-A422",
        f"the history can't end at {end}",
        detail=why,
        hint="--until is the last sequence that the files include, or the time before which their "
        "rows are read.",
    )
