"""Records of an outbox: divided by messages, joined to groups, and in portions of bounded bytes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from mesh.jetstream.channel_reader import ChannelMessage
from mesh.receiver import outbox_items
from mesh.receiver.outbox_items import Items, OutboxRecords, portions


def message(sequence: int, size: int = 1) -> ChannelMessage:
    return ChannelMessage(sequence, b"x" * size, None, 0)


def items(counts: list[int], options: list[str] | None = None) -> Items:
    """An item for each event of messages with so many events."""
    message_of = [at for at, count in enumerate(counts) for _ in range(count)]
    places = [place for count in counts for place in range(count)]
    number = len(message_of)
    rows = pa.RecordBatch.from_pydict({"n": pa.array(range(number), pa.int64())})
    return Items(
        "S", rows, [message(10 + at) for at in range(len(counts))], message_of, places,
        range(number), [b"%d" % n for n in range(number)],
        [{"to": one} for one in options[:number]] if options else (),
    )  # fmt: skip


COUNTS = st.lists(st.integers(0, 4), min_size=1, max_size=6).filter(any)


@example(counts=[1, 4])
@given(counts=COUNTS)
def test_parts_have_whole_messages_if_there_are_several(counts: list[int]) -> None:
    whole = items(counts)
    first, second = whole.divided()
    assert first.payloads + second.payloads == whole.payloads
    if sum(map(bool, counts)) > 1:
        assert first
        assert second
        assert not set(first.message_of) & set(second.message_of)
    elif len(whole) > 1:
        assert first
        assert second


@given(counts=COUNTS, data=st.data())
def test_what_is_left_out_or_picked_keeps_its_message_and_place(
    counts: list[int], data: st.DataObject
) -> None:
    whole = items(counts, ["a", "b"] * 12)
    some = data.draw(st.sets(st.integers(0, len(whole) - 1)))
    rest = whole.without(some)
    kept = [at for at in range(len(whole)) if at not in some]
    assert [one.record for one in rest] == [whole.record(at) for at in kept]
    assert [one.places for one in rest] == [whole[at].places for at in kept]
    assert [one.rows for one in rest] == [whole[at].rows for at in kept]
    assert whole.pick(kept).payloads == rest.payloads


@given(counts=COUNTS, data=st.data())
def test_events_of_a_message_with_equal_options_are_one_item(
    counts: list[int], data: st.DataObject
) -> None:
    number = sum(counts)
    options = data.draw(st.lists(st.sampled_from("ab"), min_size=number, max_size=number))
    whole = items(counts, options)
    joined = whole.grouped(b",".join)
    expected: dict[tuple[int, str], list[int]] = {}
    for at, option in enumerate(options):
        expected.setdefault((whole.message_of[at], option), []).append(at)
    assert [one.rows.column("n").to_pylist() for one in joined] == list(expected.values())
    assert joined.payloads == [b",".join(b"%d" % n for n in ats) for ats in expected.values()]
    assert joined.count_events() == number
    assert [joined.count_events(at) for at in range(len(joined))] == [*map(len, expected.values())]
    keys = [joined.record(at).key for at in range(len(joined))]
    assert len(set(keys)) == len(keys)


def test_a_record_says_no_more_than_is_written() -> None:
    whole = items([1, 2, 1])
    records = OutboxRecords(whole, 11)
    assert [one.sequence for one in records] == [10, 11, 11, 11]
    assert [one.sequence for one in records[2:]] == [11, 11]
    assert [one.sequence for one in OutboxRecords(whole)] == [10, 11, 11, 12]
    assert records.payloads == whole.payloads


SIZES = st.lists(st.integers(0, 12), max_size=12)


@given(sizes=SIZES)
def test_portions_are_as_large_as_they_may_be(sizes: list[int]) -> None:
    most, unit = outbox_items.BYTES_MAX, outbox_items.BYTES_MAX // 8
    messages: list[Any] = [message(at, size * unit) for at, size in enumerate(sizes)]
    found = [list(part) for part in portions(messages)]
    assert [one for part in found for one in part] == messages
    lengths = [sum(len(one.data) for one in part) for part in found]
    assert all(
        length <= most or len(part) == 1 for length, part in zip(lengths, found, strict=True)
    )
    for length, following in zip(lengths, found[1:], strict=False):
        assert length + len(following[0].data) > most
