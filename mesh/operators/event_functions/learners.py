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
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from mesh.operators.base import current
from mesh.operators.event_functions.model import Form, all_finite, finite

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
