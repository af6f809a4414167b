"""Files and hosts of a node that no app may use, whatever its connectors and stores name."""

from __future__ import annotations

import socket
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final

import pytest

from mesh.connect import access as node_access
from mesh.connect.access import access_of, check_egress, check_url, path_of
from mesh.connect.contract import Context, UnavailableError
from mesh.errors import MeshError
from mesh.files import scratch
from mesh.receiver.types.kafka import settings as kafka_settings
from mesh.settings import ReceiverSettings, SecretSettings, Settings, StateSettings
from tests.support.together import together

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.environment import Variables


NEAR: Final = (
    "127.0.0.1", "127.1", "127.8.9.1", "0x7f000001", "2130706433", "0177.0.0.1", "localhost",
    "LOCALHOST.", "x.localhost", "0.0.0.0", "0", "::1", "::", "::ffff:127.0.0.1", "fe80::1",
    "fe80::1%lo", "169.254.169.254", "169.254.0.1", "64:ff9b::7f00:1", "2002:7f00:1::",
    "fd00:ec2::254",
)  # fmt: skip
#: Libraries read these as several hosts, or as the path of a socket.
NO_HOSTS: Final = ("", "127.0.0.1,x", "/run/postgresql", "%2Frun", "a b", "x hostaddr=1")


def open_to(egress: str) -> Any:
    return access_of(Settings(receiver=ReceiverSettings(egress=egress)))


@together("host", [*NEAR, *NO_HOSTS])
@together("egress", ["", "*:1-65535", "*:80,*.localhost:80"])
def test_a_host_that_is_this_machine_has_to_be_named(host: str, egress: str) -> None:
    with pytest.raises(MeshError, match="MESH-C132"):
        check_egress(open_to(egress), host, 80)


def test_a_host_that_is_named_is_open() -> None:
    access = open_to("127.0.0.1:80, localhost:8000-8010, [::1]:80")
    check_url(access, "http://127.0.0.1/x", 80)
    check_url(access, "http://localhost:8005/x", 80)
    check_url(access, "http://[::1]/x", 80)
    for url in ("http://127.0.0.1:81", "http://127.0.0.2", "http://192.0.2.1"):
        with pytest.raises(MeshError, match="MESH-C132"):
            check_url(access, url, 80)


def test_other_hosts_are_open_by_default() -> None:
    for host in ("192.0.2.1", "2001:db8::1", "10.0.0.1"):
        check_egress(open_to(""), host, 80)


def test_a_name_counts_by_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {
        "inside.example": "127.0.0.1", "meta.example": "169.254.169.254", "x.example": "10.1.1.1",
    }  # fmt: skip
    real = socket.getaddrinfo

    def look_up(host: str, port: None, **more: Any) -> Any:
        if host == "none.example" and not more["flags"]:
            raise socket.gaierror("no such name")
        return real(host if more["flags"] else known.get(host, host), port, **more)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    node_access.LOOKUPS.clear()
    for name in ("inside.example", "META.example."):
        for egress in ("", "*.example:80,*.example.:80"):
            with pytest.raises(MeshError, match="MESH-C132"):
                check_egress(open_to(egress), name, 80)
    for name in ("x.example", "none.example"):
        check_egress(open_to(""), name, 80)
    # The operator has named it.
    check_egress(open_to("inside.example:80"), "inside.example", 80)


def test_a_slow_look_up_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from threading import Event

    go_on = Event()
    real = node_access.resolve

    def look_up(name: str, flags: int = 0) -> Any:
        if flags:
            return real(name, flags)
        go_on.wait(20)
        return real("10.0.0.1", socket.AI_NUMERICHOST)

    monkeypatch.setattr(node_access, "resolve", look_up)
    monkeypatch.setattr(node_access, "_WAIT_S", 0.01)
    node_access.LOOKUPS.clear()
    with pytest.raises(UnavailableError, match="looked up"):
        check_egress(open_to(""), "slow.example", 80)
    go_on.set()
    node_access.LOOKUPS["slow.example"][1].result(20)
    check_egress(open_to(""), "slow.example", 80)


