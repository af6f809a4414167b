"""``make vendor``: install the pinned npm packages, and copy their files and licences.

``package-lock.json`` holds their digests, so ``npm ci`` refuses other contents.  The copies are
committed with a list of their own digests, so a build needs Python alone.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
TARGET: Final = HERE.parents[1] / "mesh" / "dashboard" / "static" / "vendor"
DIGESTS: Final = "digests.json"
#: By package: files in it, and their names in the wheel.
FILES: Final = {
    "@picocss/pico": {
        "css/pico.classless.min.css": "pico.classless.min.css",
        "LICENSE.md": "pico.LICENSE.txt",
    },
    "htmx.org": {"dist/htmx.min.js": "htmx.min.js", "LICENSE": "htmx.LICENSE.txt"},
    "uplot": {
        "dist/uPlot.iife.min.js": "uPlot.iife.min.js",
        "dist/uPlot.min.css": "uPlot.min.css",
        "LICENSE": "uPlot.LICENSE.txt",
    },
}


def main() -> None:
    """Replace the copies by those of the pinned versions."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for file in ("package.json", "package-lock.json"):
            shutil.copy(HERE / file, directory / file)
        subprocess.run(["npm", "ci", "--ignore-scripts", "--silent"], cwd=directory, check=True)
        shutil.rmtree(TARGET, ignore_errors=True)
        TARGET.mkdir(parents=True)
        for package, files in FILES.items():
            for source, target in files.items():
                shutil.copyfile(directory / "node_modules" / package / source, TARGET / target)
    versions = json.loads((HERE / "package.json").read_text())["dependencies"]
    contents = {"versions": versions, "sha256": digests(TARGET)}
    (TARGET / DIGESTS).write_text(json.dumps(contents, indent=2) + "\n")


def digests(directory: Path) -> dict[str, str]:
    """SHA-256 of the files of a directory, by name, without the list itself."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.iterdir())
        if path.name != DIGESTS
    }


if __name__ == "__main__":
    main()
