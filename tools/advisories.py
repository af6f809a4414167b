"""``python -m tools.advisories``: refuse a lock with packages of known weaknesses.

The package index knows the advisories of each version: ``/pypi/NAME/VERSION/json`` of PyPI lists
them as ``vulnerabilities``, which come from osv.dev.  Where the index gives no such answers, as
mirrors and machines without a network do, the command says how many packages it could not check.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Any, Final

import httpx

from tools.sbom import LOCK, Package, locked

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Variable with another index that answers like PyPI.
INDEX: Final = "MESH_ADVISORIES_URL"
_PYPI: Final = "https://pypi.org/pypi"
#: Requests at a time, and the time for one, seconds.
_AT_ONCE, _ANSWER_S = 16, 10.0


def weaknesses(package: Package, answer: Any) -> list[str]:
    """A line for each advisory of a version that is not withdrawn.

    Args:
        package: the version that was asked for.
        answer: the index's, as a value.
    """
    lines = []
    for one in answer["vulnerabilities"]:
        if one.get("withdrawn"):
            continue
        fixed = ", ".join(one.get("fixed_in") or ()) or "no version yet"
        names = ", ".join([one["id"], *one.get("aliases", ())])
        lines.append(f"{package.name} {package.version}: {names}; fixed in: {fixed}")
    return lines


async def check(index: str, packages: Sequence[Package]) -> tuple[list[str], int]:
    """The weaknesses of packages, and how many of these the index said nothing about."""
    turns = asyncio.Semaphore(_AT_ONCE)
    async with httpx.AsyncClient(timeout=_ANSWER_S, follow_redirects=True) as client:

        async def ask(package: Package) -> list[str] | None:
            async with turns:
                try:
                    answer = await client.get(f"{index}/{package.name}/{package.version}/json")
                    return weaknesses(package, answer.raise_for_status().json())
                except (httpx.HTTPError, ValueError, KeyError, TypeError):
                    return None

        found = await asyncio.gather(*map(ask, packages))
    return [line for one in found for line in one or ()], found.count(None)


def main() -> int:
    """Check the lock; the exit status."""
    packages = [one for one in locked(LOCK.read_text("utf-8")) if one.kind == "pypi"]
    wrong, unknown = asyncio.run(check(os.environ.get(INDEX, _PYPI), packages))
    for line in wrong:
        sys.stderr.write(f"{line}\n")
    checked = f"{len(packages) - unknown} of {len(packages)} packages"
    sys.stdout.write(f"advisories: {checked} checked, {len(wrong)} weaknesses\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
