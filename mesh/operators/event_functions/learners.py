"""Named models that one query trains and others ask: ``#streamingml:updateX`` and ``#..:X``.

The queries of a group share a model by its name, as they share a table, in and outside of
partitions.  The queries that train it keep its state.  The formulas are computed in plain Python:
products of matrices have other last bits on other processors, and so would a replay.

Source: API documentation of siddhi-execution-streamingml 2.0; Rosenblatt's perceptron; Bishop,
"Pattern Recognition and Machine Learning", section 3.3.

``#streamingml:kMeansIncremental`` and ``kMeansMiniBatch``: the nearest of k centroids.

The first k different points are the first centroids.  ``kMeansIncremental`` moves the nearest
centroid towards each point, by the decay rate.  ``kMeansMiniBatch`` gathers points; when there are
enough, each centroid moves towards the mean of those near it, by the decay rate, again and again
until no point has another centroid, or the iterations are over.

Source: API documentation of siddhi-execution-streamingml 2.0; Duda, "Sequential k-means";
Sculley, "Web-scale k-means clustering" (2010).

``#streamingml:updateHoeffdingTree`` and ``updateAMRulesRegressor``, by the library river.

A tree grows no further at 100 leaves, and a set of rules at 100; statistics of splits are dropped
from time to time.  So the state has a bound.  It is a pickle, of which nothing is read but the
classes of river that it needs.

Source: API documentation of siddhi-gpl-execution-streamingml 2.0.
"""

from __future__ import annotations

import base64
import io
import math
import pickle
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from mesh.connect.contract import library
from mesh.errors import MeshError
from mesh.operators.event_functions.model import Form, all_finite, finite
from mesh.operators.expressions import current

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mesh.model.values import Json, Row
    from mesh.operators.event_functions.model import Added

    Features = Sequence[float]
    Point = list[float]


class Clusters:
    """Centroids that move with each point; ``batch``: points that are gathered, None for none."""

    def __init__(self, count: int, decay: float, iterations: int, batch: int | None) -> None:
        self._count = count
        self._decay = decay
        self._iterations = iterations
        self._batch = batch
        self._centroids: list[Point] = []
        self._points: list[Point] = []

    def step(self, values: Row, kind: int, time_ms: int) -> Added:
        """Learn from a point; the distance of the nearest centroid, and its coordinates."""
        point = finite(values)
        if len(self._centroids) < self._count:
            if point not in self._centroids:
                self._centroids.append(point)
        elif self._batch is None:
            self._move(self._nearest(point), point)
        if self._batch is not None:
            self._points.append(point)
            if len(self._points) >= self._batch:
                self._train()
        centroid = self._centroids[self._nearest(point)]
        return math.dist(centroid, point), *centroid

    def _nearest(self, point: Point) -> int:
        distances = [math.dist(one, point) for one in self._centroids]
        return distances.index(min(distances))

    def _move(self, place: int, towards: Point) -> None:
        self._centroids[place] = [
            value + self._decay * (other - value)
            for value, other in zip(self._centroids[place], towards, strict=True)
        ]

    def _train(self) -> None:
        before: list[int] = []
        for _ in range(self._iterations):
            near = [self._nearest(point) for point in self._points]
            if near == before:
                break
            before = near
            for place in sorted(set(near)):
                points = [p for p, at in zip(self._points, near, strict=True) if at == place]
                columns = zip(*points, strict=True)
                self._move(place, [math.fsum(column) / len(points) for column in columns])
        self._points = []

    def dump(self) -> object:
        """Its state as JSON."""
        return [self._centroids, self._points]

    def load_dump(self, state: Json) -> None:
        """Restore what ``dump`` returned."""
        self._centroids, self._points = state


def incremental(count: int, decay: float = 0.01) -> Form:
    """``kMeansIncremental(k, decay, features ..)``."""
    return Form(lambda: Clusters(count, decay, 0, None), skips_constants=True)


