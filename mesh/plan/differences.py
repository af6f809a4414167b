"""Differences between a group of two plans that prevent it from continuing, in words."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from mesh.model.app import GroupMode, Strategy
from mesh.plan.states import without_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from mesh.model.app import Channel, GroupInput, GroupSpec
    from mesh.plan.bound import BoundApp

Thing = TypeVar("Thing")


def reasons_to_restart(
    old: GroupSpec, new: GroupSpec, before: BoundApp, after: BoundApp
) -> tuple[str, ...]:
    """Differences between a group in two plans, except for its parallelism and labels.

    Args:
        old: the running group.
        new: the future group.
        before: the bound app of ``old``.
        after: the bound app of ``new``.

    Returns:
        Fragments as in "the group restarts because ..", each once; empty if nothing differs.
    """
    reasons = list(
        dict.fromkeys(_reasons(old, new, without_numbers(before), without_numbers(after)))
    )
    is_same = without_numbers(before) == without_numbers(after)
    if not reasons and not (is_same and _shape(old) == _shape(new)):
        # Every record has a word above; a difference without a word must not pass as none.
        return ("its part of the plan changed",)
    return tuple(reasons)


def _shape(group: GroupSpec) -> GroupSpec:
    """The relevant fields of a group besides its text and history; inputs by name, in any order."""
    inputs = tuple(sorted(group.inputs, key=lambda i: i.channel.subject()))
    return replace(
        group,
        text="",
        parallel=1,
        node=(),
        standby=0,
        mode=GroupMode.REAL_TIME,
        inputs=inputs,
        edit=0,
        resets=0,
        starts={},
    )


def _reasons(old: GroupSpec, new: GroupSpec, before: BoundApp, after: BoundApp) -> Iterator[str]:
    yield from _of(
        "query", before.queries, after.queries, lambda q: q.name, lambda q: q.target.name
    )
    if before.queries != after.queries and _moved(before.queries, after.queries) == ([], []):
        yield "its queries are in another order"
    yield from _of(
        "partition",
        before.partitions,
        after.partitions,
        lambda p: ", ".join(key.stream for key in p.keys),
    )
    schemas = {s.name: s for s in before.streams}
    for schema in after.streams:
        if schema.name in schemas and schemas[schema.name] != schema:
            yield f'stream "{schema.name}" has other attributes'
    yield from _of("table", before.tables, after.tables, lambda t: t.schema.name)
    yield from _of("window", before.windows, after.windows, lambda w: w.schema.name)
    yield from _of("aggregation", before.aggregations, after.aggregations, lambda a: a.schema.name)
    yield from _of("trigger", before.triggers, after.triggers, lambda t: t.schema.name)
    yield from _of("function", before.scripts, after.scripts, lambda f: f.name)
    for stream in dict.fromkeys(s.name for s in after.streams):
        annotations = [
            [a for s, a in app.stream_annotations if s == stream] for app in (before, after)
        ]
        if annotations[0] != annotations[1]:
            yield f'annotations of stream "{stream}" changed'
    yield from _inputs(old, new)
    yield from _outputs(old, new)


def _of(
    kind: str,
    before: Iterable[Thing],
    after: Iterable[Thing],
    name: Callable[[Thing], str],
    other_name: Callable[[Thing], str] | None = None,
) -> Iterator[str]:
    """Things that changed, appeared or vanished, by name, or else by ``other_name``."""

    def label(thing: Thing) -> str:
        if not name(thing) and other_name is not None:
            return f'{kind} into "{other_name(thing)}"'
        return f'{kind} over "{name(thing)}"' if kind == "partition" else f'{kind} "{name(thing)}"'

    gone, come = _moved(before, after)
    names = {label(thing) for thing in gone}
    for thing in come:
        yield f"{label(thing)} changed" if label(thing) in names else f"{label(thing)} is new"
    changed = {label(thing) for thing in come}
    for thing in gone:
        if label(thing) not in changed:
            yield f"{label(thing)} is gone"


def _moved(before: Iterable[Thing], after: Iterable[Thing]) -> tuple[list[Thing], list[Thing]]:
    """Things that are gone and things that have come, whatever the order of the others."""
    gone, come = list(before), []
    for thing in after:
        if thing in gone:
            gone.remove(thing)
        else:
            come.append(thing)
    return gone, come


def _inputs(old: GroupSpec, new: GroupSpec) -> Iterator[str]:
    before = {i.channel.stream.name: i for i in old.inputs}
    after = {i.channel.stream.name: i for i in new.inputs}
    for name, now in after.items():
        was = before.get(name)
        if was is None:
            yield f'stream "{name}" is read from the wire'
            continue
        if _how(was) != _how(now):
            yield f'stream "{name}" is read {_how(now)} rather than {_how(was)}'
        if was.channel.format is not now.channel.format:
            yield (
                f'stream "{name}" comes as {now.channel.format} rather than {was.channel.format}'
            )
        if was.records_errors != now.records_errors:
            does = "records" if now.records_errors else "no longer records"
            yield f'it {does} events of stream "{name}" that can\'t be read'
    for name in before:
        if name not in after:
            yield f'stream "{name}" no longer is read from the wire'


def _how(one: GroupInput) -> str:
    if one.strategy is not Strategy.BY_KEY:
        return "as a whole" if one.strategy is Strategy.ALL else "round robin"
    return f"by ({one.channel.key_text}) in {one.channel.partitions} partitions"


def _outputs(old: GroupSpec, new: GroupSpec) -> Iterator[str]:
    before = {(c.stream.name, c.key_name): c for c in old.outputs}
    after = {(c.stream.name, c.key_name): c for c in new.outputs}
    for name, now in after.items():
        was = before.get(name)
        if was is None:
            yield f"it writes {_named(now)} to the wire"
        elif was.format is not now.format:
            yield f"it writes {_named(now)} as {now.format} rather than {was.format}"
        elif was.partitions != now.partitions:
            yield f"it writes {_named(now)} to {now.partitions} partitions, not {was.partitions}"
    for name, gone in before.items():
        if name not in after:
            yield f"it no longer writes {_named(gone)} to the wire"


def _named(channel: Channel) -> str:
    by = f" by ({channel.key_text})" if channel.is_keyed else ""
    return f'stream "{channel.stream.name}"{by}'
