"""Trees and rules: what a state may name, and the library that they need."""

from __future__ import annotations

import importlib
import io
import pickle
import sys
from random import Random

import pytest

from mesh.errors import MeshError
from mesh.language.parser import parse
from mesh.operators.event_functions import learners
from mesh.plan.bind import bind
from mesh.plan.supported import check_supported
from tests.support.recorder import DEFINE


@pytest.mark.slow
def test_a_rule_never_takes_the_place_of_another_one() -> None:
    def learner() -> learners.RulesRegressor:
        return learners.RulesRegressor((0.1, 0.9, 10, 2, 2))

    rng = Random(2)
    before = learner()
    while len(before._model) < 2:
        k = rng.randrange(9)
        before.learn([k], 3.0 * k if k > 4 else -k)
    restored = learner()
    restored.load_dump(before.dump())
    restored.learn([3], -3.0)
    # The library keeps them by their addresses, and new ones have others than those in use.
    assert all(key == hash(rule) for key, rule in restored._model._rules.items())


def test_without_the_library_an_app_with_a_tree_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "river", None)
    app = bind(
        parse(f"{DEFINE} from S#streamingml:updateHoeffdingTree('m', 2, k, s) insert into O;")
    )
    with pytest.raises(MeshError, match="river") as refusal:
        check_supported(app)
    assert "nats-event-mesh[ml]" in str(refusal.value.hint)


def test_a_state_names_no_function_that_a_model_does_not_need() -> None:
    for written in (b"cos\nsystem\n(S'true'\ntR.", b"cbuiltins\neval\n(S'1'\ntR."):
        with pytest.raises(pickle.UnpicklingError, match="no part of a model"):
            learners._Reader(io.BytesIO(written)).load()
    hidden = b"cbuiltins\ngetattr\n(criver\nbase\nS'os'\ntR."
    importlib.import_module("river.base")
    with pytest.raises(pickle.UnpicklingError, match=r"river\.base is no part"):
        learners._Reader(io.BytesIO(hidden)).load()
