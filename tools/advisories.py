"""``python -m tools.advisories``: refuse a lock with packages of known weaknesses.

It needs no network: the list ``tools/advisories.txt`` has the known advisories, and the date on
which they were read.  The command says how old the list is.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

from packaging.version import Version

from tools.sbom import LOCK, Package, locked

LIST: Final = Path(__file__).with_suffix(".txt")
#: Age of the list after which new advisories should be read.
_OLD_DAYS: Final = 90


@dataclass(frozen=True, slots=True)
class Advisories:
    """The advisories that are known here."""

    checked: date
    #: By package: the advisory, and the first version without the weakness.
    fixed: dict[str, list[tuple[str, str]]]

    def against(self, packages: list[Package]) -> list[str]:
        """A line for each package with a weakness."""
        return [
            f"{one.name} {one.version} has {name}: {fixed} or later has it not"
            for one in packages
            for name, fixed in self.fixed.get(one.name, ())
            if Version(one.version) < Version(fixed)
        ]


def read(path: Path = LIST) -> Advisories:
    """The list."""
    lines = [line.split() for line in path.read_text("utf-8").splitlines() if line[:1] != "#"]
    (checked,) = (words[1] for words in lines if len(words) == 2)
    found: dict[str, list[tuple[str, str]]] = {}
    for name, fixed, advisory in (words for words in lines if len(words) == 3):
        found.setdefault(name, []).append((advisory, fixed))
    return Advisories(date.fromisoformat(checked), found)


def main(today: date) -> int:
    """Check the lock; the exit status."""
    known = read()
    wrong = known.against(locked(LOCK.read_text("utf-8")))
    for line in wrong:
        sys.stderr.write(f"{line}\n")
    days = (today - known.checked).days
    count = sum(map(len, known.fixed.values()))
    old = "; read new ones, see tools/advisories.txt" if days > _OLD_DAYS else ""
    sys.stdout.write(f"{count} advisories of {known.checked}, {days} days old{old}\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(datetime.now(UTC).date()))  # noqa: TID251  # the age of a list
