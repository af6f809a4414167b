"""Health check of a container: exit code 0 if the URL answers 200."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request


def main(url: str) -> int:
    """Ask the probe; a manager's certificate is not checked, as the address is the container's."""
    context = None
    if url.startswith("https:"):
        import ssl

        context = ssl._create_unverified_context()
    try:
        with urllib.request.urlopen(url, timeout=3, context=context) as answer:
            return 0 if answer.status == 200 else 1
    except urllib.error.HTTPError as error:
        sys.stdout.write(error.read(1000).decode(errors="replace"))
    except OSError as error:
        sys.stdout.write(f"{error}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
