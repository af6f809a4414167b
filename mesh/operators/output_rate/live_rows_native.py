"""Native lists of the rows that snapshots of the output show: see ``live_rows``.

Events are nodes of lists, one list for each partition instance, in order of arrival.
"""
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from enum import IntEnum
from typing import Final

from mesh.operators.base import CURRENT, NIL, RESET
from mesh.operators.native import LONG1, LONG2, READ1, bare, inner, types


class Shows(IntEnum):
    """The rule by which an event is shown."""

    #: The last event of each group.
    LAST = 0
    #: The last event, unless it is an expired one.
    LAST_PRESENT = 1
    #: The last event of each group that has events in the window.
    LAST_OF_GROUPS = 2
    #: The content of the window: an expired event removes the first equal one.
    ALL = 3


#: Columns of ``nodes``; free ones are chained through NEXT and have no row.
ROW, TIME, KIND, SERIAL, INSTANCE, GROUP, KEY, COUNT, PREV, NEXT, ALIKE = range(11)
NODE_COLUMNS: Final = 11
#: Columns of ``lists``, by instance: the list's ends, and how long it is, less one.
HEAD, TAIL, SIZE = range(3)
#: Columns of ``keys``: the first and the last of equal events; except for ``ALL`` a key is a group
#: with a single event.
FIRST, LAST = range(2)
#: Counters: the first free node, nodes in use or free, nodes in lists, events that arrived, number
#: of outputs.
FREE, USED, THERE, CAME, SHOWN = range(5)
#: Rows of the output: the event's row, the row with the aggregators' values, time, kind.
OUT_ROWS: Final = 4

_LAST, _LAST_PRESENT, _LAST_OF_GROUPS, _ALL = (int(one) for one in Shows)
_kinds = types.Array(types.int8, 1, "C", readonly=True)


@inner
def _put_last(nodes, lists, n):
    """Put a node at the end of its instance's list."""
    instance = nodes[n, INSTANCE]
    nodes[n, PREV], nodes[n, NEXT], nodes[n, ALIKE] = lists[instance, TAIL], NIL, NIL
    if lists[instance, HEAD] == NIL:
        lists[instance, HEAD] = n
    else:
        nodes[lists[instance, TAIL], NEXT] = n
    lists[instance, TAIL] = n
    lists[instance, SIZE] += 1


@inner
def _append(nodes, lists, meta, row, time, kind, instance, group, key):
    """A node at the end of its instance's list."""
    n = meta[FREE]
    if n != NIL:
        meta[FREE] = nodes[n, NEXT]
    else:
        n = meta[USED]
        meta[USED] = n + 1
    nodes[n, ROW], nodes[n, TIME], nodes[n, KIND] = row, time, kind
    nodes[n, SERIAL], nodes[n, COUNT] = meta[CAME], 0
    meta[CAME] += 1
    meta[THERE] += 1
    nodes[n, INSTANCE], nodes[n, GROUP], nodes[n, KEY] = instance, group, key
    _put_last(nodes, lists, n)
    return n


@inner
def _remove(nodes, lists, meta, n):
    """Remove a node from its list, and free it."""
    instance, before, after = nodes[n, INSTANCE], nodes[n, PREV], nodes[n, NEXT]
    if before == NIL:
        lists[instance, HEAD] = after
    else:
        nodes[before, NEXT] = after
    if after == NIL:
        lists[instance, TAIL] = before
    else:
        nodes[after, PREV] = before
    lists[instance, SIZE] -= 1
    meta[THERE] -= 1
    nodes[n, ROW] = NIL
    nodes[n, NEXT] = meta[FREE]
    meta[FREE] = n


@inner
def _link(nodes, keys, n):
    """Append a node to those that are equal."""
    key = nodes[n, KEY]
    if keys[key, FIRST] == NIL:
        keys[key, FIRST] = n
    else:
        nodes[keys[key, LAST], ALIKE] = n
    keys[key, LAST] = n


@bare(types.void(LONG2, LONG2, LONG2, LONG1, types.int64))
def empty(nodes, lists, keys, meta, instance):
    """Remove all nodes of an instance."""
    n = lists[instance, HEAD]
    while n != NIL:
        after = nodes[n, NEXT]
        keys[nodes[n, KEY], FIRST] = NIL
        _remove(nodes, lists, meta, n)
        n = after


@bare(
    types.void(
        types.int64, types.int64, types.int64, types.int64, READ1, _kinds, READ1, READ1, READ1,
        LONG2, LONG2, LONG2, LONG1, LONG1,
    )
)  # fmt: skip
def follow(
    shows, base, start, stop, time, kind, instance, group, key, nodes, lists, keys, newest, meta
):
    """Process the events ``start`` to below ``stop``, with rows numbered from ``base`` on."""
    for e in range(start, stop):
        k, row = key[e], base + e
        if shows == _ALL and kind[e] == RESET:
            empty(nodes, lists, keys, meta, instance[e])
        elif k == NIL:
            continue
        elif shows == _ALL:
            if kind[e] == CURRENT:
                newest[group[e]] = row
                n = _append(nodes, lists, meta, row, time[e], kind[e], instance[e], group[e], k)
                _link(nodes, keys, n)
            elif keys[k, FIRST] != NIL:
                newest[group[e]] = row
                n = keys[k, FIRST]
                keys[k, FIRST] = nodes[n, ALIKE]
                _remove(nodes, lists, meta, n)
        elif kind[e] == CURRENT or shows == _LAST or keys[k, FIRST] != NIL:
            n = keys[k, FIRST]
            if shows == _LAST_PRESENT and kind[e] != CURRENT:
                keys[k, FIRST] = NIL
                _remove(nodes, lists, meta, n)
                continue
            if n == NIL:
                n = _append(nodes, lists, meta, row, time[e], kind[e], instance[e], group[e], k)
                keys[k, FIRST] = n
            nodes[n, ROW], nodes[n, TIME], nodes[n, KIND] = row, time[e], kind[e]
            nodes[n, COUNT] += 1 if kind[e] == CURRENT else -1


@bare(
    types.int64(
        types.int64, types.int64, types.boolean, LONG2, LONG2, LONG2, LONG1, LONG1, LONG1,
        LONG2, types.int64,
    )
)  # fmt: skip
def show(shows, instance, grouped, nodes, lists, keys, newest, seen, meta, out, at):
    """Write the rows of ``instance`` to ``out``, from ``at`` on; the index after the last.

    ``grouped``: just the first event of each group; ``seen``: when each group was last written.
    """
    meta[SHOWN] += 1
    n = lists[instance, HEAD]
    while n != NIL:
        after = nodes[n, NEXT]
        group = nodes[n, GROUP]
        if shows == _LAST_OF_GROUPS and nodes[n, COUNT] <= 0:
            keys[nodes[n, KEY], FIRST] = NIL
            _remove(nodes, lists, meta, n)
        elif not grouped or seen[group] != meta[SHOWN]:
            row = nodes[n, ROW]
            out[0, at] = row
            out[1, at] = newest[group] if shows == _ALL else row
            out[2, at], out[3, at] = nodes[n, TIME], nodes[n, KIND]
            if grouped:
                seen[group] = meta[SHOWN]
            at += 1
        n = after
    return at


@bare(types.void(types.int64, LONG2, LONG2, LONG2))
def relink(count, nodes, lists, keys):
    """Rebuild the lists from the first ``count`` nodes, which are in order of arrival."""
    for n in range(count):
        _put_last(nodes, lists, n)
        _link(nodes, keys, n)
