"""A manager with its own key in NATS and without users: the logged token makes the first one."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import httpx
import pytest
from typer.testing import CliRunner

from mesh.cli.commands import app
from mesh.jetstream import server
from mesh.processes.bounded_process import die_with_parent

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.nats


@pytest.mark.slow
def test_the_token_of_the_log_makes_the_first_user(tmp_path: Path) -> None:
    folder = tmp_path / "nats"
    assert CliRunner().invoke(app, ["nats-config", str(folder)]).exit_code == 0
    nats = server.start(tmp_path / "n", arguments=["-c", str(folder / "accounts.conf")])
    environment = {name: v for name, v in os.environ.items() if not name.startswith("MESH_")}
    environment |= {
        "MESH_NATS_URL": nats.url,
        "MESH_NATS_NKEY_SEED_FILE": str(folder / "keys" / "manager.nk"),
        "MESH_NATS_INBOX_PREFIX": "_INBOX.manager",
        "MESH_MANAGER_PORT": "0",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "mesh.cli", "manager", "--id", "m1"],
        env=environment, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
        preexec_fn=die_with_parent(),
    )  # fmt: skip
    try:
        assert process.stderr is not None
        said = token = url = ""
        while not (token and url):
            line = process.stderr.readline()
            assert line, said
            said += line
            token = token or "".join(re.findall(r"token=(mesh_\S+)", line))
            url = url or "".join(re.findall(r"url=(http://\S+)", line))
        setup = {"Authorization": f"Bearer {token}"}
        ada = {"name": "ada", "password": "twelve letters", "may": ["admin"]}
        with httpx.Client(base_url=url, timeout=60) as client:
            made = client.post("/users", json=ada, headers=setup)
            assert made.status_code == 201, made.text
            assert client.get("/users", auth=("ada", "twelve letters")).json()[0]["name"] == "ada"
            assert client.post("/users", json=ada, headers=setup).status_code == 401
            entries: list[dict[str, object]] = []
            while not entries:
                answer = client.get("/audit", auth=("ada", "twelve letters"))
                entries = answer.json() if answer.is_success else []
            assert (entries[0]["user"], entries[0]["how"]) == ("setup", "setup")
        process.send_signal(signal.SIGTERM)
        # Reads to the end, so that the process is not held up by a full pipe.
        rest = process.stderr.read()
        assert process.wait(30) == 0, rest
        assert "Traceback" not in rest
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()
        nats.stop()
    assert "Violation" not in nats.log.read_text()
