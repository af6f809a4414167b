"""Answers that are compared: order, chunks and callbacks."""

from __future__ import annotations

from mesh.testing.conformance.answers import Likeness, differences, likeness


def test_likeness_tells_order_from_content() -> None:
    one, two = [0, 5, [1], "i"], [0, 5, [2], "i"]
    wanted = {"status": "ok", "streams": {"Out": [one, two]}, "queries": {}}
    other = {"status": "ok", "streams": {"Out": [two, one]}, "queries": {}}
    less = {"status": "ok", "streams": {"Out": [one]}, "queries": {}}
    assert likeness(wanted, wanted) is Likeness.SAME
    assert likeness(other, wanted) is Likeness.ORDER
    assert likeness(less, wanted) is Likeness.DIFFERENT
    assert differences(less, wanted) == ['Out 1: nothing, expected [0, 5, [2], "i"]']


def test_callbacks_without_events_are_not_compared() -> None:
    call = [5, [[5, [1], "i"]], None]
    wanted = {"status": "ok", "streams": {}, "queries": {"q": [call, [-1, None, None]]}}
    ours = {"status": "ok", "streams": {}, "queries": {"q": [call]}}
    assert likeness(ours, wanted) is likeness(wanted, ours) is Likeness.SAME
    assert differences(ours, wanted) == []
    silent = {"status": "ok", "streams": {}, "queries": {"q": []}}
    assert likeness(silent, wanted) is Likeness.DIFFERENT


def test_calls_that_are_cut_otherwise_are_other_chunks() -> None:
    one, two = [5, [1], "i"], [5, [2], "i"]
    wanted = {"status": "ok", "streams": {}, "queries": {"q": [[5, [one, two], None]]}}
    ours = {"status": "ok", "streams": {}, "queries": {"q": [[5, [one], None], [5, [two], None]]}}
    assert likeness(ours, wanted) is Likeness.CHUNKS
