"""First step of the development stack: keys, certificates, the API's users, a context.

    stack_init.py SECRETS HOST_FOLDER

SECRETS has a folder for each kind of service, a volume of its own, with what that service needs and
nothing else.  HOST_FOLDER is the folder of the host: by its ``context.json`` the command ``mesh``
finds the stack, and ``nats.env`` and ``curl.cfg`` are for other clients.  Both keep what they have:
a second run writes the same again.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import ssl
import sys
from pathlib import Path
from typing import Any

import certifi

from mesh.api import users
from mesh.client import context
from mesh.clock import SystemClock
from mesh.http.certificate import self_signed
from mesh.jetstream.accounts import NatsUser, accounts, new_key
from mesh.model.access import SETS, Permission
from mesh.model.nats_roles import ClientGrant, NatsRole, StreamGrant, inbox

#: The user of the containers' processes.
SERVICE_UID = 10001
#: Folders of services, each a volume; ``made`` is for this program alone.
FOLDERS = ("made", "nats", "manager", "worker", "receiver", "spark", "store", "metrics", "idp")
ROLES = (NatsRole.MANAGER, NatsRole.WORKER, NatsRole.RECEIVER)
#: Services whose connectors have a login of their own.
CONNECTING = (NatsRole.WORKER, NatsRole.RECEIVER)
_EVERY = (StreamGrant("*", "*"),)
#: Users with a password, for clients that know URLs only; ``dev`` is the one of the commands.
CLIENTS: dict[str, NatsRole | ClientGrant] = {
    "dev": NatsRole.OPERATOR,
    "publisher": ClientGrant(publish=_EVERY),
    "reader": ClientGrant(read=_EVERY, query=("*",)),
}
API_USERS = ("dev", "prometheus")
#: Names in the certificates.  Every name below ``localhost`` is this machine, so that a browser of
#: the host finds the provider under the name that it has in the stack's network.
HOSTS = {
    "api": ("localhost", "127.0.0.1", "::1", "m1", "m2"),
    "nats": ("localhost", "127.0.0.1", "::1", "n1", "n2", "n3"),
    "idp": ("idp.localhost", "localhost", "127.0.0.1"),
}
#: Users of the identity provider, with their role there.
PEOPLE = {"ada": "ADMIN", "eve": "SHOP"}
NATS_CONF = """
listen: 0.0.0.0:4222
http: 127.0.0.1:8222
tls {{ cert_file: /run/mesh/nats.crt, key_file: /run/mesh/nats.key, timeout: 5 }}
jetstream {{ store_dir: /data }}
cluster {{
  name: mesh-dev, listen: 0.0.0.0:6222, no_advertise: true
  authorization {{ user: route, password: "{route}" }}
  tls {{
    cert_file: /run/mesh/nats.crt, key_file: /run/mesh/nats.key, ca_file: /run/mesh/nats.crt
    verify: true, timeout: 5
  }}
  compression: s2_fast
  routes: [{routes}]
}}
include accounts.conf
"""
#: Settings of a service; all others are variables in dev.yaml.
SETTINGS = """
nats:
  url: tls://n1:4222,tls://n2:4222,tls://n3:4222
  nkey_seed_file: /run/mesh/{role}.nk
  inbox_prefix: {inbox}
  tls_ca: /run/mesh/nats.crt
channels:
  replicas: 3
functions:
  python: true
receiver:
  nkey_seed_file: /run/mesh/connector.nk
manager:
  host: 0.0.0.0
  tls_cert: /run/mesh/api.crt
  tls_key: /run/mesh/api.key
  users_file: /run/mesh/users
  min_workers: 2
"""

#: Of managers, with the profile ``idp``.
OIDC = """
oidc:
  issuer: {issuer}
  audience: mesh
  roles: "ADMIN=admin, SHOP=developer:Shop*"
  client_id: mesh-pages
  client_secret_file: /run/mesh/oidc.secret
  command_client_id: mesh-command