def mini_batch(count: int, *settings: object) -> Form:
    """``kMeansMiniBatch(k, decay, iterations, events, features ..)``; ints are in this order."""
    decay = next((one for one in settings if isinstance(one, float)), 0.01)
    whole = [one for one in settings if isinstance(one, int)]
    iterations, events = [*whole, *(50, 20)[len(whole) :]]
    return Form(lambda: Clusters(count, decay, iterations, events), skips_constants=True)


class Learner(Protocol):
    """A model."""

    def learn(self, features: Features, target: object) -> Added:
        """Learn from one event; the attributes that training adds to it.

        Raises:
            ValueError: it can't learn from this event.
        """
        ...

    def predict(self, features: Features) -> Added | None:
        """The attributes of a prediction; None before the first event of training."""
        ...

    def dump(self) -> object:
        """Its state as JSON."""
        ...

    def load_dump(self, state: object) -> None:
        """Restore what ``dump`` returned."""
        ...


@dataclass(slots=True)
class ModelSlot:
    """The place of a named model in a group; the first query that trains it fills it."""

    learner: Learner | None = None


class Training:
    """A query that trains the model of ``slot``; the target is the argument at ``target``."""

    def __init__(self, slot: ModelSlot, target: int) -> None:
        self._slot = slot
        self._target = target

    @property
    def _learner(self) -> Learner:
        assert self._slot.learner is not None, "a query that trains a model makes it"
        return self._slot.learner

    def step(self, values: Row, kind: int, time_ms: int) -> Added:
        """Learn from one event, and from one that leaves a window as well."""
        features = list(values)
        target = features.pop(self._target)
        return self._learner.learn(features, target)

    def dump(self) -> object:
        """The model."""
        return self._learner.dump()

    def load_dump(self, state: object) -> None:
        """Restore the model."""
        self._learner.load_dump(state)


class Asking:
    """A query that asks the model of ``slot``; it has no state."""

    def __init__(self, slot: ModelSlot, nothing: Added) -> None:
        self._slot = slot
        self._nothing = nothing

    def step(self, values: Row, kind: int, time_ms: int) -> Added:
        """The prediction for one event; nulls before the first event of training."""
        learner = self._slot.learner
        return (learner.predict(values) if learner is not None else None) or self._nothing

    def dump(self) -> object:
        """Nothing."""
        return None

    def load_dump(self, state: object) -> None:
        """Nothing to restore."""


def slot_of(family: str, name: str) -> ModelSlot:
    """The slot of a model in the app that is being compiled."""
    slot = current().models.setdefault(f"{family} {name}", ModelSlot())
    assert isinstance(slot, ModelSlot), "models have slots"
    return slot


def training(family: str, name: str, make: Callable[[], Learner], target: int) -> Form:
    """A call that trains the model ``name``; ``target``: the place of the target's argument."""
    slot = slot_of(family, name)
    if slot.learner is None:
        slot.learner = make()
    return Form(lambda: Training(slot, target), is_shared=True, skips_constants=True)


def asking(family: str, name: str, added: int) -> Form:
    """A call that asks the model ``name``, whose predictions add ``added`` attributes."""
    slot = slot_of(family, name)
    return Form(lambda: Asking(slot, (None,) * added), is_shared=True, skips_constants=True)


def checked(features: Features, expected: Features) -> None:
    """Refuse an event with another number of features than the model has."""
    if len(features) != len(expected):
        raise ValueError(f"the model has {len(expected)} features, and the event {len(features)}")


@dataclass(slots=True)
class Perceptron:
    """Weights of a linear classifier of two classes; its margin gives a probability."""

    rate: float
    bias: float = 0.0
    weights: list[float] = field(default_factory=list)

    def learn(self, features: Features, target: object) -> Added:
        """Move the weights towards the label if it was not predicted; the weights."""
        label, x = _label(target), finite(features)
        weights = self.weights or [0.0] * len(x)
        checked(x, weights)
        error = label - (_probability(weights, x, 0.0) > 0.5)
        if error:
            change = [error * self.rate * one for one in x]
            weights = [w + c for w, c in zip(weights, change, strict=True)]
        if not all_finite(weights):
            raise ValueError("a weight would not be finite")
        self.weights = weights
        return tuple(weights)

    def probability(self, features: Features, bias: float) -> float:
        """The probability of the class ``true``."""
        return _probability(self.weights, finite(features), bias)

    def predict(self, features: Features) -> Added | None:
        """The probability of the class ``true``, for a bias of 0."""
        return (self.probability(features, 0.0),)

    def dump(self) -> object:
        """The weights."""
        return self.weights

    def load_dump(self, state: Json) -> None:
        """Restore the weights."""
        self.weights = list(state)


