"""Calls in a process of their own, within limits."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from mesh.errors import MeshError
from mesh.manager import planning
from mesh.processes.bounded_process import BoundedProcess
from tests.support.planned import TEXT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.environment import Variables


@pytest.fixture
def process() -> Iterator[BoundedProcess]:
    made = BoundedProcess(planning.__name__, planning._exceeded)
    yield made
    made.stop()


def _use_memory() -> int:
    return len(bytearray(2**40))


def _die() -> None:
    os.abort()


def _recurse() -> None:
    _recurse()


def _never() -> None:
    while True:
        pass


@pytest.mark.slow
def test_a_call_is_computed_by_another_process_that_is_kept(process: BoundedProcess) -> None:
    first = process.call(60.0, os.getpid)
    assert first not in (os.getpid(), None)
    assert process.call(60.0, os.getpid) == first
    assert process.call(60.0, planning.name_of_text, TEXT) == "A"


@pytest.mark.slow
def test_the_process_does_not_get_the_settings_of_the_manager(
    process: BoundedProcess, environment: Variables
) -> None:
    environment["MESH_NATS_PASSWORD"] = "secret"
    assert process.call(60.0, os.getenv, "MESH_NATS_PASSWORD") is None


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("bomb", [_use_memory, _die, _recurse])
def test_what_needs_too_much_is_an_error_and_the_next_call_works(
    process: BoundedProcess, bomb: Callable[[], Any]
) -> None:
    with pytest.raises(MeshError, match="MESH-A413"):
        process.call(60.0, bomb)
    assert process.call(60.0, planning.name_of_text, TEXT) == "A"


@pytest.mark.slow
def test_a_call_that_takes_too_long_is_ended(process: BoundedProcess) -> None:
    first = process.call(60.0, os.getpid)
    with pytest.raises(MeshError, match="MESH-A413"):
        process.call(0.01, _never)
    assert process.call(60.0, os.getpid) != first


@pytest.mark.slow
def test_an_error_of_the_text_keeps_its_place(process: BoundedProcess) -> None:
    with pytest.raises(MeshError) as error:
        process.call(
            60.0, planning.plan_text, "@App:name('A') define stream S (a int); from X", 8, True
        )
    assert error.value.position is not None
