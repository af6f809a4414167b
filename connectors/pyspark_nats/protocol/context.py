"""Context files of the ``nats`` command line, read as settings of a connection.

They are in ``$XDG_CONFIG_HOME/nats/context`` or ``~/.config/nats/context``, one JSON file each.

Source:
    github.com/nats-io/jsm.go, natscontext: names, fields, expansion of paths, and references.
"""

from __future__ import annotations

import base64
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark_nats.errors import OptionError
from pyspark_nats.options import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Our name of each field.
_FIELDS: Final = {
    "url": "servers", "user": "user", "password": "password", "token": "token",
    "creds": "credentials", "nkey": "nkeySeedFile", "user_jwt": "userJwt",
    "user_seed": "nkeySeed", "cert": "tlsCert", "key": "tlsKey", "ca": "tlsCa",
    "tls_first": "tlsFirst", "inbox_prefix": "inboxPrefix", "jetstream_domain": "jsDomain",
    "jetstream_api_prefix": "jsApiPrefix",
}  # fmt: skip
_PATHS: Final = frozenset({"creds", "nkey", "cert", "key", "ca"})
#: Fields with a value that may be a reference to the text.
_REFERENCES: Final = frozenset({"creds", "nkey", "user_jwt", "user_seed", "token", "password"})
#: Fields that change the server or the user, and are not supported.
_REFUSED: Final = {
    "nsc": 'Export the user with "nsc generate creds" and give the file as "creds".',
    "socks_proxy": "Connections through a SOCKS proxy are not made here.",
    "windows_cert_store": 'Give PEM files as "cert" and "key".',
}
_PROGRAMS: Final = {"op": "1Password", "nsc": "nsc"}


@dataclass(frozen=True, slots=True)
class ContextSetting:
    """A value of a connection, and its name in errors."""

    value: str = field(repr=False)
    #: For example: option "tlsCa".
    label: str
    #: Whether ``value`` is the content of a referenced file rather than its path.
    is_content: bool = False


def read(context: str, environment: Mapping[str, str]) -> dict[str, ContextSetting]:
    """Settings of a context by the names of our options, without empty ones.

    Args:
        context: a context's name; or the path of its file, which contains a "/" or ends in ".json".
        environment: for ``XDG_CONFIG_HOME``, ``HOME`` and ``env://`` references.

    Raises:
        OptionError: the context does not exist, is malformed, or refers to something missing.
    """
    path = _path(context, environment)
    try:
        fields = json.loads(path.read_text())
    except FileNotFoundError as error:
        names = tuple(sorted(file.stem for file in path.parent.glob("*.json")))
        raise OptionError(
            f'option "context": there is no context "{context}"',
            detail=f"Looked for {path}.",
            hint=nearest(path.stem, names) if names else "",
        ) from error
    except (OSError, ValueError) as error:
        raise OptionError(
            f'option "context" names "{path}", which can\'t be read',
            detail=f"{_reason(error)}.",
        ) from error
    if not isinstance(fields, dict):
        raise OptionError(f'option "context" names "{path}", which is no JSON object')
    settings: dict[str, ContextSetting] = {}
    for name, hint in _REFUSED.items():
        if fields.get(name):
            raise OptionError(
                f'context "{path.stem}" has a field "{name}", which is not supported', hint=hint
            )
    for name, ours in _FIELDS.items():
        label = f'field "{name}" of context "{path.stem}"'
        value = _text(fields.get(name), label)
        if value:
            settings[ours] = _setting(name, value, label, environment)
    return _without_doubled_token(settings)


def _path(context: str, environment: Mapping[str, str]) -> Path:
    if "/" in context or context.endswith(".json"):
        return Path(_expanded(context, environment))
    if ".." in context:
        raise OptionError(f'option "context" is "{context}", which is no name of a context')
    parent = environment.get("XDG_CONFIG_HOME") or _expanded("~/.config", environment)
    return Path(parent, "nats", "context", f"{context}.json")


def _text(value: object, label: str) -> str:
    if isinstance(value, bool):
        return "true" if value else ""
    if value is None or isinstance(value, str):
        return value or ""
    raise OptionError(f"{label} is no string")


def _setting(name: str, value: str, label: str, environment: Mapping[str, str]) -> ContextSetting:
    scheme, is_split, rest = value.partition("://" if "://" in value else ":")
    if name in _REFERENCES and is_split:
        if scheme in _PROGRAMS:
            raise OptionError(
                f"{label} is kept by {_PROGRAMS[scheme]}, which is not asked here",
                hint="Give a file, or a reference env://NAME.",
            )
        if scheme == "env" and "://" in value:
            if not environment.get(rest):
                raise OptionError(f'{label}: environment variable "{rest}" is not set')
            return ContextSetting(environment[rest].strip(), label, is_content=True)
        if scheme == "data" and ";base64," in rest:
            return ContextSetting(_of_data(rest, label), label, is_content=True)
        if scheme == "file" and name in _PATHS:
            value = rest
    return ContextSetting(_expanded(value, environment) if name in _PATHS else value, label)


def _of_data(rest: str, label: str) -> str:
    try:
        return base64.b64decode(rest.partition(",")[2], validate=True).decode()
    except ValueError as error:
        raise OptionError(f"{label} is not base64") from error


def _expanded(path: str, environment: Mapping[str, str]) -> str:
    home = environment.get("HOME") or os.path.expanduser("~")
    if path == "~" or path.startswith("~/"):
        path = home + path[1:]
    for name in sorted(environment, key=len, reverse=True):
        if "$" not in path:
            break
        path = path.replace(f"${{{name}}}", environment[name]).replace(
            f"${name}", environment[name]
        )
    return path


def _without_doubled_token(settings: dict[str, ContextSetting]) -> dict[str, ContextSetting]:
    """Drop one of two equal texts: older ``nats`` versions saved the user as the token too."""
    user, token = settings.get("user"), settings.get("token")
    if user is not None and token is not None and user.value == token.value:
        del settings["token" if "password" in settings else "user"]
    return settings


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)