"""

#: Of the Spark cluster and of the worker that uses it: executors get the login of NATS encrypted.
SPARK_CONF = """
spark.authenticate true
spark.authenticate.secret {secret}
spark.network.crypto.enabled true
spark.executor.memory 600m
spark.executor.cores 2
"""


def main(volume: Path, host: Path) -> None:
    """Write all files."""
    for name in FOLDERS:
        (volume / name).mkdir(exist_ok=True)
    made = _made(volume / "made")
    _certificates(volume)
    routes = ", ".join(f'"nats://route:{made["route"]}@{one}:6222"' for one in ("n1", "n2", "n3"))
    _private(volume / "nats" / "nats.conf", NATS_CONF.format(route=made["route"], routes=routes))
    _private(volume / "nats" / "accounts.conf", accounts(_nats_users(made)))
    for role in ROLES:
        _private(volume / role / f"{role}.nk", made["seeds"][role][0])
        if role in CONNECTING:
            _private(volume / role / "connector.nk", made["seeds"][NatsRole.CONNECTOR][0])
        text = SETTINGS.format(role=role, inbox=inbox(role))
        _private(volume / role / f"{role}.yaml", text)
    _identity_provider(volume, made["idp"])
    for name in ("worker", "spark"):
        _private(volume / name / "spark.conf", SPARK_CONF.format(secret=made["spark"]))
    # Managers that run read this file: a second start leaves it alone.
    users_file = volume / "manager" / "users"
    if not users_file.exists():
        monitor = SETS["view"] | {Permission.MONITOR}
        for name in API_USERS:
            users.add(users_file, name, made["api"][name], None if name == "dev" else monitor)
    _private(volume / "metrics" / "prometheus.password", made["api"]["prometheus"])
    _private(volume / "store" / "postgres.password", made["store"]["postgres"])
    for folder in (volume / name for name in FOLDERS):
        # Prometheus and PostgreSQL have users of their own.
        mode = 0o444 if folder.name in ("store", "metrics") else 0o400
        for path in (folder, *folder.iterdir()):
            os.chown(path, SERVICE_UID, SERVICE_UID)
            path.chmod(0o755 if path.is_dir() else mode)
    _write_host(volume, host, made)


def _issuer() -> str:
    return f"https://idp.localhost:{os.environ.get('MESH_IDP_PORT', '9600')}"


def _identity_provider(volume: Path, made: dict[str, str]) -> None:
    """Settings and users of the provider; the managers' settings for it, with its profile."""
    oauth = {
        "issuer": _issuer(),
        "audience": "mesh",
        "clients": [
            {"client_id": "mesh-pages", "client_secret": made["client"]},
            {"client_id": "mesh-command", "token_endpoint_auth_method": "none"},
        ],
    }
    # Without this secret everyone who reaches the provider may change its users.
    server = {"management_secret": made["management"]}
    people = {
        name: {"password": made[name], "email": f"{name}@example.org", "roles": [role]}
        for name, role in PEOPLE.items()
    }
    files = {
        "settings.yaml": {"config_version": 1, "server": server, "oauth": oauth},
        "users.yaml": {"config_version": 1, "users": people},
    }
    for name, values in files.items():
        # JSON is YAML.
        _private(volume / "idp" / name, json.dumps(values))
    manager = volume / "manager"
    _private(manager / "oidc.secret", made["client"])
    authorities = Path(ssl.get_default_verify_paths().cafile or certifi.where()).read_text()
    authorities += (volume / "made" / "idp.crt").read_text()
    _private(manager / "authorities.crt", authorities)
    if "idp" in os.environ.get("MESH_STACK_PROFILES", "").split(","):
        with (manager / "manager.yaml").open("a") as file:
            file.write(OIDC.format(issuer=_issuer()))


