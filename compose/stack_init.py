"""First step of the development stack: passwords, certificates, the API's users, a context.

    stack_init.py SECRETS HOST_FOLDER

SECRETS is the volume that the services read.  HOST_FOLDER is the folder of the host: by its
``context.json`` the command ``mesh`` finds the stack, and ``nats.env`` and ``curl.cfg`` are for
other clients.  Both keep what they have: a second run writes the same again.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sys
from pathlib import Path

from mesh.api import users
from mesh.api.tls import self_signed
from mesh.cli import context
from mesh.clock import SystemClock
from mesh.model.access import SETS, Permission

#: The user of the containers' processes.
SERVICE_UID = 10001
NATS_USERS = ("manager", "worker", "dev")
API_USERS = ("dev", "prometheus")
HOSTS = ("localhost", "127.0.0.1", "::1", "m1", "m2")
NATS_HOSTS = ("localhost", "127.0.0.1", "::1", "n1", "n2", "n3")
NATS_CONF = """
listen: 0.0.0.0:4222
http: 0.0.0.0:8222
tls {{ cert_file: /run/mesh/nats.crt, key_file: /run/mesh/nats.key, timeout: 5 }}
jetstream {{ store_dir: /data }}
cluster {{
  name: mesh-dev, listen: 0.0.0.0:6222, no_advertise: true
  routes: [nats://n1:6222, nats://n2:6222, nats://n3:6222]
}}
accounts {{
  MESH {{
    jetstream: enabled
    users: [
      {{ user: manager, password: "{manager}" }}
      {{ user: worker, password: "{worker}", permissions: {{ publish: {{ deny: [
          "$KV.mesh_apps.>", "$KV.mesh_backups.>", "$KV.mesh_users.>", "$KV.mesh_secrets.>",
          "$KV.mesh_sessions.>", "$JS.API.STREAM.*.KV_mesh_sessions",
          "$JS.API.STREAM.MSG.GET.KV_mesh_sessions", "$JS.API.DIRECT.GET.KV_mesh_sessions.>",
          "$JS.API.CONSUMER.*.KV_mesh_sessions.>",
          "mesh._audit.>", "$KV.mesh_control.lease",
          "$KV.mesh_control.assignment.>", "$KV.mesh_control.form.>",
          "$KV.mesh_control.standby.>", "$KV.mesh_control.node.manager.>",
          "$JS.API.STREAM.DELETE.KV_mesh_apps", "$JS.API.STREAM.PURGE.KV_mesh_apps",
          "$JS.API.STREAM.DELETE.KV_mesh_control", "$JS.API.STREAM.PURGE.KV_mesh_control",
          "$JS.API.STREAM.*.KV_mesh_users", "$JS.API.STREAM.*.KV_mesh_secrets",
          "$JS.API.STREAM.MSG.GET.KV_mesh_users", "$JS.API.STREAM.MSG.GET.KV_mesh_secrets",
          "$JS.API.DIRECT.GET.KV_mesh_users.>", "$JS.API.DIRECT.GET.KV_mesh_secrets.>",
          "$JS.API.CONSUMER.*.KV_mesh_users.>", "$JS.API.CONSUMER.*.KV_mesh_secrets.>"
      ] }} }} }}
      # The developer on the host: may publish and read everything.
      {{ user: dev, password: "{dev}" }}
    ]
  }}
}}
"""
#: Settings of a service; all others are variables in dev.yaml.
SETTINGS = """
nats:
  url: nats://n1:4222,nats://n2:4222,nats://n3:4222
  user: {}
  password: "{}"
  tls_ca: /run/mesh/nats.crt
channels:
  replicas: 3
functions:
  python: true
manager:
  host: 0.0.0.0
  tls_cert: /run/mesh/api.crt
  tls_key: /run/mesh/api.key
  users_file: /run/mesh/users
  min_workers: 2
"""


def main(volume: Path, host: Path) -> None:
    """Write all files."""
    passwords = _passwords(volume / "passwords.json")
    _private(volume / "nats.conf", NATS_CONF.format(**passwords["nats"]))
    for name in ("manager", "worker"):
        _private(volume / f"{name}.yaml", SETTINGS.format(name, passwords["nats"][name]))
    for name, hosts in (("api", HOSTS), ("nats", NATS_HOSTS)):
        if not (volume / f"{name}.crt").exists():
            made = self_signed(volume / "made", SystemClock().wall_ms(), hosts)
            for path, kind in zip(made, ("crt", "key"), strict=True):
                path.rename(volume / f"{name}.{kind}")
    if (volume / "made").exists():
        (volume / "made").rmdir()
    # Managers that run read this file: a second start leaves it alone.
    if not (volume / "users").exists():
        monitor = SETS["view"] | {Permission.MONITOR}
        for name in API_USERS:
            may = None if name == "dev" else monitor
            users.add(volume / "users", name, passwords["api"][name], may)
    _private(volume / "prometheus.password", passwords["api"]["prometheus"])
    _private(volume / "postgres.password", passwords["store"]["postgres"])
    for path in (volume, *volume.iterdir()):
        os.chown(path, SERVICE_UID, SERVICE_UID)
        path.chmod(0o755 if path.is_dir() else 0o400)
    # Prometheus and PostgreSQL have users of their own.
    for name in ("prometheus.password", "postgres.password", "api.crt"):
        (volume / name).chmod(0o444)
    _write_host(volume, host, passwords)


def _write_host(volume: Path, host: Path, passwords: dict[str, dict[str, str]]) -> None:
    shown = Path(os.environ["MESH_STACK_FOLDER"])
    ports = (os.environ["MESH_NATS_PORTS"]).split(",")
    api = os.environ["MESH_API_PORT"]
    for name in ("api.crt", "nats.crt"):
        shutil.copyfile(volume / name, host / name)
    found = context.Context(
        server=f"https://localhost:{api}",
        user="dev",
        password=passwords["api"]["dev"],
        ca=str(shown / "api.crt"),
        nats=",".join(f"nats://127.0.0.1:{port}" for port in ports),
        nats_user="dev",
        nats_password=passwords["nats"]["dev"],
        nats_tls_ca=str(shown / "nats.crt"),
    )
    context.write(found, host / "context.json")
    url = f"tls://dev:{passwords['nats']['dev']}@127.0.0.1:{ports[0]}"
    _private(host / "nats.env", f"NATS_URL={url}\nNATS_CA={shown / 'nats.crt'}\n")
    curl = f'user = "dev:{passwords["api"]["dev"]}"\ncacert = "{shown / "api.crt"}"\n'
    _private(host / "curl.cfg", curl)
    uid, gid = (int(os.environ[name]) for name in ("MESH_HOST_UID", "MESH_HOST_GID"))
    for path in (host, *host.iterdir()):
        os.chown(path, uid, gid)


def _passwords(path: Path) -> dict[str, dict[str, str]]:
    if path.exists():
        found: dict[str, dict[str, str]] = json.loads(path.read_text())
        return found
    made = {
        "nats": {name: secrets.token_urlsafe(24) for name in NATS_USERS},
        "api": {name: secrets.token_urlsafe(24) for name in API_USERS},
        "store": {"postgres": secrets.token_urlsafe(24)},
    }
    _private(path, json.dumps(made))
    return made


def _private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
