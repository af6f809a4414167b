"""The mesh command.

Nothing heavy is imported here: ``mesh --help`` and the commands that only talk to a manager must
answer at once.
"""

from __future__ import annotations

import atexit
import gc


def main() -> None:
    """Run the command line."""
    from mesh.cli.commands import app

    # As the last: a search for garbage among what ends anyway is a seventh of `mesh test`'s time.
    atexit.register(gc.freeze)
    app(prog_name="mesh")
