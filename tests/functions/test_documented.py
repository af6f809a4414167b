"""The functions of the extensions, call by call: tests/cases/functions/documented.txt."""

from __future__ import annotations

import contextlib
import json
import re
import sys

import numpy as np
import pyarrow as pa
import pytest

from mesh.errors import MeshError
from mesh.functions.catalogue import DOCUMENTED_FUNCTIONS, STATEFUL_FUNCTIONS, NameKind
from mesh.functions.objects import python_value
from mesh.functions.vectors import python_values
from mesh.language.parser import parse
from mesh.operators.base import EventBatch
from mesh.operators.expressions import Frame, compile_expression
from mesh.plan.bind import bind
from mesh.plan.supported import check_supported
from tests.support import paths
from tests.support.together import together

FILE = paths.CASES / "functions" / "documented.txt"
CASES = [
    tuple(part.strip() for part in line.rsplit("=>", 1))
    for line in FILE.read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]
STREAM = "define stream S (s string, s0 string, i0 int, d double, j string); "
PERSON = (
    '{"name":"John","age":25,"married":true,"salary":12000.5,"address":{"city":"NY","zip":null},'
    '"items":[{"name":"pen","price":1},{"name":"book","price":20},{"name":"ink","price":3}]}'
)
NOW_MS = 1_570_442_400_000


def frame(length: int) -> Frame:
    values = {"s": "hello", "s0": None, "i0": None, "d": 2.5, "j": PERSON}
    schema = bind(parse(STREAM + "from S select s insert into Out;")).stream("S").arrow
    rows = pa.RecordBatch.from_pylist([values] * length, schema)
    times = np.full(length, NOW_MS, dtype=np.int64)
    order = np.arange(length, dtype=np.int64)
    none = np.zeros(length, dtype=np.int64)
    kind = none.astype(np.int8)
    return Frame.of_events(EventBatch(times, times, order, none, none, kind, none, rows))


def _in_triple_quotes(found: re.Match[str]) -> str:
    text = found[1].replace("''", "'")
    return f'"""{text}"""'


def evaluated(call: str, length: int) -> tuple[list[object], dict[int, str]]:
    # Quotes in quotes can't be written in SiddhiQL but in triple ones.
    written = re.sub(r"'((?:[^']|'')*)'", _in_triple_quotes, call)
    bound = bind(parse(f"{STREAM}from S select {written} as r insert into Out;"))
    (output,) = bound.queries[0].outputs
    there = frame(length)
    vector = compile_expression(output.expression)(there).spread(length)
    return [python_value(value) for value in python_values(vector)], there.failures


@together(("call", "answer"), CASES, ids=[call for call, _ in CASES])
@together("length", [1, 3])
def test_a_call_gives_what_its_documentation_says(call: str, answer: str, length: int) -> None:
    if answer == "refused":
        with pytest.raises(MeshError):
            evaluated(call, length)
        return
    values, failures = evaluated(call, length)
    if answer.startswith("fails"):
        assert sorted(failures) == list(range(length))
        assert answer.removeprefix("fails").strip() in failures[0]
        return
    assert failures == {}
    wanted = json.loads(answer)
    for value in values:
        assert type(value) is type(wanted)
        assert value == (pytest.approx(wanted, rel=1e-15) if isinstance(wanted, float) else wanted)


def test_every_function_has_a_case() -> None:
    called = {call.partition("(")[0] for call, _ in CASES}
    scalars = {n for n, s in DOCUMENTED_FUNCTIONS.items() if s.kind is NameKind.SCALAR}
    scalars -= set(STATEFUL_FUNCTIONS)
    assert scalars - called == {"math:rand"}
    assert called <= scalars


@pytest.mark.parametrize("call", ["math:rand()", "math:rand(7)", "UUID()"])
def test_a_random_value_is_the_same_in_every_replay_and_another_in_every_event(call: str) -> None:
    first, second = evaluated(call, 50)[0], evaluated(call, 50)[0]
    assert first == second
    assert len(set(first)) == 50


def test_a_row_fails_alone() -> None:
    bound = bind(
        parse("define stream S (s string); from S select math:parseInt(s) as r insert into T;")
    )
    rows = pa.RecordBatch.from_pylist([{"s": s} for s in ("1", "x", None, "3", "x")])
    there = Frame.of_rows(rows)
    vector = compile_expression(bound.queries[0].outputs[0].expression)(there)
    assert python_values(vector) == [1, None, None, 3, None]
    assert sorted(there.failures) == [1, 4]


@pytest.mark.parametrize(
    ("call", "is_refused"), [("geo:within(d, d, s)", True), ("geo:distance(d, d, d, d)", False)]
)
def test_an_app_is_refused_where_the_library_of_a_function_is_missing(
    monkeypatch: pytest.MonkeyPatch, call: str, is_refused: bool
) -> None:
    monkeypatch.setitem(sys.modules, "shapely", None)
    app = bind(parse(f"{STREAM}from S select {call} as r insert into Out;"))
    with pytest.raises(MeshError, match="MESH-C134") if is_refused else contextlib.nullcontext():
        check_supported(app)
