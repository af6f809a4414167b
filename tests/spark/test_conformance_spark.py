"""A sample of the recorded cases through Spark: step by step, and restored half-way.

Some cases of each category, always the same ones until a file changes.  One query runs them all, so
the sample needs less time than the starts of as many queries would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from mesh.testing.conformance.answers import compact, differences
from tests.support.paths import CASES
from tools import engine_answers

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = [pytest.mark.spark]

DIRECTORY = CASES / "conformance"
#: Each step is a micro-batch of the query.
STEPS_MAX: Final = 10


def sample() -> dict[str, list[engine_answers.Recorded]]:
    """Cases of every category, spread over each file."""
    known = engine_answers.differences(DIRECTORY)
    by_category: dict[str, list[engine_answers.Recorded]] = {}
    for one in engine_answers.load(DIRECTORY):
        is_short = len(one.case["inputs"]) <= STEPS_MAX
        if is_short and one.name not in known and one.expect["status"] == "ok":
            by_category.setdefault(one.category, []).append(one)
    found = {}
    for category, cases in by_category.items():
        count = min(len(cases), 4 if len(cases) > 60 else 3)
        found[category] = [cases[(2 * n + 1) * len(cases) // (2 * count)] for n in range(count)]
    return found


SAMPLE = sample()
WAYS: Final = {False: "step by step", True: "restored half-way"}
#: `make test-ci` has one case of each category both ways; the default tier has one of each third
#: category, one way or the other.
PARAMETERS = [
    pytest.param(
        one,
        halved,
        id=f"{one.name}-{way}",
        marks=[
            *([pytest.mark.extended] if number else []),
            *([pytest.mark.thorough] if index % 3 or index % 2 == halved else []),
        ],
    )
    for index, cases in enumerate(SAMPLE.values())
    for number, one in enumerate(cases)
    for halved, way in WAYS.items()
]


@pytest.fixture(scope="module")
def answers(request: pytest.FixtureRequest) -> dict[tuple[str, bool], Mapping[str, Any]]:
    """Of the selected tests: by case, and whether it was restored half-way."""
    from tools.conformance import spark

    own = [item for item in request.session.items if item.path == request.path]
    given = [getattr(item, "callspec", None) for item in own]
    asked = [(one.params["case"], one.params["halved"]) for one in given if one is not None]
    # A session of its own is worth its start for a dozen of cases.
    jobs = 2 if len(asked) > 12 else 1
    found = spark.answer_each([(one.case, halved) for one, halved in asked], jobs=jobs)
    pairs = zip(asked, found, strict=True)
    return {(one.name, halved): answer for (one, halved), answer in pairs}


def test_the_sample_has_every_category() -> None:
    files = {path.stem for path in DIRECTORY.glob("*.jsonl")}
    assert set(SAMPLE) == files
    assert len(PARAMETERS) >= 120


@pytest.mark.parametrize(("case", "halved"), PARAMETERS)
def test_an_app_answers_through_spark_as_the_reference_engine(
    case: engine_answers.Recorded,
    halved: bool,
    answers: dict[tuple[str, bool], Mapping[str, Any]],
) -> None:
    answer = answers[case.name, halved]
    assert differences(compact(answer), case.expect) == []
