"""Tables and windows of a stored state answer as those of the executor that stored it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from mesh.operators.executor import Executor
from mesh.operators.on_demand import answer
from mesh.operators.stored import stores_of
from mesh.plan.bound import AnswerOutput
from mesh.testing.conformance import direct
from tests.support.paths import CASES
from tools import engine_answers

if TYPE_CHECKING:
    from mesh.plan.bound import BoundApp, BoundOnDemandQuery

READS = [
    one
    for one in engine_answers.load(CASES / "conformance")
    if one.category == "on_demand" and one.case["name"].startswith(("read", "window", "in", "res"))
]


class Twice(Executor):
    """Answers on-demand queries from its stored state as well, and compares."""

    def __init__(self, app: BoundApp, *given: Any, **more: Any) -> None:
        super().__init__(app, *given, **more)
        self.app = app

    def ask(self, query: BoundOnDemandQuery, now_ms: int) -> pa.RecordBatch:
        found = super().ask(query, now_ms)
        if isinstance(query.action, AnswerOutput):
            state = direct._through_text(self.snapshot())
            stores = stores_of(self.app, state, self.places, query.reads)
            again = answer(query, stores, now_ms)
            assert again.schema == found.schema
            assert again.to_pylist() == found.to_pylist()
        return found


def test_they_answer_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "Executor", Twice)
    asked = [one for one in READS if "UUID" not in one.case["name"]]
    assert len(asked) > 100
    for one in asked:
        assert direct.answer(one.case)["status"] == "ok", one.name
