"""``python -m tools.advisories``: refuse a lock with packages of known weaknesses.

The package index knows the advisories of each version: ``/pypi/NAME/VERSION/json`` of PyPI lists
them as ``vulnerabilities``, which come from osv.dev.  Mirrors and machines without a network give
no such answers.  A package that could not be checked fails the command, which says why and what to
do: nothing is published unchecked unless a person says so with MESH_ADVISORIES_UNCHECKED=yes.
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
#: Variable with which packages may be unknown: ``yes``.
UNCHECKED: Final = "MESH_ADVISORIES_UNCHECKED"
#: Number of packages that are named of those with one reason.
_NAMED: Final = 3
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


async def check(
    index: str, packages: Sequence[Package]
) -> tuple[list[str], dict[str, list[Package]]]:
    """The weaknesses of packages, and by reason the packages that could not be checked."""
    turns = asyncio.Semaphore(_AT_ONCE)
    unknown: dict[str, list[Package]] = {}
    async with httpx.AsyncClient(timeout=_ANSWER_S, follow_redirects=True) as client:

        async def ask(package: Package) -> list[str]:
            async with turns:
                try:
                    answer = await client.get(f"{index}/{package.name}/{package.version}/json")
                except httpx.HTTPError as error:
                    reason = f"no answer: {type(error).__name__}"
                else:
                    try:
                        return weaknesses(package, answer.raise_for_status().json())
                    except httpx.HTTPStatusError:
                        reason = f"HTTP {answer.status_code}"
                    except (ValueError, KeyError, TypeError):
                        reason = "an answer without advisories, as of a mirror"
            unknown.setdefault(reason, []).append(package)
            return []

        found = await asyncio.gather(*map(ask, packages))
    return [line for one in found for line in one], unknown


def main() -> int:
    """Check the lock; the exit status: 1 for a weakness, or for a package that is not checked."""
    packages = [one for one in locked(LOCK.read_text("utf-8")) if one.kind == "pypi"]
    index = os.environ.get(INDEX, _PYPI)
    wrong, unknown = asyncio.run(check(index, packages))
    for line in wrong:
        sys.stderr.write(f"{line}\n")
    for reason, ones in unknown.items():
        some = ", ".join(f"{one.name} {one.version}" for one in ones[:_NAMED])
        more = ", .." if len(ones) > _NAMED else ""
        sys.stderr.write(f"not checked: {len(ones)} packages ({some}{more}): {reason}\n")
    checked = len(packages) - sum(map(len, unknown.values()))
    sys.stdout.write(
        f"advisories: {checked} of {len(packages)} packages checked at {index}, "
        f"{len(wrong)} weaknesses\n"
    )
    is_complete = not unknown and bool(packages)
    if not is_complete and os.environ.get(UNCHECKED) != "yes":
        sys.stderr.write(
            f"advisories: this is no pass.  Set {INDEX} to an index that answers like PyPI's JSON "
            f"API, or {UNCHECKED}=yes to build all the same.\n"
        )
        return 1
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
