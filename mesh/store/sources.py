"""Databases of definitions: those of their annotations, and named ones of the settings.

Settings reach the processes of Spark, and those that answer questions, as their environment.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mesh.connect.access import access_of, open_database
from mesh.connect.contract import NodeAccess
from mesh.errors import MeshError
from mesh.model import codec
from mesh.model.access import is_open_to
from mesh.model.secrets import filled, names_in
from mesh.model.stored import StoreKind
from mesh.plan.redis_stores import is_redis, redis_of
from mesh.plan.stores import database_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mesh.model.stored import Database, StoreOptions
    from mesh.settings import Settings

SHARD_VARIABLE: Final = "MESH_STORES_SHARD_ID"
SOURCES_VARIABLE: Final = "MESH_STORES_SOURCES_FILE"
SECRETS_VARIABLE: Final = "MESH_STORES_SECRETS"
#: Errors about a data source that a node does not know, or a database that is not open to it.
OF_SETTINGS: Final = ("MESH-S145", "MESH-C132")
#: What apps may use of this node, as JSON; missing in processes that are no node's.
ACCESS_VARIABLE: Final = "MESH_STORES_ACCESS"


def shard() -> str:
    """The name of this mesh among those that write to one database; empty for none."""
    return os.environ.get(SHARD_VARIABLE, "")


def variables(settings: Settings, secrets: str = "") -> dict[str, str]:
    """The environment of processes that use databases.

    ``secrets``: a function of the values of secrets by their names, as ``module:function``.
    """
    environment = {
        SHARD_VARIABLE: settings.stores.shard_id,
        SOURCES_VARIABLE: settings.stores.sources_file,
        ACCESS_VARIABLE: codec.encode(access_of(settings)).decode(),
    }
    return {**environment, SECRETS_VARIABLE: secrets} if secrets else environment


def database(options: StoreOptions, app: str = "") -> Database:
    """The database of a store, with the values of secrets that its options refer to.

    It is that of the annotation, which has to be open to apps on this node, or a named one of the
    settings, which has to be open to the app.  Without a name of an app only those for all are.

    Raises:
        MeshError: MESH-S145, there is no such name, or the file can't be read; MESH-C140 .. C142
            for secrets; MESH-C132 for a file or a server that is not open.
    """
    if options.database is None:
        return _filled(_named(options, app), app)
    target = _filled(options.database, app)
    access = _access(os.environ.get(ACCESS_VARIABLE, ""))
    return target if access is None else open_database(access, target)


@lru_cache(maxsize=4)
def _access(text: str) -> NodeAccess | None:
    return codec.decode(NodeAccess, text.encode()) if text else None


def _filled(template: Database, app: str) -> Database:
    texts = (template.host, template.database, template.username, template.password)
    secret_names = names_in((*texts, *(value for _, value in template.parameters)))
    if not secret_names:
        return template
    values = _secrets(secret_names, app)
    host, name, username, password = (filled(text, values) for text in texts)
    return replace(
        template,
        host=host,
        database=name,
        username=username,
        password=password,
        parameters=tuple((key, filled(text, values)) for key, text in template.parameters),
    )


def _secrets(names: frozenset[str], app: str) -> Mapping[str, str]:
    module, _, function = os.environ.get(SECRETS_VARIABLE, "").partition(":")
    if not function:
        name = min(names)
        raise MeshError(
            "MESH-C142",
            f'secret "{name}" has no value',
            detail="This process reads no secrets.",
        )
    values: Mapping[str, str] = getattr(importlib.import_module(module), function)(names, app)
    return values


def _named(options: StoreOptions, app: str) -> Database:
    file = os.environ.get(SOURCES_VARIABLE, "")
    every = read_sources(file) if file else {}
    open_sources = {
        name: one
        for name, one in every.items()
        if not isinstance(one, dict) or is_open_to(one.get("apps"), app)
    }
    one = open_sources.get(options.source or "")
    if not isinstance(one, dict) or not one.get("url"):
        raise MeshError(
            "MESH-S145",
            f'there is no data source "{options.source}"',
            detail=f"Known here: {', '.join(sorted(open_sources)) or 'none'}.",
            hint="Add its url, username and password to the file of stores.sources_file; its key "
            "apps names patterns of apps that may use it.",
        )
    username, password = (
        None if one.get(name) is None else str(one[name]) for name in ("username", "password")
    )
    url = str(one["url"])
    if is_redis(url) is not (options.kind is StoreKind.REDIS):
        raise MeshError(
            "MESH-S145",
            f"data source \"{options.source}\" is none of @store(type='{options.kind}')",
            detail=f"It is {'' if is_redis(url) else 'not '}in Redis.",
            hint="Name the type of its database in @store, or another data source.",
        )
    return (redis_of if is_redis(url) else database_of)(url, username, password)


@lru_cache(maxsize=4)
def read_sources(file: str) -> dict[str, object]:
    """The data sources of a file by name.

    Raises:
        MeshError: MESH-S145, it can't be read.
    """
    import yaml

    try:
        document = yaml.safe_load(Path(file).read_text())
    except (OSError, yaml.YAMLError) as error:
        # The reason of the parser shows lines of the file, which may hold passwords.
        raise MeshError(
            "MESH-S145",
            f'the file of data sources "{file}" can\'t be read',
            detail=f"{type(error).__name__}.",
            hint="It is a YAML mapping: name: {url: .., username: .., password: ..}.",
        ) from None
    return document if isinstance(document, dict) else {}
