"""Write the documents that are made from the code."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.docgen import documents


def main() -> None:
    """Write the documents that differ from the present files."""
    root = Path()
    for path, text in documents(root).items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            sys.stdout.write(f"{path} written\n")


main()
