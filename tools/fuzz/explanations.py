"""Reasons for intended differences between the engine's answer to a case and ours.

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

from mesh.testing.conformance.cases import Mode, case
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
    whether two of its events have one time.
    """

    app: str
    said: str
    plays_back: bool
    has_nulls: bool
    has_arrays: bool
    has_ties: bool

    @classmethod
    def of(cls, asked: Mapping[str, Any], answer: Mapping[str, Any]) -> Evidence:
        """The evidence of a case and the engine's whole answer to it."""
        times = [step["ts"] for step in asked["inputs"] if step.get("ts") is not None]
        told: list[Any] = [*(answer.get("log") or ()), *(answer.get("errors") or ())]
        return cls(
            app=asked["app"],
            said=json.dumps(told),
            plays_back=case(asked).mode is Mode.PLAYBACK,
            has_nulls="null" in json.dumps(asked["inputs"]),
            has_arrays=any(len(step.get("events") or ()) > 1 for step in asked["inputs"]),
            has_ties=len(set(times)) < len(times),
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
        "a null among what is sorted: the engine fails at every event of the window from then on; "
        "here a null is the smallest",
        lambda e: e.has(r"\bsort\(") and e.fails_on(r"comparableVariable\d|another\w+"),
    ),
    Explanation(
        "a sequence that begins and ends with steps that need no event: the engine puts a match "
        "out more than once, and with events that came after it was complete; ours comes out once, "
        "as it was",
        lambda e: begins_and_ends_with_nothing(e.app),
    ),
    Explanation(
        "a condition of a join or a table that is null as a whole fails in the engine; here it is "
        "not met, as in a filter",
        lambda e: (
            e.has(r"\bjoin\b|define table")
            and e.tells("java.lang.Boolean.booleanValue()", "ExpressionExecutor.execute(")
        ),
    ),
    Explanation(
        "an event without a session key fails in the engine; here such events have a session of "
        "their own",
        lambda e: e.has(r"\bsession\([^()]*,") and e.fails_on("key"),
    ),
    Explanation(
        "a null beside the aggregates of a snapshot: the engine fails when the event leaves, and "
        "shows it for ever; here it leaves",
        lambda e: e.has(r"output snapshot") and e.fails_on(r"data\[i\]"),
    ),
    Explanation(
        "several aggregates beside other attributes of a snapshot: the engine looks at some of the "
        "aggregates as well when an event leaves, or fails, and shows it for ever; here it leaves",
        lambda e: (
            e.has(r"output snapshot")
            and (e.tells("ArrayIndexOutOfBoundsException") or _looks_at_aggregates(e.app))
        ),
    ),
    Explanation(
        "a snapshot by groups that are not selected: of the events that are alike in the engine "
        "that of another group may go; here each group has its own",
        lambda e: e.has(r"output snapshot", r"\bgroup by\b") and not _tells_groups(e.app),
    ),
    Explanation(
        "a filter behind a batch window that does not let through the first event of a batch: the "
        "engine's aggregates go on as if it belonged to the one before; here each batch has its "
        "own",
        lambda e: e.has(rf"{_BATCH}\[", rf"\bselect\b[^;]*{AGGREGATE}"),
    ),
    Explanation(
        "an event on which a query fails goes on to the other readers of its stream, and in a "
        "partition the rest of its array does; in the engine nobody behind the query that failed "
        "gets it",
        lambda e: (
            (e.has(r"(?s)@info.*@info") and e.tells("SiddhiAppRuntimeException", "on class"))
            or (
                e.has(r"partition with") and e.has_arrays and e.tells("dropping event '[Lio.siddhi")
            )
        ),
    ),
    Explanation(
        "what leaves a batch window fails what it is in here, also in a join that asks for current "
        "events alone; in the engine it does not come to the join",
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
        "under playback the engine's triggers follow the wall clock and bear the time of the event "
        "before; here they are due by the time of the events, and bear it",
        lambda e: e.plays_back and e.has(r"define trigger"),
    ),
    Explanation(
        "under playback the engine counts the time of every key's output rate from the start, and "
        "makes up for the ticks that a late key has missed; here it begins with the key's first "
        "event, as it does live",
        lambda e: e.plays_back and e.has(r"partition with", _RATE),
    ),
    Explanation(
        "under playback an absence at the start is counted from the first event, not from 1970",
        lambda e: e.plays_back and e.has(r"\bfrom (every )?\(?not\b"),
    ),
    Explanation(
        "a match comes out as it was when it was complete, without what later events of its array "
        "added",
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
        # The result of ``minimum`` for a null is the largest long.
        "the engine takes longs away from a sum as doubles, which is wrong beyond 2^53; ours is "
        "exact",
        lambda e: (
            e.has(r"#window\.|define window")
            and (e.has_nulls or e.has(r"\bouter join\b"))
            and sums_least_longs(e.app)
        ),
    ),
    Explanation(
        "distinctCount passes over a value that leaves and never came, as where an outer join "
        "found another row before; the engine fails",
        lambda e: e.has(r"\bdistinctCount\(") and e.fails_on("preVal"),
    ),
    Explanation(
        "timers of two queries that are due in one millisecond fire in the order of the queries, "
        "those of two keys of a partition in that of the keys, and those of a join's windows in "
        "that of its sides; the engine's in that in which they were set",
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
        "the engine never drops a batch of lengthBatch or timeBatch from what the other side finds "
        "where expired events are not asked for; ours holds one batch",
        lambda e: (
            e.has(
                r"#window\.(?:length|time)Batch\([^;]*\bjoin\b|\bjoin\b[^;]*(?:length|time)Batch\("
            )
            and not e.has(r"insert (?:all|expired) |output snapshot")
        ),
    ),
    Explanation(
        "what leaves a named batch has the time of leaving; in the engine it has the time it came "
        "with once a join has looked at it",
        lambda e: e.has(r"define window[^;]*\b(?:batch|lengthBatch|timeBatch)\(", r"\bjoin W\b"),
    ),
    Explanation(
        "the engine deletes nothing where the condition says more than that the primary key is "
        "equal; ours deletes what meets it",
        lambda e: e.has(r"@PrimaryKey", r"\bdelete D on D\.k == k and\b"),
    ),
    Explanation(
        "under playback the engine lets a timer fire for one of the keys of a partition that are "
        "due in one millisecond, and for the others when time moves again; here for all of them",
        lambda e: e.plays_back and e.has_ties and e.has(r"partition with", rf"{_TIMER}|{_ABSENCE}"),
        is_of_ties=True,
    ),
    Explanation(
        "the engine lets only the first key's batch of timeBatch go, ever; here each key's goes",
        lambda e: e.has(r"partition with", r"\btimeBatch\("),
    ),
    Explanation(
        "the engine keeps a row that its primary key refused in the index, and fails on a null "
        "there; ours has the same rows by whatever way they are found",
        lambda e: (
            (e.has(r"@PrimaryKey", r"@Index") and e.tells("dropping event", "primary key"))
            or (e.has(r"@PrimaryKey", r"@Index", r"\bupdate\b") and e.tells("Set.remove(Object)"))
            or (e.has_nulls and e.has(r"@(PrimaryKey|Index)") and e.tells("NullPointerException"))
        ),
    ),
    Explanation(
        "the engine's list of rows loses what comes after its last row was deleted",
        lambda e: e.has(r"define table", r"\bdelete\b") and not e.has(r"@(PrimaryKey|Index)"),
    ),
    Explanation(
        "a named window of sessions fails in the engine at every event; here it is one",
        lambda e: e.has(r"define window[^;]*\bsession\(") and e.fails_on("this.onAfterWindowData"),
    ),
    Explanation(
        "the engine fails on a comparison of a key or index with another type of number; ours "
        "compares the numbers",
        lambda e: e.has(r"@(PrimaryKey|Index)") and e.tells("ClassCastException"),
    ),
    Explanation(
        "the engine lists the rows that it finds by an index by hash codes that differ from start "
        "to start, and without a primary key drops rows that are alike; ours are in the order of "
        "the table",
        lambda e: e.has(r"@Index") and (not e.has(r"@PrimaryKey") or _finds_by_index(e.app)),
    ),
    Explanation(
        "in a table with a key or an index the engine computes null where an assignment names "
        "the table's own attribute; ours is the row's value, as in its other tables",
        lambda e: e.has(r"@(PrimaryKey|Index)", r"\bset\b[^;]*=[^;]*\bD\."),
    ),
    Explanation(
        "an array of events for update or insert: in the engine all of them update the rows that "
        "are there before any is added; here each comes behind the one before",
        lambda e: e.has_arrays and e.has(r"\bupdate or insert into D on (?!D\.k == k;)"),
    ),
    Explanation(
        "the engine lets an update make two rows of one primary key where one of them was null; "
        "ours refuses the second",
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
