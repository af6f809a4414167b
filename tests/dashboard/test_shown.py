"""Values as the pages show them."""

from __future__ import annotations

from mesh.dashboard.shown import duration, number, payload, rate, size


def test_values_are_short_and_payloads_can_not_hide_anything() -> None:
    assert [number(1234567), rate(0.25), rate(123456), size(0), size(1_500_000)] == [
        "1\u202f234\u202f567", "0.2", "123\u202fk", "0\u202fB", "1.5\u202fMB",
    ]  # fmt: skip
    assert [duration(s) for s in (0, 0.02, 3.2, 75, 7260, 90_000)] == [
        "0\u202fs", "20\u202fms", "3.2\u202fs", "1\u202fmin 15\u202fs", "2\u202fh 1\u202fmin",
        "1\u202fd 1\u202fh",
    ]  # fmt: skip
    assert payload("a\u202eb\x00c\u200b") == "a\\u202eb\\u0000c\\u200b"
    assert payload("x" * 1_000_000).endswith("… 998,000 more characters")
    assert payload(b"\xff\xfe\x00") == "3 bytes that are no text: ff fe 00"
    assert payload({"a": [1, None]}) == '{"a":[1,null]}'
