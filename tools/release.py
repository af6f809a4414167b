"""``make release``: refuse unless everything that names the version names the same one.

It compares the version that ``make`` gives to images, the project's, both changelogs, the tag and
the bills of the images.  ``make dist``, which follows, compares archives, chart and example.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mesh import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT: Final = Path(__file__).parent.parent
_IMAGES: Final = ("mesh-manager", "mesh-nats", "mesh-worker")


def problems(root: Path, given: str, version: str = __version__) -> Iterator[str]:
    """Everything that keeps a checkout from being released.

    Args:
        root: the checkout.
        given: version that ``make`` gives to images.
        version: of the project.
    """
    if given != version:
        yield f"make gives images the version {given!r}, and the project's is {version}"
    for name in ("CHANGELOG.md", "docs/changelog.md"):
        text = (root / name).read_text("utf-8")
        first = re.search(r"^## (.+)$", text, re.MULTILINE)
        heading = "" if first is None else first[1]
        if not re.fullmatch(rf"{re.escape(version)} - \d{{4}}-\d\d-\d\d", heading):
            yield f"{name}: its first heading is {heading!r}, not '{version} - YYYY-MM-DD'"
    if changed := _git(root, "status", "--porcelain"):
        yield f"{len(changed)} files are not committed"
    tag = f"v{version}"
    if tag not in _git(root, "tag", "--points-at", "HEAD"):
        where = "at another commit" if _git(root, "tag", "--list", tag) else "missing"
        yield f"the tag {tag} is {where}"
    for image in _IMAGES:
        bill = root / "dist" / f"{image}.sbom.json"
        if not bill.exists():
            yield f"the image {image} has no bill of materials: make images"
        elif (
            made := json.loads(bill.read_text("utf-8"))["metadata"]["component"]["version"]
        ) != version:
            yield f"the image {image} is of version {made}: make images"


def _git(root: Path, *arguments: str) -> list[str]:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def main(given: str) -> int:
    """Print what is wrong; returns the exit code."""
    found = list(problems(_ROOT, given))
    for line in found:
        sys.stderr.write(f"make release: {line}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if sys.argv[1:] else ""))
