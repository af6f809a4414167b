"""``#streamingml:updateHoeffdingTree`` and ``updateAMRulesRegressor``, by the library river.

A tree grows no further at 100 leaves, and a set of rules at 100; statistics of splits are dropped
from time to time.  So the state has a bound.  It is a pickle, of which nothing is read but the
classes of river that it needs.

Source: API documentation of siddhi-gpl-execution-streamingml 2.0.
"""

from __future__ import annotations

import base64
import io
import pickle
from typing import TYPE_CHECKING, Any, Final

from mesh.connect.contract import library
from mesh.errors import MeshError
from mesh.operators.event_functions.model import all_finite, finite

if TYPE_CHECKING:
    from mesh.model.values import Json, Row
    from mesh.operators.event_functions.learners import Features
    from mesh.operators.event_functions.model import Added

#: Leaves of a tree, or rules of a set, with which it grows no further.
_PARTS_MAX: Final = 100
#: Events after which the statistics of possible splits are dropped; a rule that may be divided
#: has been by then.
_EVENTS_MAX: Final = 5_000
#: A grace period that never ends.
_NEVER: Final = 1 << 60
#: The least number of events between attempts to split: each costs as much as many events.
_PERIOD_MIN: Final = 10
_CLASSES: Final = frozenset(
    {
        ("builtins", "float"),
        ("collections", "Counter"),
        ("collections", "OrderedDict"),
        ("collections", "defaultdict"),
        ("functools", "partial"),
        ("random", "Random"),
    }
)
_METHOD: Final = "_update_estimator_univariate"
#: Methods that instances of river's classes refer to.
_METHODS: Final = frozenset({_METHOD, "_test_both"})


class _Reader(pickle.Unpickler):
    """Reads models: classes of river, and few others; no function is called by name."""

    def find_class(self, module: str, name: str) -> Any:
        """The class ``name`` of ``module``."""
        if (module, name) in _CLASSES:
            return super().find_class(module, name)
        if (module, name) == ("builtins", "getattr"):
            return _method
        if module.partition(".")[0] == "river" and name.isidentifier():
            candidate = super().find_class(module, name)
            if isinstance(candidate, type) and candidate.__module__.partition(".")[0] == "river":
                return candidate
        if module == "river.tree.splitter.ebst_splitter" and name == f"EBSTNode.{_METHOD}":
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a model")


def _method(part: Any, name: str) -> Any:
    """A method that a part of a model refers to."""
    if name not in _METHODS or type(part).__module__.partition(".")[0] != "river":
        raise pickle.UnpicklingError(f"{name} is no part of a model")
    return getattr(part, name)


