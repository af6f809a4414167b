"""Outputs of two apps, read whole from their channels and compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from mesh.errors import MeshError
from mesh.jetstream import channel_reader, stream_positions
from mesh.lineage.comparing import UNKNOWN, OutputItem, StreamComparison, by_key, compare
from mesh.lineage.replay import events_of
from mesh.lineage.why import EDIT, Lineage
from mesh.model import names
from pyspark_nats.sink import messages_out

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from nats.aio.client import Client

    from mesh.jetstream.channel_reader import LogMessage
    from mesh.lineage.comparing import Difference
    from mesh.model.app import AppSpec, Channel
    from mesh.model.cluster import AppRecord
    from mesh.model.lineage import Cause
    from mesh.model.values import JsonObject

#: Events of one output that are compared.
ROWS_MAX: Final = 2_000_000


async def compare_apps(
    client: Client,
    before: AppRecord,
    after: AppRecord,
    streams: Sequence[str] = (),
    key: Sequence[str] = (),
    ignored: Sequence[str] = (),
) -> JsonObject:
    """Compare the outputs of an app and its fork, or of any two apps; JSON values.

    Args:
        client: the connection.
        before: the app.
        after: the fork.
        streams: the streams to compare; all that queries of both write without any.
        key: attributes that identify a row of each stream; rows are lined up by producer without.
        ignored: attributes whose values may differ, such as the time of a computation.

    Raises:
        MeshError: MESH-A404 for a stream that not both have, MESH-A400 for a key or an
            ignored attribute that is in none, or an attribute that is both,
            MESH-C153 for too many events.
    """
    both = before.spec.computed_streams & after.spec.computed_streams
    missing = [name for name in streams if name not in both]
    if missing or not both:
        raise MeshError(
            "MESH-A404",
            f'apps "{before.spec.name}" and "{after.spec.name}" do not both write stream '
            f'"{"".join(missing[:1]) or "?"}" to the wire',
            detail=f"Both write: {', '.join(sorted(both)) or 'none'}.",
        )
    later = after.fork is not None and bool(after.fork.backup or after.fork.begins)
    results: dict[str, StreamComparison] = {}
    compared = [*streams] or sorted(both)
    attributes = {
        name: {*_attributes(before.spec, name)} & {*_attributes(after.spec, name)}
        for name in compared
    }
    _check_attributes(attributes, key, ignored)
    for name in compared:
        # A stream without the key is lined up by producer.
        row_key = key if attributes[name].issuperset(key) else ()
        order = tuple(
            attribute
            for attribute in dict.fromkeys(
                [*_attributes(before.spec, name), *_attributes(after.spec, name)]
            )
            if attribute not in ignored
        )
        ours = await _lines(client, before, name, order)
        theirs = await _lines(client, after, name, order)
        results[name] = compare(*_lined_up(ours, theirs, row_key), begins_later=later)
    differences = [(name, one) for name, one in results.items() if one.first is not None]
    values: JsonObject = {
        "app": before.spec.name,
        "fork": after.spec.name,
        "differs": any(one.differs for one in results.values()),
        "streams": [{"stream": name, **_counts(one)} for name, one in results.items()],
        "first": None,
    }
    if differences:
        name, one = min(differences, key=lambda pair: pair[1].first.time_ms if pair[1].first else 0)
        assert one.first is not None
        cause = await _cause(client, before, after, one.first)
        values["first"] = {"stream": name, **_difference(one.first), **cause}
    return values


def _check_attributes(
    attributes: Mapping[str, set[str]], key: Sequence[str], ignored: Sequence[str]
) -> None:
    """Raise MESH-A400 for attributes that are in none of the streams, or that are both."""
    unknown = sorted({*key, *ignored}.difference(*attributes.values()))
    if unknown:
        raise MeshError(
            "MESH-A400",
            f'no compared stream has attribute "{unknown[0]}"',
            detail="; ".join(
                f"{name}: {', '.join(sorted(columns))}" for name, columns in attributes.items()
            ),
        )
    both = sorted({*key} & {*ignored})
    if both:
        raise MeshError("MESH-A400", f'attribute "{both[0]}" is a key, and is ignored')


def _attributes(spec: AppSpec, stream: str) -> list[str]:
    channel = spec.whole_channel(stream)
    return [a.name for a in channel.stream.attributes] if channel is not None else []


def _line(record: AppRecord, partition: int, producer: str) -> str:
    if not producer:
        return UNKNOWN
    suffix = producer.removeprefix(f"{record.incarnation}-")
    return f"{partition} {EDIT.sub('-', suffix, count=1)}"


async def _lines(
    client: Client, record: AppRecord, stream: str, order: Sequence[str]
) -> dict[Hashable, list[OutputItem]]:
    """The events of a stream, by producer, with their attributes in an order."""
    channel = record.spec.whole_channel(stream)
    assert channel is not None, "the stream is on the wire"
    lines: dict[Hashable, list[OutputItem]] = {}
    count = 0
    for partition in range(channel.partitions):
        js_stream = channel.js_stream(partition)
        prefix = f"{names.marker_subject(js_stream)}."
        producers = await stream_positions.producers(client, js_stream)
        # Rows tell their producer; the others of an atomic batch belong to the next marker's.
        batch: list[LogMessage] = []
        owner = ""
        last = (await client.jetstream().stream_info(js_stream)).state.last_seq
        async for one in channel_reader.read(client, js_stream, 1, last):
            is_marker = one.subject.startswith(prefix)
            row = messages_out.parse(one.headers.get(messages_out.HEADER))
            producer = producers.get(row.producer, "") if row is not None and not is_marker else ""
            if is_marker or producer != owner:
                writer = owner or (one.subject.removeprefix(prefix) if is_marker else "")
                count += _add(
                    lines, _line(record, partition, writer), js_stream, channel, batch, order
                )
                batch, owner = [], producer
            if not is_marker:
                batch.append(one)
        count += _add(lines, _line(record, partition, owner), js_stream, channel, batch, order)
        if count > ROWS_MAX:
            raise MeshError(
                "MESH-C153",
                f'stream "{stream}" has too many events to compare',
                detail=f"At most {ROWS_MAX} of a stream are compared.",
                hint="Fork the app with --from and --until.",
            )
    return lines


def _add(
    lines: dict[Hashable, list[OutputItem]],
    line: str,
    js_stream: str,
    channel: Channel,
    batch: Sequence[LogMessage],
    order: Sequence[str],
) -> int:
    if not batch:
        return 0
    events = events_of(js_stream, channel, batch)
    columns = [name for name in order if name in events.rows.schema.names]
    # A copy is as long as its row; what orjson returns keeps its whole buffer of a kilobyte.
    rows = [
        bytes(memoryview(orjson.dumps(row, default=str)))
        for row in events.rows.select(columns).to_pylist()
    ]
    lines.setdefault(line, []).extend(
        OutputItem(js_stream, sequence, index, time_ms, row)
        for sequence, index, time_ms, row in zip(
            events.sequence.tolist(),
            events.index.tolist(),
            events.time_ms.tolist(),
            rows,
            strict=True,
        )
    )
    return len(rows)


def _lined_up(
    ours: Mapping[Hashable, list[OutputItem]],
    theirs: Mapping[Hashable, list[OutputItem]],
    key: Sequence[str],
) -> tuple[Mapping[Hashable, list[OutputItem]], Mapping[Hashable, list[OutputItem]]]:
    """The rows of both by key, or by producer; in one line if they have no producer in common."""
    if key:
        return by_key(_all(ours.values()), key), by_key(_all(theirs.values()), key)
    if set(ours) & set(theirs) - {UNKNOWN} or not ours or not theirs:
        return ours, theirs
    line = UNKNOWN if UNKNOWN in ours or UNKNOWN in theirs else "all"
    return {line: _all(ours.values())}, {line: _all(theirs.values())}


def _all(lines: Iterable[list[OutputItem]]) -> list[OutputItem]:
    return sorted((one for line in lines for one in line), key=lambda one: one.time_ms)


def _counts(one: StreamComparison) -> dict[str, int]:
    return {
        "same": one.same, "new": one.new, "gone": one.gone, "changed": one.changed,
        "earlier": one.earlier,
    }  # fmt: skip


def _difference(one: Difference) -> JsonObject:
    return {"kind": one.kind, "app": _item(one.before), "fork": _item(one.after)}


def _item(one: OutputItem | None) -> JsonObject | None:
    if one is None:
        return None
    return {
        "js_stream": one.js_stream, "sequence": one.sequence, "index": one.index,
        "time_ms": one.time_ms, "event": one.event,
    }  # fmt: skip


async def _cause(
    client: Client, before: AppRecord, after: AppRecord, one: Difference
) -> JsonObject:
    """The input behind a difference, by sequence; why it is not known otherwise."""
    item = one.before or one.after
    assert item is not None
    record = before if one.before is not None else after
    try:
        cause = await Lineage(client, record).why(item.js_stream, item.sequence, item.index)
    except MeshError as error:
        return {"inputs": [], "note": error.message}
    inputs = {
        (leaf.js_stream, leaf.sequence, leaf.index): {
            "js_stream": leaf.js_stream, "sequence": leaf.sequence, "event": leaf.event,
        }
        for leaf in _leaves(cause)
        # One with a note has a group that is not known.
        if not leaf.group and not leaf.note
    }  # fmt: skip
    notes = dict.fromkeys(leaf.note for leaf in _leaves(cause) if leaf.note)
    return {"inputs": [inputs[place] for place in sorted(inputs)], "note": " ".join(notes)}


def _leaves(cause: Cause) -> list[Cause]:
    if not cause.inputs:
        return [cause]
    return [leaf for one in cause.inputs for leaf in _leaves(one)]
