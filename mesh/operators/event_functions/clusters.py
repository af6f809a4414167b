"""``#streamingml:kMeansIncremental`` and ``kMeansMiniBatch``: the nearest of k centroids.

The first k different points are the first centroids.  ``kMeansIncremental`` moves the nearest
centroid towards each point, by the decay rate.  ``kMeansMiniBatch`` gathers points; when there are
enough, each centroid moves towards the mean of those near it, by the decay rate, again and again
until no point has another centroid, or the iterations are over.

Source: API documentation of siddhi-execution-streamingml 2.0; Duda, "Sequential k-means";
Sculley, "Web-scale k-means clustering" (2010).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mesh.operators.event_functions.model import Form, finite

if TYPE_CHECKING:
    from mesh.model.values import Json, Row
    from mesh.operators.event_functions.model import Added

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
