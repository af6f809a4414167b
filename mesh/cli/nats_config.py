"""``mesh nats-config``: the configuration of a cluster's NATS servers, with least privilege.

The folder holds what was made, so that another call adds to it: ``roles.json`` has the users with
their public keys and grants, ``keys`` the seeds, each for its owner alone.
"""

from __future__ import annotations

import secrets
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from mesh import mesh_name
from mesh.errors import MeshError
from mesh.files.private_files import write_private

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mesh.jetstream.accounts import ClusterServer, NatsUser, TlsFiles
    from mesh.model.nats_roles import ClientGrant, StreamGrant
    from mesh.model.values import JsonObject

_PANEL = "Parts of a cluster"
_STATE = "roles.json"


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("nats-config", rich_help_panel=_PANEL)(nats_config)


def _many(flag: str, metavar: str, help: str) -> object:
    return typer.Option(flag, metavar=metavar, help=help)


def nats_config(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the files.")],
    server: Annotated[
        list[str] | None, _many("--server", "NAME=HOST", "A NATS server; once for each.")
    ] = None,
    publisher: Annotated[
        list[str] | None,
        _many("--publisher", "NAME=APP.STREAM,..", "A client that publishes to streams."),
    ] = None,
    reader: Annotated[
        list[str] | None, _many("--reader", "NAME=APP.STREAM,..", "A client that reads streams.")
    ] = None,
    asker: Annotated[
        list[str] | None,
        _many("--asker", "NAME=APP,..", "A client that asks tables and windows of apps."),
    ] = None,
    remove: Annotated[
        list[str] | None, _many("--remove", "NAME", "Remove a client and its keys.")
    ] = None,
    rotate: Annotated[
        list[str] | None,
        _many("--rotate", "NAME", "Make a new key for a role or a client; the old one holds, too."),
    ] = None,
    retire: Annotated[
        list[str] | None, _many("--retire", "NAME", "Keep the newest key only.")
    ] = None,
    tls_cert: Annotated[
        str, typer.Option(metavar="FILE", help="Certificate of each server, a path there.")
    ] = "",
    tls_key: Annotated[str, typer.Option(metavar="FILE", help="Its key.")] = "",
    tls_ca: Annotated[
        str, typer.Option(metavar="FILE", help="Authority of servers and of who connects.")
    ] = "",
) -> None:
    """Write the configuration of NATS servers: accounts, users with nkeys, a file for each server.

    A second call with the same folder keeps keys and clients, and adds to them. Servers take
    another accounts.conf without a restart: `nats-server --signal reload`.

    Example: `mesh nats-config conf/nats --server n1=10.0.0.1 --publisher till=Shop.Orders`
    """
    from mesh.jetstream import accounts

    tls_files = (tls_cert, tls_key, tls_ca)
    if any(tls_files) and not all(tls_files):
        raise MeshError("MESH-U170", "--tls-cert, --tls-key and --tls-ca go together")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    users, servers, route_password, tls = _read(folder)
    for name in remove or ():
        _require_user(users, name)
        del users[name]
        _seed_path(folder, name).unlink(missing_ok=True)
    for kind, texts in (("publish", publisher), ("read", reader), ("query", asker)):
        for text in texts or ():
            _grant(users, kind, text)
    for name, host in map(_pair, server or ()):
        servers[name] = accounts.ClusterServer(name, host)
    new_names = [name for name, user in users.items() if not user.keys]
    for name in dict.fromkeys((*new_names, *(rotate or ()))):
        _add_key(folder, users, name)
    for name in retire or ():
        users[name] = replace(_require_user(users, name), keys=_require_user(users, name).keys[-1:])
    tls = accounts.TlsFiles(*tls_files) if tls_cert else tls
    _write_all(folder, users, servers, route_password, tls)
    for name in sorted(set(new_names) | set(rotate or ())):
        typer.echo(f"new key of {name} in {_seed_path(folder, name)}")
    typer.echo(f"{len(users)} users and {len(servers)} servers in {folder}")


def _read(
    folder: Path,
) -> tuple[dict[str, NatsUser], dict[str, ClusterServer], str, TlsFiles | None]:
    """Users and servers by name, the password of routes, and TLS; as new without the file."""
    from mesh.jetstream.accounts import ClusterServer, NatsUser, TlsFiles
    from mesh.model.nats_roles import NatsRole

    roles = {str(role): NatsUser(str(role), role) for role in NatsRole}
    path = folder / _STATE
    if not path.exists():
        del roles[NatsRole.OPERATOR]
        return roles, {}, secrets.token_urlsafe(24), None
    try:
        values = orjson.loads(path.read_bytes())
        users = {name: _user(name, one) for name, one in values["users"].items()}
        # Of a folder that an earlier version has made.
        users.setdefault(
            str(NatsRole.CONNECTOR), NatsUser(str(NatsRole.CONNECTOR), NatsRole.CONNECTOR)
        )
        servers = {name: ClusterServer(**one) for name, one in values["servers"].items()}
        tls = TlsFiles(**values["tls"]) if values["tls"] else None
        return users, servers, str(values["route_password"]), tls
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise MeshError(
            "MESH-U171",
            f'file "{path}" can\'t be used',
            detail=f"{type(error).__name__}: {error}.",
            hint="Choose another folder, or put the file back.",
        ) from error


