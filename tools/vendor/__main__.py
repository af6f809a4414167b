"""``make vendor``: install the pinned npm packages, and copy their files and licences.

``package-lock.json`` holds their digests, so ``npm ci`` refuses other contents.  The copies are
committed with a list of their own digests, so a build needs Python alone.  esbuild makes one file
of CodeMirror's packages, with the parts that ``codemirror.js`` names.
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
#: The bundle, and the packages whose code is in it.
BUNDLE: Final = "codemirror.min.js"
BUNDLE_LICENCE: Final = "codemirror.LICENSE.txt"
BUNDLED: Final = (
    *(f"@codemirror/{name}" for name in (
        "autocomplete", "commands", "language", "lint", "state", "view",
    )),
    *(f"@lezer/{name}" for name in ("common", "highlight", "lr")),
    "@marijn/find-cluster-break", "crelt", "style-mod", "w3c-keyname",
)  # fmt: skip


def main() -> None:
    """Replace the copies by those of the pinned versions."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for file in ("package.json", "package-lock.json", "codemirror.js"):
            shutil.copy(HERE / file, directory / file)
        subprocess.run(["npm", "ci", "--ignore-scripts", "--silent"], cwd=directory, check=True)
        shutil.rmtree(TARGET, ignore_errors=True)
        TARGET.mkdir(parents=True)
        for package, files in FILES.items():
            for source, target in files.items():
                shutil.copyfile(directory / "node_modules" / package / source, TARGET / target)
        _bundle(directory)
    versions = json.loads((HERE / "package.json").read_text())["dependencies"]
    contents = {"versions": versions, "sha256": digests(TARGET)}
    (TARGET / DIGESTS).write_text(json.dumps(contents, indent=2) + "\n")


def _bundle(directory: Path) -> None:
    """CodeMirror as one script with the global ``CodeMirror``, and the licences of its packages."""
    modules = directory / "node_modules"
    esbuild = str(modules / ".bin" / "esbuild")
    options = ("--bundle", "--minify", "--format=iife", "--global-name=CodeMirror")
    more = ("--target=es2022", "--log-level=warning", f"--outfile={TARGET / BUNDLE}")
    subprocess.run([esbuild, "codemirror.js", *options, *more], cwd=directory, check=True)
    texts = {package: (modules / package / "LICENSE").read_text().strip() for package in BUNDLED}
    # Most have the same text.
    grouped: dict[str, list[str]] = {}
    for package, text in texts.items():
        grouped.setdefault(text, []).append(package)
    parts = [f"{', '.join(packages)}:\n\n{text}\n" for text, packages in grouped.items()]
    (TARGET / BUNDLE_LICENCE).write_text("\n".join(parts))


def digests(directory: Path) -> dict[str, str]:
    """SHA-256 of the files of a directory, by name, without the list itself."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.iterdir())
        if path.name != DIGESTS
    }


if __name__ == "__main__":
    main()
