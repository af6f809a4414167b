"""The mesh command.

Nothing heavy is imported here: ``mesh --help`` and the commands that only talk to a manager must
answer at once.
"""

from __future__ import annotations


def main() -> None:
    """Run the command line."""
    from mesh.cli.commands import app

    app(prog_name="mesh")
