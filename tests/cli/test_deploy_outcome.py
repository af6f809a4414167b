"""Output of a deploy that is done."""

from __future__ import annotations

from mesh.cli.deploy_outcome import describe_deploy


def test_a_deploy_shows_them() -> None:
    done = {
        "app": "A", "status": None, "seconds": 0.0, "running": False,
        "warnings": ["source http is not opened"],
    }  # fmt: skip
    assert describe_deploy(done).splitlines() == [
        'app "A" is deployed', "  warning: source http is not opened",
    ]  # fmt: skip
