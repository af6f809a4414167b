"""Plans of apps: groups, channels, refusals, and parts that bind like the whole."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mesh.errors import MeshError, all_errors
from mesh.language.parser import parse
from mesh.model import codec
from mesh.model.app import AppSpec, Format, GroupKind, GroupSpec, Strategy
from mesh.model.types import AttributeType
from mesh.plan.bind.apps import bind_group
from mesh.plan.bound import BoundPattern, BoundQuery, BoundStream, Column, Constant
from mesh.plan.build import AppPlan, plan
from tests.support import case_files, paths
from tests.support.keyed_plans import KEYED
from tests.support.plans import triggered

CASES = paths.CASES / "plan"


def planned(text: str) -> str:
    """The plan in a few lines, or the errors as shown to users.

    A first line ``app`` marks the text as a whole app; otherwise it gets the name A.
    """
    source = text.removeprefix("app\n") if text.startswith("app\n") else f"@App:name('A') {text}"
    try:
        made = plan(source)
    except MeshError as error:
        refused = error
    else:
        assert_parts_are_the_whole(made)
        return "\n".join([*(_group_line(g) for g in made.spec.groups), *_channel_lines(made)])
    errors = all_errors(refused)
    assert all(error.position is not None for error in errors)
    return "\n".join(error.render(source) for error in errors)


def _group_line(group: GroupSpec) -> str:
    reads = ", ".join(
        i.channel.stream.name
        + (f" from {i.channel.foreign} {i.channel.reads}" if i.channel.foreign else "")
        + f" {i.strategy}"
        + (f" {i.channel.key_name}" if i.strategy is Strategy.BY_KEY else "")
        + (" (records errors)" if i.records_errors else "")
        for i in group.inputs
    )
    writes = ", ".join(
        c.stream.name + (f" by {c.key_name}" if c.is_keyed else "") for c in group.outputs
    )
    state = "stateful" if group.stateful else "stateless"
    kind = "" if group.kind is GroupKind.QUERIES else f" {group.kind}"
    more = "".join(
        f" {what} {', '.join(names)}"
        for what, names in (
            ("source of", group.sources),
            ("sink of", group.sinks),
            ("on", group.node),
        )
        if names
    )
    return f"{group.name} x{group.parallel} {state}{kind}{more}: {reads} -> {writes}"


def _channel_lines(made: AppPlan) -> list[str]:
    return [f"{c.js_stream()} x{c.partitions} {c.format}" for c in made.spec.channels]


def assert_parts_are_the_whole(made: AppPlan) -> None:
    """Each group's text binds to its queries as they are in the whole app, and to no others."""
    found: list[BoundQuery] = []
    for group in made.spec.groups:
        part = bind_group(group)
        assert part.name == made.spec.name
        found.extend(part.queries)
        wanted = {query.name: query for query in made.bound.queries}
        assert all(triggered(wanted[query.name]) == query for query in part.queries)
        for group_input in group.inputs:
            assert part.stream(group_input.channel.stream.name) == group_input.channel.stream
        for channel in group.outputs:
            assert part.stream(channel.stream.name) == channel.stream
    assert sorted(q.name for q in found) == sorted(q.name for q in made.bound.queries)


@pytest.mark.parametrize("path", sorted(CASES.glob("*.txt")), ids=lambda path: path.stem)
def test_case_files(path: Path, rewrite: bool) -> None:
    case_files.check(path, planned, rewrite=rewrite)


def test_an_unread_statement_hides_no_error_of_the_others() -> None:
    unread = "from Unread[;"
    hidden = 0
    for case in case_files.read(CASES / "names_and_types.txt"):
        given = f"@App:name('A') {case.given.removeprefix('app')}"
        try:
            parse(given)
        except MeshError:
            continue
        before = {str(e) for e in _errors(given) if e.code.startswith("MESH-L2")}
        after = {str(error) for error in _errors(f"{given}\n{unread}")}
        assert before < after, case.given
        hidden += len(before)
    assert hidden > 20


def _errors(text: str) -> tuple[MeshError, ...]:
    try:
        plan(text)
    except MeshError as error:
        return all_errors(error)
    return ()


@pytest.fixture(scope="module")
def example() -> AppPlan:
    return plan(paths.EXAMPLE.read_text())


