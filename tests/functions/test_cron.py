"""Cron expressions: when they are due, and which are none."""

from datetime import UTC, datetime

import pytest

from mesh.errors import MeshError, Position
from mesh.functions.cron import Cron, check_cron
from tests.support import paths
from tests.support.case_files import check

CASES = paths.CASES / "cron"


def due(given: str) -> str:
    """``expression | start | number``: the first times."""
    text, start, count = given.split(" | ")
    cron = Cron(text)
    begin = datetime.fromisoformat(start).replace(tzinfo=UTC)
    time_ms = cron.first_from(int(begin.timestamp() * 1000))
    found: list[str] = []
    while time_ms is not None and len(found) < int(count):
        at = datetime.fromtimestamp(time_ms / 1000, UTC)
        form = "milliseconds" if at.microsecond else "seconds"
        found.append(at.replace(tzinfo=None).isoformat(timespec=form))
        time_ms = cron.after(time_ms)
    return "\n".join(found)


def test_times_are_those_of_the_engine(rewrite: bool) -> None:
    check(CASES / "quartz.txt", due, rewrite=rewrite)


def test_one_that_is_over_is_never_due() -> None:
    assert Cron("0 0 0 1 1 ? 2018").first_from(1_570_442_400_000) is None


@pytest.mark.parametrize(
    "text",
    ["", "bad", "0 0 12 * *", "0 0 12 ? * ?", "0 0 12 * * *", "61 * * * * ?", "0 0 0 ? * 8",
     "0 0 0 L-3 * ?", "*/0 * * * * ?", "0 0 24 * * ?", "0 0 0 ? * MOON", "0 0 0 1-X * ?"],
)  # fmt: skip
def test_what_is_no_expression_is_refused_at_its_place(text: str) -> None:
    with pytest.raises(MeshError) as error:
        check_cron(text, Position(2, 3))
    assert error.value.code == "MESH-P220"
    assert error.value.position == Position(2, 3)
