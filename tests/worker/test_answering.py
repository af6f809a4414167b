"""Stores of stored states that are kept for further questions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mesh.model.question import AnswerTask
from mesh.operators.on_demand import stores_of
from mesh.worker import answering
from tests.support.stored_states import STREAM, StoredShop

if TYPE_CHECKING:
    from pathlib import Path

PARTS = 6


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A member for each state that is loaded."""
    found: list[str] = []

    def counted(*given: Any) -> Any:
        found.append("loaded")
        return stores_of(*given)

    monkeypatch.setattr(answering, "stores_of", counted)
    answering.CACHE.clear()
    return found


def shops(directory: Path) -> list[StoredShop]:
    found = [StoredShop(directory, name=f"Shop-default-{n}") for n in range(PARTS)]
    for number, shop in enumerate(found):
        shop.order((f"item-{number}", 1.5, number))
        shop.store()
    return found


def ask(shop: StoredShop) -> None:
    task = AnswerTask(
        str(shop.directory), shop.name, shop.epoch, 0, shop.spec.text, shop.group.text, (),
        (STREAM,), "from Prices select item", {}, 100, 10**6,
    )  # fmt: skip
    found = answering.answer_task(task)
    assert found is not None
    assert found.positions == {STREAM: shop.count}


def test_each_of_many_parts_is_loaded_once_until_its_state_changes(
    tmp_path: Path, loads: list[str]
) -> None:
    parts = shops(tmp_path)
    for _ in range(3):
        for shop in parts:
            ask(shop)
    assert len(loads) == PARTS
    parts[2].order(("another", 2.0, 7))
    parts[2].store()
    for shop in parts:
        ask(shop)
    assert len(loads) == PARTS + 1
    assert len(answering.CACHE) == PARTS


def test_stores_beyond_the_bytes_leave_those_asked_longest_ago_first(
    tmp_path: Path, loads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = shops(tmp_path)
    ask(parts[0])
    (kept,) = answering.CACHE.values()
    monkeypatch.setattr(answering, "CACHE_BYTES", int(2.5 * kept.size))
    for number in (1, 0, 2, 0, 1):
        ask(parts[number])
    # 0 and 1 are loaded, 2 takes the place of 1, and 1 that of 2.
    assert len(loads) == 4
    assert len(answering.CACHE) == 2