class Classifying(Asking):
    """A query that asks a perceptron, with a bias and a threshold of its own."""

    def __init__(self, slot: ModelSlot, bias: float, threshold: float) -> None:
        super().__init__(slot, (None, None))
        self._bias = bias
        self._threshold = threshold

    def step(self, values: Row, kind: int, time_ms: int) -> Added:
        """The class, and its probability."""
        learner = self._slot.learner
        if not isinstance(learner, Perceptron) or not learner.weights:
            return self._nothing
        checked(values, learner.weights)
        probability = learner.probability(values, self._bias)
        is_true = probability > self._threshold
        return is_true, probability if is_true else 1 - probability


def _probability(weights: Features, features: Features, bias: float) -> float:
    margin = math.fsum([bias, *(w * x for w, x in zip(weights, features, strict=True))])
    return 1 / (1 + math.exp(-max(-700.0, min(700.0, margin))))


def _label(target: object) -> bool:
    """``true`` or ``false``, also as a text."""
    if isinstance(target, bool):
        return target
    text = str(target).lower()
    if text not in ("true", "false"):
        raise ValueError(f"the label '{target}' is neither true nor false")
    return text == "true"


class BayesianRegression:
    """Bayesian linear regression with an intercept, prior N(0, 1), and noise N(0, 1).

    The covariance of the posterior is updated by the formula of Sherman and Morrison.
    """

    def __init__(self) -> None:
        self._covariance: list[list[float]] = []
        #: The sum of target times features.
        self._moment: list[float] = []

    def learn(self, features: Features, target: object) -> Added:
        """Update the posterior; the squared error of the prediction before."""
        y, *x = finite([target, 1.0, *features])
        if not self._moment:
            self._moment = [0.0] * len(x)
            self._covariance = [[float(i == j) for j in range(len(x))] for i in range(len(x))]
        checked(x, self._moment)
        loss = (y - self._mean(x)) ** 2
        spread = self._spread(x)
        scale = 1 + _dot(x, spread)
        covariance = [
            [value - a * b / scale for value, b in zip(row, spread, strict=True)]
            for row, a in zip(self._covariance, spread, strict=True)
        ]
        moment = [m + y * one for m, one in zip(self._moment, x, strict=True)]
        if not all_finite([loss, *moment, *(one for row in covariance for one in row)]):
            raise ValueError("a coefficient would not be finite")
        self._covariance, self._moment = covariance, moment
        return (loss,)

    def predict(self, features: Features) -> Added | None:
        """The mean of the predictive distribution, and the inverse of its standard deviation."""
        if not self._moment:
            return None
        x = finite([1.0, *features])
        checked(x, self._moment)
        return self._mean(x), 1 / math.sqrt(1 + _dot(x, self._spread(x)))

    def _spread(self, x: Features) -> list[float]:
        return [_dot(row, x) for row in self._covariance]

    def _mean(self, x: Features) -> float:
        return _dot(self._spread(x), self._moment)

    def dump(self) -> object:
        """The posterior."""
        return [self._covariance, self._moment]

    def load_dump(self, state: Json) -> None:
        """Restore the posterior."""
        self._covariance, self._moment = state


def _dot(a: Features, b: Features) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def classifying(name: str, bias: float = 0.0, threshold: float = 0.5) -> Form:
    """``perceptronClassifier(name, bias, threshold, features ..)``."""
    slot = slot_of("perceptron", name)
    return Form(lambda: Classifying(slot, bias, threshold), is_shared=True, skips_constants=True)


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
