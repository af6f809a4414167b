"""Explanations of intended differences between the reference engine's answers and ours.

The fuzzer looks up every difference that it finds.  An explanation recognises its cause by the
parts of the app, the content of its input, and the engine's log.  Its reason is that of the
recorded cases in ``tests/cases/conformance/differences.txt`` which show the same choice.

Effects of the engine's restarts are found by playing the case without them: ``restarts``.  The
order of timers is the cause if both agree on the case with its times ``apart``.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mesh.testing.conformance.cases import TimeMode, case
from tools.fuzz.app_features import (
    AGGREGATE,
    begins_and_ends_with_nothing,
    columns,
    compares_aggregates,
    grouped,
    is_aggregate,
    sums_least_longs,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Evidence:
    """The known facts about a difference.

    ``said``: the engine's log and errors as one text; ``plays_back``: whether the case's time is
    that of its events; ``has_nulls``, ``has_arrays``: whether its input has any; ``has_ties``:
    whether two of its events have one time; ``queries``: those of its steps, as one text.
    """

    app: str
    said: str
    plays_back: bool
    has_nulls: bool
    has_arrays: bool
    has_ties: bool
    queries: str = ""

    @classmethod
    def of(cls, asked: Mapping[str, Any], answer: Mapping[str, Any]) -> Evidence:
        """The evidence of a case and the engine's whole answer to it."""
        times = [step["ts"] for step in asked["inputs"] if step.get("ts") is not None]
        told: list[Any] = [*(answer.get("log") or ()), *(answer.get("errors") or ())]
        return cls(
            app=asked["app"],
            said=json.dumps(told),
            plays_back=case(asked).mode is TimeMode.PLAYBACK,
            has_nulls="null" in json.dumps(asked["inputs"]),
            has_arrays=any(len(step.get("events") or ()) > 1 for step in asked["inputs"]),
            has_ties=len(set(times)) < len(times),
            queries="; ".join(step["query"] for step in asked["inputs"] if "query" in step),
        )

    def has(self, *patterns: str) -> bool:
        """Whether the app has something of each pattern in it."""
        return all(re.search(pattern, self.app) for pattern in patterns)

    def tells(self, *texts: str) -> bool:
        """Whether the engine's log contains all of these."""
        return all(text in self.said for text in texts)

    def fails_on(self, name: str) -> bool:
        """Whether a variable of the engine's with a name like this one was null."""
        return re.search(rf'\\"{name}\\" is null', self.said) is not None


@dataclass(frozen=True, slots=True)
class Explanation:
    """One choice: its reason, and its recognition.

    ``is_of_ties``: the cause has to be shown, by playing the case with times apart.
    """

    reason: str
    applies: Callable[[Evidence], bool]
    is_of_ties: bool = False


def _timed_queries(app: str) -> int:
    return sum(re.search(_TIMED, query) is not None for query in app.split(";"))


def _tells_groups(app: str) -> bool:
    """Whether events of two groups of a snapshot differ in more than plain aggregates."""
    selected = columns(app)
    plain = all(not is_aggregate(column) for column in selected)
    return plain or set(grouped(app)) <= set(selected)


def _looks_at_aggregates(app: str) -> bool:
    selected = columns(app)
    aggregates = [place for place, column in enumerate(selected) if is_aggregate(column)]
    return compares_aggregates(aggregates, len(selected))


def _finds_by_index(app: str) -> bool:
    """Whether a condition uses an indexed attribute of table ``D``."""
    indexed = re.findall(r"@Index\('(\w+)'\)", app)
    conditions = re.findall(r"\bon\b(?:(?!\bselect\b)[^;])*", app)
    return any(re.search(rf"\bD\.{name}\b", one) for name in indexed for one in conditions)


_NOT_RESTORED: Final = ("CannotRestoreSiddhiAppStateException", "ClassCastException")

_STEP: Final = r"e\d=\w+(?:\[[^\]]*\])?"
#: ``not S[..] for 1 sec``.
_ABSENCE: Final = r"\bnot \w+(?:\[[^\]]*\])? for \d"
#: ``output .. every 1 sec``.
_RATE: Final = r"\boutput [\w ]*every \d+ (?:milli)?sec"
_TIMER: Final = r"#window\.(?:time|timeBatch|timeLength|session)\("
#: Two windows with timers.
_TWO: Final = rf"(?s){_TIMER}.*{_TIMER}"
#: Windows that emit all their events at once, followed by a filter.
_BATCH: Final = r"#window\.(?:batch|lengthBatch|timeBatch|externalTimeBatch)\([^()]*\)"
#: Parts of a query that have timers.
_TIMED: Final = rf"{_TIMER}|{_RATE}|{_ABSENCE}|define window[^;]*\b(?:time\w*|session)\("