def test_the_example_has_a_stateful_group_and_two_stateless_instances(example: AppPlan) -> None:
    first, second = example.spec.groups
    assert first.instances == ("Temperature-group-1-1",)
    assert first.stateful
    assert second.instances == ("Temperature-group-2-1", "Temperature-group-2-2")
    assert not second.stateful
    assert_parts_are_the_whole(example)


def test_the_example_is_bound(example: AppPlan) -> None:
    average, alert, high = example.bound.queries
    assert isinstance(average.input, BoundStream)
    assert average.input.window is not None
    assert average.input.window.arguments == (Constant(120_000, AttributeType.LONG),)
    assert isinstance(alert.input, BoundPattern)
    assert alert.input.within_ms == 600_000
    assert alert.input.steps[0].filter is None
    assert alert.outputs[2].expression == Column("temp", alert.target.attributes[2].type, 1)
    assert high.is_stateless
    assert [str(a.type) for a in average.target.attributes] == ["double", "int", "long"]


def test_the_text_deployed_is_the_text_given(example: AppPlan) -> None:
    assert example.spec.text == paths.EXAMPLE.read_text()
    tree = parse(example.spec.text)
    assert plan(plan(tree).spec.text).spec.groups == plan(tree).spec.groups


def test_a_spec_survives_the_wire(example: AppPlan) -> None:
    assert codec.decode(AppSpec, codec.encode(example.spec)) == example.spec


def test_the_number_of_partitions_can_be_set() -> None:
    made = plan(KEYED, partitions=4)
    (keyed,) = [c for c in made.spec.channels if c.key]
    assert (keyed.partitions, keyed.format) == (4, Format.ARROW)
    assert keyed.subject(3) == "mesh.Keyed.S.by.k.3"


def test_one_reader_of_each_channel_records_errors() -> None:
    for text in (KEYED, paths.EXAMPLE.read_text()):
        made = plan(text)
        inputs = [i for group in made.spec.groups for i in group.inputs]
        recorded = [i.channel.subject() for i in inputs if i.records_errors]
        assert sorted(recorded) == sorted({i.channel.subject() for i in inputs})


def test_a_query_keeps_its_number_as_its_name_in_its_part() -> None:
    made = plan(
        "@App:name('A') define stream S (a int); from S select a insert into T; "
        "@info(x='y') @dist(execGroup='g') from S select a insert into U;"
    )
    second = made.spec.group("g")
    assert second is not None
    assert [query.name for query in bind_group(second).queries] == ["query-2"]
    assert "@info(name='query-2', x='y')" in second.text


def codes_of(paths: list[Path]) -> set[str]:
    return {c for p in paths for c in re.findall(r"MESH-[LP]\d+", p.read_text(encoding="utf-8"))}


def test_every_refusal_has_a_case_and_a_line_in_the_docs() -> None:
    parts = ("language", "plan")
    used = codes_of([p for part in parts for p in (paths.ROOT / "mesh" / part).rglob("*.py")])
    shown = codes_of([p for part in parts for p in (paths.CASES / part).glob("*.txt")])
    # Codes in prose end in 'xx' and match nothing; a bare 'MESH-L2' would not be a code either.
    used = {code for code in used if len(code) == len("MESH-L104")}
    assert used <= shown | {"MESH-L105"}
    assert used <= codes_of([paths.ROOT / "docs" / "errors.md"])


def test_a_channel_that_holds_all_events_of_a_stream_is_known() -> None:
    text = """@App:name('A') define stream S (k string, a int);
    define stream M (k string, a int);
    @dist(execGroup='f') from S[a > 0] select k, a insert into M;
    @dist(execGroup='g', parallel='2') from M select k, sum(a) as t group by k insert into N;
    @dist(execGroup='h', parallel='2') from S select k, sum(a) as t group by k insert into T;
    @dist(execGroup='i') from N select t insert into U;
    """
    spec = plan(text).spec
    whole = {s: spec.whole_channel(s) for s in ("S", "M", "N", "Nothing")}
    assert {s: c.subject() if c else None for s, c in whole.items()} == {
        "S": "mesh.A.S",
        "M": "mesh.A.M.by.k.0",
        "N": "mesh.A.N",
        "Nothing": None,
    }
