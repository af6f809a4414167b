"""Cases in processes of their own: one that ends its process is an answer too."""

from __future__ import annotations

import logging
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from mesh.testing.conformance import direct

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future

    from mesh.model.values import JsonMapping, JsonObject

    Case = JsonMapping


class CasePool:
    """``jobs`` processes that answer cases."""

    def __init__(self, jobs: int, *, unchecked: bool = False) -> None:
        self._jobs = jobs
        self._answer = partial(direct.answer, unchecked=unchecked)
        self._pool = self._new()

    def _new(self) -> ProcessPoolExecutor:
        # Rows that fail are part of the answers, and not to be logged.
        return ProcessPoolExecutor(self._jobs, initializer=logging.disable)

    def __enter__(self) -> CasePool:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def answers(self, cases: Sequence[Case]) -> list[JsonObject]:
        """The answers to ``cases``, in order; status ``crash`` for a case that ends its process."""
        by_number: dict[int, JsonObject] = {}
        while len(by_number) < len(cases):
            waiting = [number for number in range(len(cases)) if number not in by_number]
            if not self._together(cases, waiting, by_number):
                # The one to blame is among the first: no more were under way.
                for number in [n for n in waiting if n not in by_number][: 2 * self._jobs]:
                    by_number[number] = self._alone(cases[number])
        return [by_number[number] for number in range(len(cases))]

    def _together(
        self, cases: Sequence[Case], numbers: Sequence[int], by_number: dict[int, JsonObject]
    ) -> bool:
        """Fill ``by_number``; False when a process has ended."""
        under_way: dict[int, Future[JsonObject]] = {}
        with suppress(BrokenProcessPool):
            for number in numbers:
                under_way[number] = self._pool.submit(self._answer, cases[number])
        for number, future in under_way.items():
            with suppress(BrokenProcessPool):
                by_number[number] = future.result()
        if all(number in by_number for number in numbers):
            return True
        self._pool.shutdown()
        self._pool = self._new()
        return False

    def _alone(self, case: Case) -> JsonObject:
        with ProcessPoolExecutor(1, initializer=logging.disable) as pool:
            try:
                return pool.submit(self._answer, case).result()
            except BrokenProcessPool:
                return {"name": case.get("name"), "status": "crash", "error": "crash"}