EXPLANATIONS: Final[Sequence[Explanation]] = (
    Explanation(
        "a null among sorted values: the engine fails at every later event of the window; "
        "here a null is the smallest value",
        lambda e: e.has(r"\bsort\(") and e.fails_on(r"comparableVariable\d|another\w+"),
    ),
    Explanation(
        "a sequence that begins and ends with optional steps: the engine emits a match more "
        "than once, also with events after its completion; here it is emitted once, as it was"
        " complete",
        lambda e: begins_and_ends_with_nothing(e.app),
    ),
    Explanation(
        "a join or table condition that is null fails in the engine; here it is false, as in "
        "a filter",
        lambda e: (
            e.has(r"\bjoin\b|define table")
            and e.tells("java.lang.Boolean.booleanValue()", "ExpressionExecutor.execute(")
        ),
    ),
    Explanation(
        "an event without a session key fails in the engine; here such events form one session",
        lambda e: e.has(r"\bsession\([^()]*,") and e.fails_on("key"),
    ),
    Explanation(
        "a null next to the aggregates of a snapshot: the engine fails when the event expires"
        " and keeps showing it; here the event is removed",
        lambda e: e.has(r"output snapshot") and e.fails_on(r"data\[i\]"),
    ),
    Explanation(
        "several aggregates next to other attributes of a snapshot: the engine compares some "
        "aggregates too when an event expires, or fails, and keeps showing it; here the event"
        " is removed",
        lambda e: (
            e.has(r"output snapshot")
            and (e.tells("ArrayIndexOutOfBoundsException") or _looks_at_aggregates(e.app))
        ),
    ),
    Explanation(
        "a snapshot by groups that are not selected: of equal events the engine may remove "
        "that of another group; here each group has its own",
        lambda e: e.has(r"output snapshot", r"\bgroup by\b") and not _tells_groups(e.app),
    ),
    Explanation(
        "a filter after a batch window that rejects the first event of a batch: the engine's "
        "aggregates continue with the previous batch; here each batch has its own",
        lambda e: e.has(rf"{_BATCH}\[", rf"\bselect\b[^;]*{AGGREGATE}"),
    ),
    Explanation(
        "other readers of the stream still receive an event on which a query fails, and in a "
        "partition the rest of its array; in the engine no later query receives it",
        lambda e: (
            (e.has(r"(?s)@info.*@info") and e.tells("SiddhiAppRuntimeException", "on class"))
            or (
                e.has(r"partition with") and e.has_arrays and e.tells("dropping event '[Lio.siddhi")
            )
        ),
    ),
    Explanation(
        "an event that leaves a batch window can fail its call here, also in a join of "
        "current events only; in the engine it does not reach the join",
        lambda e: (
            e.has(rf"{_BATCH}[^;]*\bjoin\b|\bjoin\b[^;]*{_BATCH}", r"\b`?(?:and|or)`?\(")
            and not e.has(r"insert (?:all|expired) |output snapshot")
            and e.fails_on("data")
        ),
    ),
    Explanation(
        "the engine fails to restore the state of stdDev, and with it that of others",
        lambda e: e.has(r"\bstdDev\(") and e.tells(*_NOT_RESTORED),
    ),
    Explanation(
        "the engine fails to restore such a state",
        lambda e: e.has(r"\btimeLength\(") and e.tells(*_NOT_RESTORED),
    ),
    Explanation(
        "under playback the engine's schedules follow the wall clock; here they follow the time "
        "of the events",
        lambda e: e.plays_back and e.has(r"window\.cron\(| cron\("),
    ),
    Explanation(
        "under playback the engine's triggers follow the wall clock and have the previous "
        "event's time; here they are due by event time, and have that time",
        lambda e: e.plays_back and e.has(r"define trigger"),
    ),
    Explanation(
        "under playback the engine counts every key's output rate from the start and repeats "
        "missed ticks for a late key; here it starts with the key's first event, as it does "
        "live",
        lambda e: e.plays_back and e.has(r"partition with", _RATE),
    ),
    Explanation(
        "under playback an absence at the start is counted from the first event, not from 1970",
        lambda e: e.plays_back and e.has(r"\bfrom (every )?\(?not\b"),
    ),
    Explanation(
        "a match is emitted as it was when it was complete, without additions by later events"
        " of its array",
        lambda e: (
            e.has_arrays
            and (
                e.has(r"\bfrom (every )?e\d=\w+(\[[^\]]*\])?[*+?]?,", r"[*+]")
                or e.has(rf"(?:from|every|->) \(?{_STEP}<0?:\d+>\)?\s+(select|within)\b")
                or e.has(rf"-> every \(?{_STEP} or {_STEP}\)?\s+within\b")
            )
        ),
    ),
    Explanation(
        # What ``minimum`` gives for a null is the largest long there is.
        "the engine subtracts longs from a sum as doubles, which is wrong beyond 2^53; here "
        "it is exact",
        lambda e: (
            e.has(r"#window\.|define window")
            and (e.has_nulls or e.has(r"\bouter join\b"))
            and sums_least_longs(e.app)
        ),
    ),
    Explanation(
        "distinctCount ignores an expired value that it never counted, as after an outer join"
        " that found another row; the engine fails",
        lambda e: e.has(r"\bdistinctCount\(") and e.fails_on("preVal"),
    ),
    Explanation(
        "timers due in one millisecond fire in the order of their queries, of their keys in a"
        " partition, and of the sides of a join; the engine's fire in the order in which they"
        " were set",
        lambda e: (
            not e.plays_back
            and (
                _timed_queries(e.app) > 1
                or e.has(r"partition with", _TIMED)
                or e.has(r"#window\.(?:timeLength|timeBatch|session)\(", r"\bjoin\b", _TWO)
            )
        ),
        is_of_ties=True,
    ),
    Explanation(
        "without expired events the engine never removes a batch of lengthBatch or timeBatch "
        "from the rows that the other side finds; here the window holds one batch",
        lambda e: (
            e.has(
                r"#window\.(?:length|time)Batch\([^;]*\bjoin\b|\bjoin\b[^;]*(?:length|time)Batch\("
            )
            and not e.has(r"insert (?:all|expired) |output snapshot")
        ),
    ),
    Explanation(
        "an event that leaves a named batch has the time of leaving; in the engine it has its"
        " arrival time after a join has read it",
        lambda e: e.has(r"define window[^;]*\b(?:batch|lengthBatch|timeBatch)\(", r"\bjoin W\b"),
    ),
    Explanation(
        "the engine deletes nothing if the condition has more terms than equality of the "
        "primary key; here all matching rows are deleted",
        lambda e: (
            e.has(r"@PrimaryKey")
            and re.search(r"\bdelete D on D\.k == (?:k|'\w+') and\b", f"{e.app} {e.queries}")
            is not None
        ),
    ),
    Explanation(
        "under playback the engine fires one of several keys' timers that are due in one "
        "millisecond, and the others when time advances; here all of them fire",
        lambda e: e.plays_back and e.has_ties and e.has(r"partition with", rf"{_TIMER}|{_ABSENCE}"),
        is_of_ties=True,
    ),
    Explanation(
        "the engine emits only the first key's batch of timeBatch; here each key's batch is "
        "emitted",
        lambda e: e.has(r"partition with", r"\btimeBatch\("),
    ),
    Explanation(
        "the engine keeps a row in the index that the primary key refused, and fails on a "
        "null there; here every access path finds the same rows",
        lambda e: (
            (e.has(r"@PrimaryKey", r"@Index") and e.tells("dropping event", "primary key"))
            or (e.has(r"@PrimaryKey", r"@Index", r"\bupdate\b") and e.tells("Set.remove(Object)"))
            or (e.has_nulls and e.has(r"@(PrimaryKey|Index)") and e.tells("NullPointerException"))
        ),
    ),
    Explanation(
        "the engine's list of rows loses rows that are inserted after its last row was deleted",
        lambda e: e.has(r"define table", r"\bdelete\b") and not e.has(r"@(PrimaryKey|Index)"),
    ),
    Explanation(
        "a named window of sessions fails in the engine at every event; here it works",
        lambda e: e.has(r"define window[^;]*\bsession\(") and e.fails_on("this.onAfterWindowData"),
    ),
    Explanation(
        "the engine fails to compare a key or index with another numeric type; here the "
        "numbers are compared",
        lambda e: e.has(r"@(PrimaryKey|Index)") and e.tells("ClassCastException"),
    ),
    Explanation(
        "the engine orders rows found by an index by hash codes that differ between starts, "
        "and without a primary key drops equal rows; here they are in the order of the table",
        lambda e: e.has(r"@Index") and (not e.has(r"@PrimaryKey") or _finds_by_index(e.app)),
    ),
    Explanation(
        "in a table with a key or an index the engine computes null for the table's own "
        "attribute in an assignment; here it is the row's value, as in other tables",
        lambda e: e.has(r"@(PrimaryKey|Index)", r"\bset\b[^;]*=[^;]*\bD\."),
    ),
    Explanation(
        "an array of events for update or insert: in the engine all of them update existing "
        "rows before any is added; here they are processed one after the other",
        lambda e: e.has_arrays and e.has(r"\bupdate or insert into D on (?!D\.k == k;)"),
    ),
    Explanation(
        "the engine allows an update to create two rows with one primary key if one key was "
        "null; here the second is refused",
        lambda e: (
            e.has_nulls and e.has(r"@PrimaryKey", r"\bupdate or insert into D on (?!D\.k ==)")
        ),
    ),
)


def explain(
    asked: Mapping[str, Any], answer: Mapping[str, Any], *, of_ties: bool = False
) -> str | None:
    """The reason why our answer to a case may differ from the engine's; None if there is none.

    Args:
        asked: the case.
        answer: the engine's whole answer to it, with its log.
        of_ties: whether to search for one that has to be shown, or for the others.
    """
    evidence = Evidence.of(asked, answer)
    asked_for = (one for one in EXPLANATIONS if one.is_of_ties == of_ties)
    return next((one.reason for one in asked_for if one.applies(evidence)), None)