class _RiverModel:
    """A model of river with its state."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._seen = 0
        #: Number of features of its events; 0 before the first.
        self._features = 0

    def _read(self, features: Features) -> dict[str, float]:
        self._features = self._features or len(features)
        if len(features) != self._features:
            raise ValueError(f"the model has {self._features} features, and not {len(features)}")
        return {f"f{place}": one for place, one in enumerate(finite(features))}

    def _dump(self) -> object:
        version = library("river", "ml").__version__
        written = pickle.dumps(self._model, 4)
        return [version, base64.b85encode(written).decode(), self._seen]

    def _load_dump(self, version: str, text: str, seen: int) -> None:
        river = library("river", "ml")
        try:
            self._model = _Reader(io.BytesIO(base64.b85decode(text))).load()
        # Other versions of the library have other classes and attributes.
        except Exception as error:
            raise MeshError(
                "MESH-O105",
                "the state of a model can't be read",
                detail=f"river {version} wrote it, and {river.__version__} is here: {error}",
                hint=f"Install it on the workers: pip install river=={version}; or undeploy and "
                "deploy the app, which trains the model again.",
            ) from error
        self._seen = seen


class HoeffdingTree(_RiverModel):
    """Adaptive Hoeffding tree; ``settings``: those of the call after the number of classes."""

    def __init__(self, classes: int, settings: Row) -> None:
        tree = library("river.tree", "ml")
        defaults = (200, 0, 1e-7, 0.05, False, False, 2)
        period, criterion, delta, tau, binary, prune, leaf = settings or defaults
        self._period = max(_PERIOD_MIN, period)
        super().__init__(
            tree.HoeffdingAdaptiveTreeClassifier(
                grace_period=self._period,
                split_criterion=("info_gain", "gini")[criterion],
                delta=delta,
                tau=tau,
                leaf_prediction=("mc", "nb", "nba")[leaf],
                binary_split=binary,
                merit_preprune=prune,
                bootstrap_sampling=False,
                seed=1,
            )
        )
        self._classes = classes
        self._right = 0

    def learn(self, features: Features, target: Any) -> Added:
        """Predict, and then learn; the share of right predictions so far."""
        label, labels = str(target), self._model.classes
        if label not in labels and len(labels) >= self._classes:
            raise ValueError(f"'{label}' would be class {len(labels) + 1} of {self._classes}")
        x = self._read(features)
        self._right += bool(self._seen) and self._model.predict_one(x) == label
        self._model.grace_period = (
            self._period
            if self._model.n_leaves is None or self._model.n_leaves < _PARTS_MAX
            else _NEVER
        )
        self._model.learn_one(x, label)
        self._seen += 1
        return (self._right / self._seen,)

    def predict(self, features: Features) -> Added | None:
        """The most probable class, and its probability."""
        if not self._seen:
            return None
        probabilities = self._model.predict_proba_one(self._read(features))
        total = sum(probabilities.values())
        best = max(probabilities, key=lambda one: (probabilities[one], one))
        return best, probabilities[best] / total if total else 0.0

    def dump(self) -> object:
        """The tree, and its counts."""
        return [self._dump(), self._right, self._features]

    def load_dump(self, state: Json) -> None:
        """Restore what ``dump`` returned."""
        tree, self._right, self._features = state
        self._load_dump(*tree)


class RulesRegressor(_RiverModel):
    """Adaptive model rules; ``settings``: those of the call after the name of the model."""

    def __init__(self, settings: Row) -> None:
        drift = library("river.drift", "ml")
        linear = library("river.linear_model", "ml")
        delta, tau, period, change, anomaly = settings or (1e-7, 0.05, 200, 2, 2)
        detector = (library("river.drift", "ml").NoDrift, drift.ADWIN, drift.PageHinkley)[change]
        self._period = max(_PERIOD_MIN, period)
        super().__init__(
            library("river.rules", "ml").AMRules(
                n_min=self._period,
                delta=delta,
                tau=tau,
                drift_detector=detector(),
                pred_model=library("river.preprocessing", "ml").StandardScaler()
                | linear.LinearRegression(),
                splitter=library("river.tree.splitter", "ml").TEBSTSplitter(digits=1),
                anomaly_threshold=-0.75 if anomaly else float("-inf"),
            )
        )
        self._squares = 0.0

    def learn(self, features: Features, target: Any) -> Added:
        """Predict, and then learn; the mean of the squared errors so far."""
        x, (y,) = self._read(features), finite([target])
        squares = self._squares + (self._model.predict_one(x) - y) ** 2
        if not all_finite([squares]):
            raise ValueError("the error would not be finite")
        self._model.n_min = self._period if len(self._model) < _PARTS_MAX else _NEVER
        # Keys are addresses, also of objects that a later rule's may take the place of: that rule
        # would replace another one (river 0.26.1).
        rules = self._model._rules.values()
        self._model._rules = {hash(rule): rule for rule in rules}
        self._model.learn_one(x, y)
        self._squares = squares
        self._seen += 1
        if self._seen % max(_EVENTS_MAX, 25 * self._period) == 0:
            for rule in (self._model._default_rule, *self._model._rules.values()):
                rule.splitters.clear()
        return (self._squares / self._seen,)

    def predict(self, features: Features) -> Added | None:
        """The prediction, and the mean of the squared errors so far."""
        if not self._seen:
            return None
        return float(self._model.predict_one(self._read(features))), self._squares / self._seen

    def dump(self) -> object:
        """The rules, and their error."""
        return [self._dump(), self._squares, self._features]

    def load_dump(self, state: Json) -> None:
        """Restore what ``dump`` returned."""
        rules, self._squares, self._features = state
        self._load_dump(*rules)
