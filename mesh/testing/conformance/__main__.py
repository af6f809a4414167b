"""``python -m mesh.testing.conformance CASES.jsonl OUT.jsonl``: run cases, write answers."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mesh.testing.conformance import direct
from mesh.testing.conformance.answers import Likeness, compact, differences, likeness
from mesh.testing.conformance.cases import lines, read
from mesh.testing.conformance.pool import Pool

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m mesh.testing.conformance")
    parser.add_argument("cases", type=Path, help="JSON lines, a case each")
    parser.add_argument("out", type=Path, help="where the answers go, a line for each case")
    parser.add_argument("--engine", choices=("direct", "spark"), default="direct")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument(
        "--against", type=Path, help="the engine's answers to the same cases: say where we differ"
    )
    parser.add_argument("--streams", action="store_true", help="compare no query callbacks")
    parser.add_argument(
        "--unchecked", action="store_true", help="also run what the planner would refuse"
    )
    parser.add_argument(
        "--restore-half", action="store_true", help="spark: stop half-way, restore, go on"
    )
    given = parser.parse_args(arguments)
    if given.restore_half and given.engine != "spark":
        parser.error("--restore-half is of --engine spark")
    asked = read(given.cases)
    started_s = time.monotonic()
    if given.engine == "spark":
        answers = _through_spark(asked, given)
    else:
        answers = answer_all(asked, given.jobs, unchecked=given.unchecked)
    took_s = time.monotonic() - started_s
    given.out.write_text(lines(answers), encoding="utf-8")
    counts = Counter(one["status"] for one in answers)
    summary = {"cases": len(answers), **dict(sorted(counts.items()))}
    summary["cases_per_s"] = round(len(answers) / took_s) if took_s else 0
    sys.stdout.write(json.dumps(summary) + "\n")
    if given.against is not None:
        _compare(answers, read(given.against), streams_only=given.streams)


def _through_spark(
    asked: Sequence[dict[str, Any]], given: argparse.Namespace
) -> list[dict[str, Any]]:
    # Imported only for Spark, because the import is slow.
    from mesh.testing.conformance import spark

    logging.disable(logging.CRITICAL)
    try:
        answers = spark.answer_all(
            asked, given.jobs, halved=given.restore_half, unchecked=given.unchecked
        )
    finally:
        logging.disable(logging.NOTSET)
    return [{"index": index} | one for index, one in enumerate(answers)]


def _compare(
    answers: Sequence[dict[str, Any]], wanted: Sequence[dict[str, Any]], *, streams_only: bool
) -> None:
    """Print the differences of each answer from the engine's, followed by their number."""
    counts: Counter[str] = Counter()
    for ours, engines in zip(answers, wanted, strict=True):
        if streams_only:
            ours, engines = ours | {"queries": {}}, engines | {"queries": {}}
        found, expected = compact(ours), compact(engines)
        like = likeness(found, expected)
        counts[like.value] += 1
        if like is not Likeness.SAME:
            said = [found["error"]] if like is Likeness.UNSUPPORTED else []
            said = said or differences(found, expected)
            sys.stdout.write(f"{ours['name']}: {like}\n" + "".join(f"    {s}\n" for s in said))
    sys.stdout.write(json.dumps(dict(sorted(counts.items()))) + "\n")


def answer_all(
    asked: Sequence[dict[str, Any]], jobs: int = 1, *, unchecked: bool = False
) -> list[dict[str, Any]]:
    """The answers to the cases ``asked``, in order, each with its place as ``index``.

    With several jobs a case that ends its process has the status ``crash``.
    """
    if jobs > 1:
        with Pool(jobs, unchecked=unchecked) as pool:
            answers = pool.answers(asked)
    else:
        # Rows that fail are part of the answers.
        logging.disable(logging.CRITICAL)
        try:
            answers = [direct.answer(one, unchecked=unchecked) for one in asked]
        finally:
            logging.disable(logging.NOTSET)
    return [{"index": index} | one for index, one in enumerate(answers)]


if __name__ == "__main__":
    main()
