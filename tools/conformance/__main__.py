"""``python -m tools.conformance CASES.jsonl OUT.jsonl``: run cases, write answers."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from mesh.testing.conformance import direct
from mesh.testing.conformance.answers import Likeness, compact, differences, likeness
from mesh.testing.conformance.cases import lines, read
from tools.conformance.pool import CasePool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.model.values import JsonObject


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.conformance")
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
    options = parser.parse_args(arguments)
    if options.restore_half and options.engine != "spark":
        parser.error("--restore-half is of --engine spark")
    cases = read(options.cases)
    started_s = time.monotonic()
    if options.engine == "spark":
        answers = _through_spark(cases, options)
    else:
        answers = answer_all(cases, options.jobs, unchecked=options.unchecked)
    took_s = time.monotonic() - started_s
    options.out.write_text(lines(answers), encoding="utf-8")
    counts = Counter(one["status"] for one in answers)
    summary = {"cases": len(answers), **dict(sorted(counts.items()))}
    summary["cases_per_s"] = round(len(answers) / took_s) if took_s else 0
    sys.stdout.write(json.dumps(summary) + "\n")
    if options.against is not None:
        _compare(answers, read(options.against), streams_only=options.streams)


def _through_spark(cases: Sequence[JsonObject], options: argparse.Namespace) -> list[JsonObject]:
    # Imported only for Spark, because the import is slow.
    from tools.conformance import spark

    logging.disable(logging.CRITICAL)
    try:
        answers = spark.answer_all(
            cases, options.jobs, halved=options.restore_half, unchecked=options.unchecked
        )
    finally:
        logging.disable(logging.NOTSET)
    return [{"index": index} | one for index, one in enumerate(answers)]


def _compare(
    answers: Sequence[JsonObject], references: Sequence[JsonObject], *, streams_only: bool
) -> None:
    """Print the differences of each answer from the engine's, followed by their number."""
    counts: Counter[str] = Counter()
    for ours, engines in zip(answers, references, strict=True):
        if streams_only:
            ours, engines = ours | {"queries": {}}, engines | {"queries": {}}
        actual, expected = compact(ours), compact(engines)
        like = likeness(actual, expected)
        counts[like.value] += 1
        if like is not Likeness.SAME:
            said = [actual["error"]] if like is Likeness.UNSUPPORTED else []
            said = said or differences(actual, expected)
            sys.stdout.write(f"{ours['name']}: {like}\n" + "".join(f"    {s}\n" for s in said))
    sys.stdout.write(json.dumps(dict(sorted(counts.items()))) + "\n")


def answer_all(
    cases: Sequence[JsonObject], jobs: int = 1, *, unchecked: bool = False
) -> list[JsonObject]:
    """The answers to ``cases``, in order, each with its place as ``index``.

    With several jobs a case that ends its process has the status ``crash``.
    """
    if jobs > 1:
        with CasePool(jobs, unchecked=unchecked) as pool:
            answers = pool.answers(cases)
    else:
        # Rows that fail are part of the answers.
        logging.disable(logging.CRITICAL)
        try:
            answers = [direct.answer(one, unchecked=unchecked) for one in cases]
        finally:
            logging.disable(logging.NOTSET)
    return [{"index": index} | one for index, one in enumerate(answers)]


if __name__ == "__main__":
    main()
