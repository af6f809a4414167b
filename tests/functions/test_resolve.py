"""The catalogue against the reference engine's answers: tests/cases/signatures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.errors import MeshError
from mesh.functions import registry
from mesh.functions.catalogue import (
    AGGREGATORS,
    DOCUMENTED_FUNCTIONS,
    DOCUMENTED_STREAM_FUNCTIONS,
    DOCUMENTED_WINDOWS,
    INCREMENTAL_AGGREGATORS,
    SCALARS,
    STATEMENTS,
    STREAM_FUNCTIONS,
    WINDOWS,
    Argument,
    ArgumentForm,
    CallRefusal,
    NameKind,
    Reason,
    Resolution,
    describe,
    resolve,
    script_function,
)
from mesh.model.types import AttributeType
from mesh.operators.event_functions import EVENT_FUNCTIONS
from mesh.operators.query import handlers
from mesh.operators.query.processors import PROCESSORS
from mesh.operators.select import aggregator_set
from mesh.operators.select.aggregates import Expiry
from mesh.plan.bound import AggregateCall, BoundStreamFunction, Constant
from tests.support.signature_cases import CASES, KINDS
from tests.support.together import together
from tools import record_signatures
from tools.signatures import FUNCTIONS, RecordedCall, judge, read_cases

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mesh.functions.catalogue import Signature

TABLES: dict[str, Mapping[str, Signature]] = {
    "scalars": FUNCTIONS,
    "aggregators": FUNCTIONS,
    "windows": WINDOWS,
    "stream_functions": STREAM_FUNCTIONS,
    "incremental_aggregators": INCREMENTAL_AGGREGATORS,
    "documented": DOCUMENTED_FUNCTIONS,
}
CALLS = [(file, case) for file in TABLES for case in read_cases(CASES / f"{file}.txt")]
ASKED = [file for file in TABLES if file != "documented"]


def answer_of(file: str, verdict: Resolution | CallRefusal) -> str:
    """The verdict in the words of a case file."""
    if isinstance(verdict, CallRefusal):
        return "refused"
    if file == "windows":
        return "accepted"
    if file == "stream_functions":
        return f"adds ({', '.join(f'{a.name} {a.type}' for a in verdict.overload.adds)})"
    return str(verdict.type)


@together(("file", "case"), CALLS, ids=[case.call for _, case in CALLS])
def test_a_call_has_the_engines_verdict_and_type(file: str, case: RecordedCall) -> None:
    verdict = judge(case.call, TABLES[file])
    assert answer_of(file, verdict) == case.answer.partition(":")[0], verdict


@together(("file", "name"), [(file, name) for file in ASKED for name in TABLES[file]])
def test_every_name_has_an_accepted_and_a_refused_case(file: str, name: str) -> None:
    files = {"scalars", "aggregators"} if TABLES[file] is FUNCTIONS else {file}
    verdicts = {
        case.is_accepted for at, case in CALLS if at in files and case.call.startswith(f"{name}(")
    }
    assert verdicts == {True, False}


@pytest.mark.parametrize("file", dict.fromkeys(file for file, _ in CALLS))
def test_a_refusal_reads_as_an_error(file: str) -> None:
    verdicts = [judge(case.call, TABLES[file]) for at, case in CALLS if at == file]
    refusals = [verdict for verdict in verdicts if isinstance(verdict, CallRefusal)]
    assert refusals
    for refusal in refusals:
        assert refusal.message[0].islower(), refusal
        assert not refusal.message.endswith("."), refusal
        assert all(text is None or text[-1] in ".?" for text in (refusal.detail, refusal.hint))


ARGUMENTS = st.builds(
    Argument,
    st.sampled_from(AttributeType),
    st.sampled_from(ArgumentForm),
    st.none() | st.text(max_size=3) | st.integers() | st.floats() | st.booleans(),
)
EVERYTHING = [
    *FUNCTIONS.values(),
    *INCREMENTAL_AGGREGATORS.values(),
    *WINDOWS.values(),
    *STREAM_FUNCTIONS.values(),
    *DOCUMENTED_FUNCTIONS.values(),
    *DOCUMENTED_WINDOWS.values(),
    *DOCUMENTED_STREAM_FUNCTIONS.values(),
]


@given(st.sampled_from(EVERYTHING), st.lists(ARGUMENTS, max_size=6))
def test_every_call_has_a_verdict(signature: Signature, arguments: list[Argument]) -> None:
    verdict = resolve({signature.name: signature}, signature.name, arguments)
    if isinstance(verdict, Resolution):
        has_a_value = signature.kind in (NameKind.SCALAR, NameKind.AGGREGATOR)
        assert (verdict.type is not None) == has_a_value
    else:
        assert verdict.argument is None or verdict.argument < len(arguments)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("Sum", "sum"),
        ("uuid", "UUID"),
        ("concat", "str:concat"),
        ("str:lenght", "str:length"),
        ("maximun", "maximum"),
    ],
)
def test_a_name_that_is_not_known_gets_the_nearest(name: str, near: str) -> None:
    verdict = resolve(FUNCTIONS | DOCUMENTED_FUNCTIONS, name, ())
    assert isinstance(verdict, CallRefusal)
    assert verdict.reason is Reason.UNKNOWN
    assert verdict.hint == f'Did you mean "{near}"?'


def test_a_stream_processor_is_called_a_stream_function() -> None:
    for call in ("nope()", "log(1)"):
        verdict = judge(call, STREAM_FUNCTIONS)
        assert isinstance(verdict, CallRefusal)
        assert verdict.message.startswith("stream function ")


def test_a_name_like_no_other_is_led_to_the_page_and_to_a_script() -> None:
    verdict = resolve(FUNCTIONS, "qqqqq", ())
    assert isinstance(verdict, CallRefusal)
    assert verdict.hint is not None
    assert "docs/siddhiql.md" in verdict.hint
    assert "define function qqqqq[javascript]" in verdict.hint


@pytest.mark.parametrize(
    ("call", "message", "argument"),
    [
        ("sum()", 'aggregator "sum" takes 1 argument, not 0', None),
        ("coalesce()", 'function "coalesce" takes at least 1 argument, not 0', None),
        ("count(i, i)", 'aggregator "count" takes 0 or 1 argument, not 2', None),
        ("UUID(i)", 'function "UUID" takes no argument, not 1', None),
        ("sum(s)", 'aggregator "sum" can\'t have string as its first argument', 0),
        ("maximum(i, i, l)", 'function "maximum" has arguments of types int and long', 2),
        ("default(i, i2)", 'function "default" takes a constant as its second argument', 1),
        ("cast(i, 'integer')", "function \"cast\" can't have 'integer' as its second argument", 1),
    ],
)
def test_what_is_wrong_is_said(call: str, message: str, argument: int | None) -> None:
    verdict = judge(call, FUNCTIONS)
    assert isinstance(verdict, CallRefusal)
    assert (verdict.message, verdict.argument) == (message, argument)


@pytest.mark.parametrize(
    ("call", "fails"),
    [
        ("cast(i, 'bool')", True),
        ("cast(b, 'bool')", False),
        ("cast(o, 'bool')", False),
        ("incrementalAggregator:getAggregationStartTime(i, 'a')", True),
        ("incrementalAggregator:getAggregationStartTime(l, 'a')", False),
        ("timeBatch(0)", True),
        ("timeBatch(-5, 0, true)", True),
        ("timeBatch(1 sec)", False),
        ("externalTimeBatch(l, 0)", True),
        ("externalTimeBatch(l, -5)", False),
        ("lossyFrequent(2.0, 0.5)", True),
        ("lossyFrequent(0.1, 0.0)", False),
    ],
)
def test_what_is_accepted_and_fails_at_every_event_is_told(call: str, fails: bool) -> None:
    verdict = judge(call, FUNCTIONS | WINDOWS)
    assert isinstance(verdict, Resolution)
    assert (verdict.fails is not None) == fails


def test_of_several_forms_the_nearest_is_judged() -> None:
    verdict = judge("timeBatch(1 sec, 0, 'a')", WINDOWS)
    assert isinstance(verdict, CallRefusal)
    assert verdict.argument == 2
    # (string, bool) got through the first argument; (string, string) has the right types.
    verdict = judge("log('loud', s)", STREAM_FUNCTIONS)
    assert isinstance(verdict, CallRefusal)
    assert verdict.argument == 0
    assert verdict.hint == "It is one of info, debug, warn, fatal, error, off, trace."


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        ("session(5)", "Write 5L, or a time such as 5 sec."),
        ("length(1 min)", "Write 60000, without L and without a unit of time."),
        ("lossyFrequent(1, 0.01)", "Write 1.0."),
        (
            "coalesce(i, 2L)",
            "These arguments have one type: write 1L, 1.0f or 1.0 for 1.",
        ),
        (
            "coalesce(i, l)",
            "These arguments have one type: convert(x, 'double') makes one of another.",
        ),
        ("length('a')", None),
        ("length(l)", "Write a constant there."),
    ],
)
def test_a_number_of_another_type_is_shown_as_it_should_be(call: str, hint: str | None) -> None:
    verdict = judge(call, FUNCTIONS | WINDOWS)
    assert isinstance(verdict, CallRefusal)
    assert verdict.hint == hint


def test_a_signature_is_shown_with_all_forms() -> None:
    assert describe(AGGREGATORS["count"]) == "count() or count(value any)"
    assert describe(SCALARS["default"]) == "default(attribute any, default any constant)"
    assert describe(WINDOWS["time"]) == "time(window.time int|long constant)"


def test_a_script_function_takes_anything() -> None:
    table = {"f": script_function("f", AttributeType.STRING)}
    for call in ("f()", "f(i)", "f(i, 's', o, sum(d))"):
        verdict = judge(call, table)
        assert isinstance(verdict, Resolution)
        assert verdict.type is AttributeType.STRING


@together("name", [*SCALARS, *DOCUMENTED_FUNCTIONS])
def test_a_function_runs_when_it_has_a_kernel(name: str) -> None:
    signature = (SCALARS | DOCUMENTED_FUNCTIONS)[name]
    if signature.kind is NameKind.SCALAR:
        has_kernel = signature.bound_name in registry.FUNCTIONS or name == "UUID"
        has_kernel = has_kernel or name in EVENT_FUNCTIONS
        assert signature.runs == has_kernel


@together("name", [*STREAM_FUNCTIONS, *DOCUMENTED_STREAM_FUNCTIONS])
def test_a_stream_function_runs_when_there_is_something_that_computes_it(name: str) -> None:
    handler = BoundStreamFunction(name, ())
    try:
        handlers.StreamFunctionHandler(handler, pa.schema([]))
    except MeshError:
        has_kernel = False
    else:
        has_kernel = True
    has_kernel = has_kernel or name in PROCESSORS or name in EVENT_FUNCTIONS
    # They are planned as a sink and a source.
    has_kernel = has_kernel or name in STATEMENTS
    signature = (STREAM_FUNCTIONS | DOCUMENTED_STREAM_FUNCTIONS)[name]
    assert signature.runs == has_kernel


@together("name", AGGREGATORS)
def test_an_aggregator_runs_when_it_has_a_kernel(name: str) -> None:
    call = AggregateCall(name, (Constant(1.0, AttributeType.DOUBLE),), AttributeType.DOUBLE)
    try:
        aggregator_set.make_aggregate(call, Expiry.NEVER)
    except MeshError:
        assert not AGGREGATORS[name].runs
    else:
        assert AGGREGATORS[name].runs


def test_the_recorder_writes_down_what_it_is_told(tmp_path: Path) -> None:
    file, apps, answers = tmp_path / "scalars.txt", tmp_path / "apps", tmp_path / "answers"
    file.write_text("# Two.\nsum(i) =>\n\nsum(s) => long\n", encoding="utf-8")
    record_signatures.main([str(file), "--apps", str(apps)])
    asked = [json.loads(line) for line in apps.read_text(encoding="utf-8").splitlines()]
    assert [one["name"] for one in asked] == ["scalars:sum(i)", "scalars:sum(s)"]
    assert asked[0]["app"].endswith("from S select sum(i) as r insert into Out;")

    error = {"message": "Error on 'x' @ Line: 1. Position: 9, near 'sum(s)'. No overload"}
    told = [
        {"name": "scalars:sum(i)", "status": "ok", "schemas": {"Out": [["r", "long"]]}},
        {"name": "scalars:sum(s)", "status": "creation_error", "creation_error": error},
    ]
    answers.write_text("\n".join(map(json.dumps, told)), encoding="utf-8")
    record_signatures.main([str(file), "--answers", str(answers)])
    expected = "# Two.\nsum(i) => long\n\nsum(s) => refused: No overload\n"
    assert file.read_text(encoding="utf-8") == expected


def test_every_recorded_case_can_be_asked_again(tmp_path: Path) -> None:
    files = sorted(map(str, CASES.glob("*.txt")))
    record_signatures.main([*files, "--apps", str(tmp_path / "apps")])
    asked = (tmp_path / "apps").read_text(encoding="utf-8").splitlines()
    documented = len(read_cases(CASES / "documented.txt"))
    assert len(asked) == len(CALLS) + len(KINDS) - documented
