"""Machines with systemd: the units, and the files that `mesh install` writes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from mesh.cli.commands import app
from mesh.cli.install import MachineRole, files_of
from mesh.errors import MeshError
from mesh.settings import Settings, load
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

UNITS = ROOT / "conf" / "systemd"
ROLES = ("manager", "worker", "receiver")
#: Of ten; most services of a distribution have nine.
EXPOSURE_MAX = 2.0


def mesh(*arguments: str | Path) -> str:
    said = CliRunner().invoke(app, list(map(str, arguments)))
    assert said.exit_code == 0, said.output + repr(said.exception)
    return said.output


def analyze(*arguments: str | Path) -> str:
    """Run systemd's checker of units, which needs no running systemd."""
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    said = subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert said.returncode == 0, said.stdout + said.stderr
    return said.stdout + said.stderr


def variables(unit: str) -> dict[str, str]:
    """Variables that a unit sets."""
    lines = re.findall(r"^Environment=(.*)$", unit, re.MULTILINE)
    return dict(pair.split("=", 1) for line in lines for pair in line.split())


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """The folder of `mesh nats-config` for three servers."""
    servers = [f"--server=n{n}=10.0.0.{n}" for n in (1, 2, 3)]
    mesh("nats-config", tmp_path / "nats", *servers)
    return tmp_path / "nats"


@pytest.fixture
def install(made: Path, tmp_path: Path) -> Callable[..., str]:
    """`mesh install` for a machine below a directory, with programs that exist."""
    # Units don't see one below the home of a user, where a checkout may be.
    program = tmp_path / "mesh"
    program.symlink_to(Path(sys.executable).with_name("mesh"))

    def run(role: str, *arguments: str) -> str:
        given = ["--role", role, "--program", str(program), "--root", str(tmp_path / "root")]
        return mesh("install", made, *given, *arguments)

    return run


def test_units_notify_have_a_user_of_their_own_and_read_keys_as_credentials() -> None:
    for role in ROLES:
        text = (UNITS / f"mesh-{role}.service").read_text("utf-8")
        lines = text.splitlines()
        for line in ("Type=notify", "NotifyAccess=main", "DynamicUser=yes", "KillMode=mixed"):
            assert line in lines
        assert f"LoadCredential=nats.nk:/etc/mesh/keys/{role}.nk" in lines
        has_connectors = "LoadCredential=connector.nk:/etc/mesh/keys/connector.nk" in lines
        assert has_connectors is (role != "manager")
        assert has_connectors is ("MESH_RECEIVER_NKEY_SEED_FILE=%d/connector.nk" in text)
        # Every credential that a variable names is loaded.
        named = set(re.findall(r"%d/([\w.]+)", text))
        assert named <= set(re.findall(r"^LoadCredential=([\w.]+):", text, re.MULTILINE))
        stop_s = re.search(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)
        assert stop_s is not None
        assert int(stop_s[1]) == (10 if role == "manager" else 30)


def test_variables_of_units_are_settings() -> None:
    for path in UNITS.glob("mesh-*.service"):
        found = {n: v for n, v in variables(path.read_text("utf-8")).items() if n[:5] == "MESH_"}
        assert found
        given = dict.fromkeys(found, "1")
        assert load(None, given) != Settings()
        assert all(
            getattr(getattr(load(None, given), section), name) == "1"
            for section, name in (n[5:].lower().split("_", 1) for n in found)
        )


@pytest.mark.parametrize("path", sorted(UNITS.iterdir()), ids=lambda path: path.name)
def test_units_leave_little_open(path: Path) -> None:
    shown = analyze("security", "--offline=true", "--no-pager", path)
    level = re.search(r"Overall exposure level for \S+: ([\d.]+)", shown)
    assert level is not None
    assert float(level[1]) <= EXPOSURE_MAX


def test_systemd_accepts_what_is_installed(install: Callable[..., str], tmp_path: Path) -> None:
    for role in ROLES:
        install(role)
    found = sorted((tmp_path / "root" / "etc" / "systemd" / "system").glob("*.service"))
    assert len(found) == 3
    assert analyze("verify", *found) == ""


