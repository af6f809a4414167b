"""``python -m tools.simulator --seed N --hours H``: simulate the control plane under faults.

Ends with 1 when an invariant does not hold, and prints the shortest scenario found that shows it;
``--scenario FILE`` plays one again.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tools.simulator import run
from tools.simulator.scenario import read


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m tools.simulator", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first cluster's seed")
    parser.add_argument("--hours", type=float, default=1000, help="simulated hours in all")
    parser.add_argument("--life", type=float, default=20, help="simulated hours of each cluster")
    parser.add_argument("--bursts", type=float, default=2, help="bursts of faults an hour")
    parser.add_argument("--loses", action="store_true", help="NATS loses acknowledged writes too")
    parser.add_argument("--scenario", type=Path, help="play this one, with --seed")
    options = parser.parse_args()
    started_s = time.process_time()
    if options.scenario is not None:
        outcome = run.play(read(options.scenario.read_text()), options.seed)
        total, failure = outcome.tally, outcome if outcome.violation else None
    else:
        total, failure = run.play_many(
            options.seed, options.hours, options.life, options.bursts, loses=options.loses
        )
    took_s = time.process_time() - started_s
    sys.stdout.write(run.describe(total, took_s) + "\n")
    if failure is None:
        return 0
    sys.stdout.write(f"seed {failure.seed}: {failure.violation}\n")
    shortest = run.shrink(failure)
    sys.stdout.write(f"# seed {shortest.seed}: {shortest.violation}\n{shortest.scenario}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