def test_each_setting_that_names_a_file_of_the_mesh_says_so() -> None:
    """A new one is closed to apps, or is listed here with the reason."""
    open_files = {
        # Of apps, or of the operator for apps.
        "receiver.file_roots", "manager.history_dir",
        # Paths on other machines, or programs.
        "spark.archives", "spark.python",
    }  # fmt: skip
    told, found = set(), set()
    for section in fields(Settings):
        for one in fields(getattr(Settings(), section.name)):
            name = f"{section.name}.{one.name}"
            text = str(one.metadata["help"]).lower()
            words = ("file", "path", "folder", "director")
            is_text = isinstance(one.default, str)
            if is_text and (any(w in text for w in words) or one.name.endswith(("_key", "_cert"))):
                found.add(name)
            if one.metadata["is_mesh_file"]:
                told.add(name)
    other = {"manager.apps_variables", "manager.history_databases", "receiver.egress"}
    assert told >= {"nats.nkey_seed_file", "secrets.key_file", "manager.users_file"}
    assert found - told - other == open_files & found
    assert told <= found


@pytest.mark.parametrize(
    "name", ["key", "refs", "users", "dev/context.json", "dev/nats/worker.nk", "states/x"]
)
def test_the_files_of_the_mesh_are_closed_to_apps(tmp_path: Path, name: str) -> None:
    base = Settings()
    settings = replace(
        base,
        receiver=ReceiverSettings(
            file_roots=str(tmp_path), files_closed=f"{tmp_path}/dev", refs_file=f"{tmp_path}/refs"
        ),
        secrets=SecretSettings(key_file=f"{tmp_path}/key"),
        manager=replace(base.manager, users_file=f"{tmp_path}/users"),
        state=StateSettings(store=f"file://{tmp_path}/states"),
    )
    access = access_of(settings)
    (tmp_path / "link").symlink_to(tmp_path / name)
    (tmp_path / "apps").mkdir()
    for uri in (f"{tmp_path}/{name}", f"{tmp_path}/apps/../{name}", f"{tmp_path}/link"):
        for form in (uri, f"file://{uri}", f"file:{uri}"):
            with pytest.raises(MeshError, match="MESH-C132") as refused:
                path_of(access, form)
            assert "mesh's own" in str(refused.value.detail)
    assert path_of(access, f"{tmp_path}/devices") == f"{tmp_path}/devices"


def test_directories_of_processes_are_closed_to_apps(tmp_path: Path) -> None:
    access = access_of(Settings(receiver=ReceiverSettings(file_roots=str(tmp_path))))
    with scratch.owned(tmp_path, "mesh-x-") as directory:
        for path in (directory, directory / "settings.json", directory / "a" / "b"):
            with pytest.raises(MeshError, match="MESH-C132"):
                path_of(access, str(path))
    # Nobody closes a directory by such a file.
    with pytest.raises(MeshError, match="MESH-C132"):
        path_of(access, str(tmp_path / ".mesh-owner"))
    assert path_of(access, str(tmp_path / "x")) == str(tmp_path / "x")


def test_the_user_s_own_addresses_and_passwords_are_closed(
    tmp_path: Path, environment: Variables
) -> None:
    environment["XDG_CONFIG_HOME"] = str(tmp_path)
    environment["CREDENTIALS_DIRECTORY"] = str(tmp_path / "credentials")
    found = node_access.mesh_files(Settings())
    assert {f"{tmp_path}/mesh", f"{tmp_path}/credentials"} <= set(found)


@pytest.mark.parametrize(
    "given",
    [
        ("sasl.kerberos.keytab", "/etc/krb5.keytab"),
        ("ssl.ca.location", "/etc/passwd"),
        ("sasl.oauthbearer.assertion.private.key.file", "/etc/passwd"),
        ("sasl.oauthbearer.token.endpoint.url", "http://169.254.169.254/token"),
    ],
)
def test_settings_of_a_client_of_kafka_name_what_is_open(given: tuple[str, str]) -> None:
    options = {"bootstrap.servers": "192.0.2.1:9092", "optional.configuration": [given]}
    with pytest.raises(MeshError, match="MESH-C132"):
        kafka_settings(Context("a", "s", options, open_to("")), {})
