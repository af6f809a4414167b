"""Accounts and users of a NATS server as configuration text, and their keys.

The text follows from the users alone (``accounts``).  A user of the mesh or a client has one key,
and two while its key is replaced: both are valid until the old one is retired.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import nkeys  # type: ignore[import-untyped]  # it ships none

from mesh.errors import MeshError
from mesh.model import nats_roles
from mesh.model.nats_roles import ClientGrant, NatsRole, Permissions

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The account of managers, workers and JetStream.
MESH: Final = "MESH"
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}\Z")


@dataclass(frozen=True, slots=True)
class NatsUser:
    """A user of a server: of a role in the account of the mesh, or a client in its own account."""

    name: str
    of: NatsRole | ClientGrant
    #: Public nkeys, the newest last.
    keys: tuple[str, ...] = ()
    #: In place of keys, for clients that know URLs only.
    password: str = ""
    #: Further subjects that the apps of a worker publish to.
    sinks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterServer:
    """One server of a cluster."""

    name: str
    host: str
    store_dir: str = "/var/lib/nats"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths on the servers."""

    cert: str
    key: str
    ca: str


def new_key() -> tuple[str, str]:
    """A new nkey of a user: the seed, and the public key."""
    seed = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)
    return seed.decode(), nkeys.from_seed(seed).public_key.decode()


def check_name(name: str) -> str:
    """The name of a client, which is its account's, too.

    Raises:
        MeshError: MESH-U170 for another form, and for the name of a role.
    """
    if not _NAME.match(name) or name in list(NatsRole):
        raise MeshError(
            "MESH-U170",
            f'"{name}" can\'t be the name of a NATS client',
            hint="A name has small letters, digits, '_' and '-', and is no role's.",
        )
    return name


def accounts(users: Iterable[NatsUser]) -> str:
    """The part of a server's configuration with all accounts and users."""
    all_users = list(users)
    roles = [user for user in all_users if isinstance(user.of, NatsRole)]
    clients = [(user, user.of) for user in all_users if isinstance(user.of, ClientGrant)]
    lines = ["accounts {", f"  {MESH} {{", "    jetstream: enabled"]
    entries = [line for user in roles for line in _user(user, _of_role(user))]
    lines += ["    users: [", *entries, "    ]", *_exports(clients), "  }"]
    for user, client in clients:
        permissions = nats_roles.client_permissions(client)
        lines += [f"  {json.dumps(user.name)} {{", "    users: ["]
        lines += [*_user(user, permissions), "    ]", *_imports(client), "  }"]
    return "\n".join([*lines, "}"]) + "\n"


def server_text(
    server: ClusterServer,
    cluster: Iterable[ClusterServer],
    route_password: str,
    tls: TlsFiles | None,
) -> str:
    """The configuration of one server; ``accounts.conf`` is beside it."""
    others = [one for one in cluster if one.name != server.name]
    lines = [
        f"server_name: {json.dumps(server.name)}",
        "listen: 0.0.0.0:4222",
        f"jetstream {{ store_dir: {json.dumps(server.store_dir)} }}",
        *_tls(tls, ""),
    ]
    if others:
        login = f"route:{route_password}@"
        routes = ", ".join(json.dumps(f"nats://{login}{one.host}:6222") for one in others)
        lines += [
            "cluster {",
            "  name: mesh, listen: 0.0.0.0:6222",
            f"  authorization {{ user: route, password: {json.dumps(route_password)} }}",
            f"  routes: [{routes}]",
            *_tls(tls, "  "),
            # A server encrypts each piece that it compressed as one record, and without compression
            # each message as one: copies of small messages cost it an eighth less.
            *(["  compression: s2_fast"] if tls else []),
            "}",
        ]
    return "\n".join([*lines, "include accounts.conf"]) + "\n"


def _tls(tls: TlsFiles | None, indent: str) -> list[str]:
    if tls is None:
        return []
    files = (("cert_file", tls.cert), ("key_file", tls.key), ("ca_file", tls.ca))
    options = ", ".join(f"{name}: {json.dumps(path)}" for name, path in files)
    # Each client shows a certificate of the same authority, besides its key.
    return [f'{indent}tls {{ {options}, verify: true, min_version: "1.2" }}']


def _of_role(user: NatsUser) -> Permissions:
    assert isinstance(user.of, NatsRole)
    return nats_roles.permissions(user.of, user.sinks)


def _user(user: NatsUser, may: Permissions) -> list[str]:
    """An entry for each of the user's keys, or for its password."""
    logins = [f"nkey: {key}" for key in user.keys]
    if user.password:
        name, password = json.dumps(user.name), json.dumps(user.password)
        logins.append(f"user: {name}, password: {password}")
    lines = []
    for login in logins:
        lines += [
            f"      # {user.name}",
            f"      {{ {login}, permissions: {{",
            f"        publish: {_subjects(may.publish, may.no_publish)}",
            f"        subscribe: {_subjects(may.subscribe, may.no_subscribe)}",
            "      } }",
        ]
    return lines


def _subjects(allowed: tuple[str, ...], denied: tuple[str, ...]) -> str:
    # Without an entry a server allows everything.
    if not allowed:
        return '{ deny: ">" }'
    return f"{{ allow: {json.dumps(allowed)}, deny: {json.dumps(denied)} }}"


def _exports(clients: list[tuple[NatsUser, ClientGrant]]) -> list[str]:
    """Exports of the subjects that clients import, to those clients only."""
    shared: dict[tuple[str, str, bool], list[str]] = {}
    for user, client in clients:
        for one in nats_roles.imports(client):
            shared.setdefault((one.kind, one.subject, one.is_many), []).append(user.name)
    lines = ["    exports: ["]
    for (kind, subject, is_many), names in shared.items():
        many = ", response_type: stream" if is_many else ""
        who = json.dumps(names)
        lines.append(f"      {{ {kind}: {json.dumps(subject)}{many}, accounts: {who} }}")
    return [*lines, "    ]"]


def _imports(client: ClientGrant) -> list[str]:
    lines = ["    imports: ["]
    for one in nats_roles.imports(client):
        to = f", to: {json.dumps(one.to)}" if one.to else ""
        source = f"account: {MESH}, subject: {json.dumps(one.subject)}"
        lines.append(f"      {{ {one.kind}: {{ {source} }}{to} }}")
    return [*lines, "    ]"]