def _certificates(volume: Path) -> None:
    """A certificate of the API, of the servers and of the provider; each is its own authority."""
    made = volume / "made"
    for name, hosts in HOSTS.items():
        if not (made / f"{name}.crt").exists():
            for path, kind in zip(
                self_signed(made / "new", SystemClock().wall_ms(), hosts),
                ("crt", "key"),
                strict=True,
            ):
                path.rename(made / f"{name}.{kind}")
            (made / "new").rmdir()
    needed = {
        "nats": ("nats.crt", "nats.key"),
        "manager": ("nats.crt", "api.crt", "api.key"),
        "worker": ("nats.crt",),
        "receiver": ("nats.crt",),
        "spark": ("nats.crt",),
        "metrics": ("api.crt",),
        "idp": ("idp.crt", "idp.key"),
    }
    for folder, files in needed.items():
        for name in files:
            target = volume / folder / name
            target.unlink(missing_ok=True)
            shutil.copyfile(made / name, target)


def _nats_users(made: dict[str, Any]) -> list[NatsUser]:
    roles = [NatsUser(name, NatsRole(name), (key,)) for name, (_, key) in made["seeds"].items()]
    return [*roles, *(NatsUser(n, of, password=made["nats"][n]) for n, of in CLIENTS.items())]


def _write_host(volume: Path, host: Path, made: dict[str, Any]) -> None:
    shown = Path(os.environ["MESH_STACK_FOLDER"])
    ports = (os.environ["MESH_NATS_PORTS"]).split(",")
    api = os.environ["MESH_API_PORT"]
    for name in ("api.crt", "nats.crt", "idp.crt"):
        shutil.copyfile(volume / "made" / name, host / name)
    found = context.ClientContext(
        server=f"https://localhost:{api}",
        user="dev",
        password=made["api"]["dev"],
        ca=str(shown / "api.crt"),
        nats=",".join(f"nats://127.0.0.1:{port}" for port in ports),
        nats_user="dev",
        nats_password=made["nats"]["dev"],
        nats_tls_ca=str(shown / "nats.crt"),
        nats_inbox_prefix=inbox(NatsRole.OPERATOR),
    )
    context.write(found, host / "context.json")
    urls = {
        name: f"tls://{user}:{made['nats'][user]}@127.0.0.1:{ports[0]}"
        for name, user in (("NATS_URL", "publisher"), ("NATS_READER_URL", "reader"))
    }
    lines = [f"{name}={url}" for name, url in urls.items()]
    _private(host / "nats.env", "\n".join([*lines, f"NATS_CA={shown / 'nats.crt'}"]) + "\n")
    lines = [f"{name.upper()}_PASSWORD={made['idp'][name]}" for name in PEOPLE]
    lines += [f"IDP_URL={_issuer()}", f"IDP_CA={shown / 'idp.crt'}"]
    _private(host / "idp.env", "\n".join(lines) + "\n")
    curl = f'user = "dev:{made["api"]["dev"]}"\ncacert = "{shown / "api.crt"}"\n'
    _private(host / "curl.cfg", curl)
    uid, gid = (int(os.environ[name]) for name in ("MESH_HOST_UID", "MESH_HOST_GID"))
    for path in (host, *host.iterdir()):
        os.chown(path, uid, gid)


def _made(folder: Path) -> dict[str, Any]:
    """Passwords and keys, drawn at the first start."""
    path = folder / "keys.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    made: dict[str, Any] = {
        "route": secrets.token_urlsafe(24),
        "seeds": {role: new_key() for role in (*ROLES, NatsRole.CONNECTOR)},
        "nats": {name: secrets.token_urlsafe(24) for name in CLIENTS},
        "api": {name: secrets.token_urlsafe(24) for name in API_USERS},
        "store": {"postgres": secrets.token_urlsafe(24)},
        "spark": secrets.token_urlsafe(24),
        "idp": {name: secrets.token_urlsafe(24) for name in ("client", "management", *PEOPLE)},
    }
    # What an earlier version has made stays.
    made |= found | {"seeds": made["seeds"] | found.get("seeds", {})}
    _private(path, json.dumps(made))
    return made


def _private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
