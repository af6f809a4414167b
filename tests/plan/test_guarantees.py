"""Guarantees that a text demands.

The rows of an audit of guarantees, by the configuration of streams and servers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mesh.connect.spec import Guarantee
from mesh.plan.build import plan
from mesh.plan.guarantees import (
    NOTHING,
    AuditPlace,
    Facts,
    Failure,
    StreamFacts,
    audit,
    demanded_guarantee,
    refusal,
    summary,
)

if TYPE_CHECKING:
    from mesh.plan.guarantees import AuditRow


def test_the_guarantee_that_a_text_demands() -> None:
    stream = "define stream S (a int); from S select a insert into T;"
    demanded = demanded_guarantee(f"@App:name('A') @App:guarantee('exactly-once') {stream}")
    assert demanded is Guarantee.EXACTLY_ONCE
    assert demanded_guarantee(f"@App:name('A') {stream}") is None
    assert demanded_guarantee(f"@App:name('A') /* guarantee */ {stream}") is None


TEXT = """@App:name('Shop')
@source(type='http', @map(type='json'))
define stream Orders (item string, price double);
@sink(type='log')
define stream Mails (item string);
@dist(execGroup='g') from Orders#window.length(2) select item insert into Mails;
"""
ONCE, MAYBE = Guarantee.EXACTLY_ONCE.value, Guarantee.AT_MOST_ONCE.value
PROCESS, SERVER, POWER, POWERS, READER = Failure
SPEC = plan(TEXT).spec


def rows_of(
    stream: dict[str, Any] | None = None, bucket: dict[str, Any] | None = None, **facts: Any
) -> list[AuditRow]:
    """The audit of the app with the same configuration in all of its streams."""
    streams = {c.js_stream(): StreamFacts(c.js_stream(), **(stream or {})) for c in SPEC.channels}
    kept = StreamFacts("KV_mesh_control", **({"allows_atomic": False} | (bucket or {})))
    return audit(SPEC, Facts(streams, (kept,), **facts))


def held(rows: list[AuditRow], place: AuditPlace = AuditPlace.CHANNEL) -> dict[Failure, str]:
    """The weakest of a kind of place, by failure."""
    order = [NOTHING, *(one.value for one in Guarantee)]
    found: dict[Failure, str] = {}
    for row in rows:
        if row.place is place:
            before = found.get(row.failure, ONCE)
            found[row.failure] = min(row.holds, before, key=order.index)
    return found


#: Configuration of the streams, settings, and the failures through which there is less than ONCE.
CASES: list[tuple[str, dict[str, Any], dict[str, Any], dict[Failure, str]]] = [
    ("one copy", {}, {}, {SERVER: NOTHING, POWER: NOTHING, POWERS: NOTHING}),
    ("one copy, synced each second", {}, {"sync_s": 1.0},
     {SERVER: NOTHING, POWER: NOTHING, POWERS: NOTHING}),
    ("one copy, always synced", {}, {"sync_s": 0.0}, {SERVER: NOTHING}),
    ("two copies", {"replicas": 2}, {}, {POWERS: NOTHING}),
    ("three copies", {"replicas": 3}, {}, {POWERS: NOTHING}),
    ("three copies, always synced", {"replicas": 3}, {"sync_s": 0.0}, {}),
    ("memory", {"is_on_disk": False}, {"sync_s": 0.0},
     {PROCESS: NOTHING, SERVER: NOTHING, POWER: NOTHING, POWERS: NOTHING}),
    ("memory, three copies", {"is_on_disk": False, "replicas": 3}, {"sync_s": 0.0},
     {POWERS: NOTHING}),
    ("a week, and managers extend it", {"max_age_s": 604800.0, "replicas": 3}, {"sync_s": 0.0}, {}),
    ("a week, for good", {"max_age_s": 604800.0, "replicas": 3},
     {"sync_s": 0.0, "keeps_unread": False}, {READER: NOTHING}),
    ("shorter than a failover", {"max_age_s": 59.0, "replicas": 3}, {"sync_s": 0.0},
     dict.fromkeys(Failure, NOTHING)),
    ("as long as a failover", {"max_age_s": 60.0, "replicas": 3}, {"sync_s": 0.0}, {}),
    ("bounded in bytes", {"max_bytes": 1000, "replicas": 3}, {"sync_s": 0.0}, {READER: NOTHING}),
    ("bounded in messages", {"max_messages": 9, "replicas": 3}, {"sync_s": 0.0},
     {READER: NOTHING}),
    ("full streams refuse", {"max_bytes": 1000, "refuses_new": True, "replicas": 3},
     {"sync_s": 0.0}, {}),
    ("no atomic batches", {"allows_atomic": False, "replicas": 3}, {"sync_s": 0.0},
     dict.fromkeys(Failure, NOTHING)),
    ("no acknowledgements", {"acknowledges": False, "replicas": 3}, {"sync_s": 0.0},
     dict.fromkeys(Failure, MAYBE)),
    ("a work queue", {"retention": "workqueue", "replicas": 3}, {"sync_s": 0.0},
     dict.fromkeys(Failure, NOTHING)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("stream", "facts", "less"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_channels_through_failures(
    stream: dict[str, Any], facts: dict[str, Any], less: dict[Failure, str]
) -> None:
    rows = rows_of(stream, {"replicas": 3}, **facts)
    assert held(rows) == dict.fromkeys(Failure, ONCE) | less
    for row in rows:
        assert row.reason
        assert row.remedy or row.holds != NOTHING


@pytest.mark.parametrize(
    ("bucket", "store", "less"),
    [
        ({}, "", {SERVER, POWER, POWERS}),
        ({"replicas": 3}, "", {POWERS}),
        ({"is_on_disk": False}, "", {PROCESS, SERVER, POWER, POWERS}),
        ({"replicas": 3}, "/mnt/states", {POWERS}),
    ],
)
def test_states_through_failures(bucket: dict[str, Any], store: str, less: set[Failure]) -> None:
    rows = rows_of({"replicas": 3}, bucket, store=store)
    found = held(rows, AuditPlace.STATE)
    assert {failure for failure, holds in found.items() if holds == NOTHING} == less
    # Snapshots are read by nobody else, and have no age.
    assert READER not in found
    told = [row.reason for row in rows if row.place is AuditPlace.STATE and row.holds == ONCE]
    assert all(("if /mnt/states outlasts it" in reason) == bool(store) for reason in told)


def test_a_border_gives_no_more_than_its_type_and_the_channel_beside_it() -> None:
    rows = rows_of({"replicas": 3}, {"replicas": 3}, sync_s=0.0)
    assert set(held(rows, AuditPlace.SOURCE).values()) == {Guarantee.AT_LEAST_ONCE_WITH_KEY.value}
    source = next(row for row in rows if row.place is AuditPlace.SOURCE)
    assert "within the channel's duplicate window (120 s)" in source.reason
    sinks = held(rows, AuditPlace.SINK)
    assert set(sinks) == set(Failure)
    # One copy: what the channel loses, its sink can't send.
    weaker = held(rows_of({}, {"replicas": 3}, sync_s=0.0), AuditPlace.SINK)
    assert weaker[SERVER] == NOTHING
    assert {**weaker, SERVER: sinks[SERVER]} == sinks


def test_the_summary_names_what_holds_and_once_each_thing_that_does_not() -> None:
    first, *others = summary(rows_of())
    assert first.endswith("through a process killed, a reader away past retention")
    lost, power, *borders = others
    assert lost.startswith("not through a server lost for good: its events are on one server only")
    assert "channels.replicas: 3" in lost
    assert power.startswith("not through power lost on a server, power lost on a majority: ")
    assert "channels.sync_interval_s does not state" in power
    assert next(line.partition(":")[0] for line in borders).startswith("at least once, with a key")
    short = summary(rows_of(), is_short=True)
    assert short[1] == "not through a server lost for good: its events are on one server only"
    assert not [line for line in short if "to change it" in line]
    best = summary(rows_of({"replicas": 3}, {"replicas": 3}, sync_s=0.0))
    assert not [line for line in best if line.startswith("not ")]


@pytest.mark.parametrize(
    ("stream", "replicas", "said"),
    [
        # A single server without guarantees beyond killed processes is no reason to refuse.
        ({}, 1, None),
        ({"max_age_s": 30.0}, 1, "events go after 30 s, and a failover may take 60 s"),
        ({"is_on_disk": False}, 1, "its events are in memory"),
        ({"allows_atomic": False}, 1, "it takes no atomic batches"),
        ({"is_on_disk": False, "replicas": 3}, 3, None),
        ({"replicas": 3}, 3, None),
        # Losses by a power failure or a bound of bytes alone are reported.
        ({"replicas": 3, "max_bytes": 1000}, 3, None),
        ({"replicas": 1}, 3, "its events are on one server only"),
    ],
)
def test_an_app_is_refused_only_where_its_guarantee_does_not_hold(
    stream: dict[str, Any], replicas: int, said: str | None
) -> None:
    rows = rows_of(stream, {"replicas": replicas}, replicas=replicas)
    error = refusal("Shop", rows, Guarantee.EXACTLY_ONCE, replicas)
    assert (None if error is None else error.code) == (said and "MESH-C125")
    if error is not None and said is not None:
        assert said in str(error.detail)
        assert str(error.hint).startswith("Change that: ")
    assert refusal("Shop", rows, None, replicas) is None


def test_at_most_once_is_enough_where_it_is_demanded() -> None:
    rows = rows_of({"acknowledges": False}, {})
    assert refusal("Shop", rows, Guarantee.AT_MOST_ONCE, 1) is None
    assert refusal("Shop", rows, Guarantee.AT_LEAST_ONCE, 1) is not None