def _user(name: str, values: JsonObject) -> NatsUser:
    from mesh.jetstream.accounts import NatsUser
    from mesh.model.nats_roles import ClientGrant, NatsRole

    of: NatsRole | ClientGrant
    if "role" in values:
        of = NatsRole(values["role"])
    else:
        of = ClientGrant(
            tuple(_grant_of(text) for text in values["publish"]),
            tuple(_grant_of(text) for text in values["read"]),
            tuple(values["query"]),
        )
    return NatsUser(name, of, tuple(values["keys"]), sinks=tuple(values.get("sinks", ())))


def _values(user: NatsUser) -> JsonObject:
    from mesh.model.nats_roles import ClientGrant

    values: JsonObject = {"keys": user.keys}
    if isinstance(user.of, ClientGrant):
        values["publish"] = [f"{one.app}.{one.stream}" for one in user.of.publish]
        values["read"] = [f"{one.app}.{one.stream}" for one in user.of.read]
        values["query"] = user.of.query
    else:
        values |= {"role": user.of, "sinks": user.sinks}
    return values


def _pair(text: str) -> tuple[str, str]:
    name, equals, rest = text.partition("=")
    if not (name and equals and rest):
        raise MeshError("MESH-U170", f'"{text}" is not NAME=VALUE')
    return name, rest


def _grant(users: dict[str, NatsUser], kind: str, text: str) -> None:
    """Give a client, which is made if it is not there, more of a kind."""
    from mesh.jetstream.accounts import NatsUser, check_name
    from mesh.model import names
    from mesh.model.nats_roles import ClientGrant

    name, rest = _pair(text)
    user = users.get(check_name(name), NatsUser(name, ClientGrant()))
    assert isinstance(user.of, ClientGrant)
    added = []
    for one in rest.split(","):
        if kind == "query" and one != "*" and not names.is_app_name(one):
            raise MeshError("MESH-U170", f'"{one}" is no name of an app')
        added.append(one if kind == "query" else _grant_of(one))
    client: ClientGrant = replace(
        user.of, **{kind: tuple(dict.fromkeys((*getattr(user.of, kind), *added)))}
    )
    users[name] = replace(user, of=client)


def _grant_of(text: str) -> StreamGrant:
    from mesh.model import names
    from mesh.model.nats_roles import StreamGrant

    app, _, stream = text.partition(".")
    fits = (app == "*" or names.is_app_name(app)) and (stream == "*" or stream.isidentifier())
    if not fits:
        raise MeshError(
            "MESH-U170",
            f'"{text}" is no stream of an app',
            hint="Streams are named APP.STREAM; * stands for any.",
        )
    return StreamGrant(app, stream)


def _require_user(users: dict[str, NatsUser], name: str) -> NatsUser:
    if name not in users:
        raise MeshError(
            "MESH-U170", f'there is no user "{name}"', detail=f"There are {', '.join(users)}."
        )
    return users[name]


def _seed_path(folder: Path, name: str) -> Path:
    return folder / "keys" / f"{name}.nk"


def _add_key(folder: Path, users: dict[str, NatsUser], name: str) -> None:
    from mesh.jetstream.accounts import new_key

    user = _require_user(users, name)
    seed, public = new_key()
    (folder / "keys").mkdir(exist_ok=True, mode=0o700)
    write_private(_seed_path(folder, name), seed)
    # At most two: a third one would hide which key is in use.
    users[name] = replace(user, keys=(*user.keys[-1:], public))


def _write_all(
    folder: Path,
    users: dict[str, NatsUser],
    servers: dict[str, ClusterServer],
    route_password: str,
    tls: TlsFiles | None,
) -> None:
    from mesh.jetstream import accounts

    values = {
        "users": {name: _values(user) for name, user in users.items()},
        "servers": {name: asdict(one) for name, one in servers.items()},
        "route_password": route_password,
        "tls": asdict(tls) if tls else None,
    }
    write_private(folder / "accounts.conf", accounts.accounts(users.values()))
    for name, one in servers.items():
        path = folder / f"{name}.conf"
        text = accounts.server_text(one, servers.values(), route_password, tls)
        write_private(path, text)
    for name, user in users.items():
        write_private(folder / f"{name}.yaml", _settings(folder, user, servers.values(), tls))
    # The last one: a call that failed before is repeated as a whole.
    write_private(folder / _STATE, orjson.dumps(values, option=orjson.OPT_INDENT_2).decode())


def _settings(
    folder: Path, user: NatsUser, servers: Iterable[ClusterServer], tls: TlsFiles | None
) -> str:
    """The settings of a role's or a client's process: the name of the mesh, and NATS."""
    from mesh.model.nats_roles import NatsRole, inbox

    scheme = "tls" if tls else "nats"
    urls = ",".join(f"{scheme}://{one.host}:4222" for one in servers) or "nats://127.0.0.1:4222"
    name = mesh_name.of_process()
    lines = [
        *(["mesh:", f"  name: {name}"] if name != mesh_name.DEFAULT else []),
        "nats:",
        f"  url: {urls}",
        f"  nkey_seed_file: {_seed_path(folder.absolute(), user.name)}",
    ]
    if isinstance(user.of, NatsRole):
        lines.append(f"  inbox_prefix: {inbox(user.of)}")
    if tls:
        lines.append(f"  tls_ca: {tls.ca}")
    if user.of in (NatsRole.WORKER, NatsRole.RECEIVER):
        path = _seed_path(folder.absolute(), NatsRole.CONNECTOR)
        lines += ["receiver:", f"  nkey_seed_file: {path}"]
    return "\n".join(lines) + "\n"