def test_an_installation_is_repeated_and_keeps_what_is_the_operators(
    install: Callable[..., str], tmp_path: Path
) -> None:
    etc = tmp_path / "root" / "etc"
    assert "would write" in install("manager", "--dry-run")
    assert not etc.exists()
    first = install("manager", "--host", "api.example.org")
    assert first.count("wrote ") == 4
    assert first.splitlines()[-1] == f"  systemctl --root={tmp_path / 'root'} enable mesh-manager"
    settings = load(etc / "mesh" / "manager.yaml", {})
    assert settings.nats.url.count(",") == 2
    assert settings.channels.replicas == 3
    assert settings.manager.tls_cert == "/etc/mesh/api.crt"
    assert (etc / "mesh" / "keys").stat().st_mode & 0o777 == 0o700
    assert (etc / "mesh" / "keys" / "manager.nk").stat().st_mode & 0o777 == 0o600
    assert not (etc / "mesh" / "keys" / "connector.nk").exists()
    install("worker")
    assert (etc / "mesh" / "keys" / "connector.nk").stat().st_mode & 0o777 == 0o600
    again = install("manager")
    assert "wrote" not in again
    assert again.count("unchanged ") == 3

    (etc / "mesh" / "manager.yaml").write_text("manager: {min_workers: 2}\n")
    key = (etc / "mesh" / "keys" / "api.key").read_bytes()
    unit = etc / "systemd" / "system" / "mesh-manager.service"
    unit.write_text("of an earlier version")
    assert "which is yours" in install("manager")
    assert load(etc / "mesh" / "manager.yaml", {}).manager.min_workers == 2
    assert (etc / "mesh" / "keys" / "api.key").read_bytes() == key
    assert "Type=notify" in unit.read_text()


def test_a_receiver_has_no_spark_and_another_port_than_a_worker(
    install: Callable[..., str], tmp_path: Path
) -> None:
    install("worker")
    install("receiver")
    folder = tmp_path / "root" / "etc" / "mesh"
    worker, receiver = (load(folder / f"{r}.yaml", {}).worker for r in ("worker", "receiver"))
    assert (worker.spark, receiver.spark, receiver.takes_queries) == (True, False, False)
    assert worker.probe_port != receiver.probe_port


def test_servers_with_tls_get_a_certificate_of_the_client(
    made: Path, install: Callable[..., str], tmp_path: Path
) -> None:
    mesh("nats-config", made, "--tls-cert=/c.pem", "--tls-key=/k.pem", "--tls-ca=/etc/mesh/ca.pem")
    said = install("worker")
    assert "put the client's certificate and key into" in said
    etc = tmp_path / "root" / "etc"
    drop_in = etc / "systemd" / "system" / "mesh-worker.service.d" / "tls.conf"
    assert "LoadCredential=client.key:" in drop_in.read_text()
    assert load(etc / "mesh" / "worker.yaml", {}).nats.tls_ca == "/etc/mesh/ca.pem"
    for name in ("client.crt", "keys/client.key"):
        (etc / "mesh" / name).write_text("")
    assert "put the client's" not in install("worker")


def test_files_of_a_server_are_for_its_user_and_for_nobody_else(
    install: Callable[..., str], tmp_path: Path
) -> None:
    if os.getuid() or shutil.which("systemd-sysusers") is None:
        pytest.skip("it makes a system user below a directory: needs root and systemd-sysusers")
    install("nats", "--server", "n2")
    etc = tmp_path / "root" / "etc"
    assert (etc / "passwd").read_text().startswith("nats:")
    group = int((etc / "group").read_text().split(":")[2])
    for name in ("nats.conf", "accounts.conf"):
        found = (etc / "nats" / name).stat()
        assert (found.st_mode & 0o777, found.st_gid) == (0o640, group)
    assert 'server_name: "n2"' in (etc / "nats" / "nats.conf").read_text()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--role", "nats"], "MESH-U180"),
        (["--role", "nats", "--server", "n9"], "MESH-U180"),
        (["--role", "worker", "--program", "/root/mesh/bin/mesh"], "MESH-U181"),
    ],
)
def test_what_can_not_work_is_refused(
    made: Path, tmp_path: Path, arguments: list[str], code: str
) -> None:
    given = ["install", str(made), "--root", str(tmp_path / "root")]
    program = [] if "--program" in arguments else ["--program", "/opt/mesh/bin/mesh"]
    said = CliRunner().invoke(app, [*given, *program, *arguments])
    assert said.exit_code == 1
    assert code in said.output
    assert not (tmp_path / "root").exists()


def test_settings_that_are_no_file_of_nats_config_are_refused() -> None:
    with pytest.raises(MeshError, match="no file of mesh nats-config"):
        files_of(MachineRole.WORKER, "", {"worker.yaml": "a: b", "worker.nk": "S"}, "/m")
