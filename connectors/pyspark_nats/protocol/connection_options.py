"""Connection options that the source and the sink share.

Files are read together with the options, which Spark does on the driver.  The result holds their
content, so executors on other machines need none of the files.

Context files of the ``nats`` command line, read as settings of a connection.

They are in ``$XDG_CONFIG_HOME/nats/context`` or ``~/.config/nats/context``, one JSON file each.

Source:
    github.com/nats-io/jsm.go, natscontext: names, fields, expansion of paths, and references.
"""

from __future__ import annotations

import base64
import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark_nats.errors import OptionError
from pyspark_nats.options import OptionReader, nearest
from pyspark_nats.protocol import credentials, servers, tls
from pyspark_nats.protocol.credentials import Credentials
from pyspark_nats.protocol.tls import Tls

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_nats.protocol.servers import ServerAddress

    Settings = dict[str, "ContextSetting"]

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


def read_context(context: str, environment: Mapping[str, str]) -> dict[str, ContextSetting]:
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


#: Options that a context may also set.
_SETTINGS: Final = (
    "servers", "user", "password", "token", "nkeySeed", "nkeySeedFile", "credentials",
    "tlsCa", "tlsCert", "tlsKey", "tlsFirst", "inboxPrefix", "jsDomain", "jsApiPrefix",
)  # fmt: skip
#: The names of these options.
NAMES: Final = (*_SETTINGS, "context", "timeoutS", "clientName")

#: Options that replace all of the context's credentials if one of them is given.
_WHO: Final = ("user", "password", "token", "nkeySeed", "nkeySeedFile", "credentials", "userJwt")
_TOGETHER: Final = (_WHO, ("tlsCert", "tlsKey"), ("jsDomain", "jsApiPrefix"))


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """Servers, credentials and timeouts of a connection."""

    servers: tuple[ServerAddress, ...]
    #: Credentials for servers with a URL that has none.
    credentials: Credentials = credentials.NOBODY
    tls: Tls = tls.DEFAULT
    #: Prefix of the subjects of answers.
    inbox_prefix: str = "_INBOX"
    #: Prefix of the subjects of the JetStream API.
    js_api_prefix: str = "$JS.API"
    #: Time limit without a server or a leader, seconds.
    timeout_s: float = 30.0
    client_name: str = "pyspark_nats"

    def __hash__(self) -> int:
        # A process has few of them, and looks each up for every run.
        return hash((self.client_name, self.inbox_prefix, self.js_api_prefix))


def connection_options(options: Mapping[str, str]) -> ConnectionOptions:
    """The options of a connection alone.

    Raises:
        OptionError: an unknown name, a missing or a malformed value or file.
    """
    return read_connection(OptionReader(options, NAMES, "connection"))


def read_connection(read: OptionReader) -> ConnectionOptions:
    """The connection's part of the options of a source or a sink; OptionError as above."""
    explicit = _explicit_settings(read)
    named = read.text("context")
    defaults = read_context(named, os.environ) if named else {}
    settings = merged(explicit, defaults)
    return ConnectionOptions(
        servers=_servers(explicit, settings, named),
        credentials=_credentials(settings),
        tls=_tls(settings),
        inbox_prefix=_subject(settings, "inboxPrefix", "_INBOX"),
        js_api_prefix=_js_api_prefix(settings),
        timeout_s=read.number("timeoutS", 30.0),
        client_name=read.text("clientName", "pyspark_nats"),
    )


def _explicit_settings(read: OptionReader) -> Settings:
    settings = {name: ContextSetting(read.text(name), f'option "{name}"') for name in _SETTINGS}
    if settings["tlsFirst"].value:
        flag = "true" if read.flag("tlsFirst", False) else "false"
        settings["tlsFirst"] = ContextSetting(flag, settings["tlsFirst"].label)
    return {name: one for name, one in settings.items() if one.value}


def merged(explicit: Settings, defaults: Settings) -> Settings:
    """The given options, completed by the context's settings."""
    left = dict(defaults)
    for names in _TOGETHER:
        by_hand = set(names) & set(explicit)
        if names is _WHO and "servers" in explicit and "@" in explicit["servers"].value:
            by_hand.add("servers")
        # A password option is used with the context's user.
        dropped = set(names) - ({"user"} if by_hand == {"password"} else set())
        if by_hand:
            left = {name: one for name, one in left.items() if name not in dropped}
    return {**left, **explicit}


def _servers(explicit: Settings, settings: Settings, named: str) -> tuple[ServerAddress, ...]:
    if "servers" not in settings:
        missing = f'option "servers" is missing, and context "{named}" has no "url"'
        raise OptionError(
            missing if named else 'option "servers" is missing', hint='Give "nats://host:4222".'
        )
    value, label = settings["servers"].value, settings["servers"].label
    addresses = [servers.parse(part.strip(), label) for part in value.split(",") if part.strip()]
    if not addresses:
        raise OptionError(f"{label} names no server", hint='Give "nats://host:4222".')
    others = [name for name in _WHO if name in settings]
    if any(server.credentials.is_present for server in addresses) and others:
        if "servers" in explicit:
            raise _contradiction(settings["servers"], settings[others[0]])
        # Explicit options have precedence over the context's URLs.
        addresses = [replace(server, credentials=Credentials()) for server in addresses]
    return tuple(dict.fromkeys(addresses))


def _credentials(settings: Settings) -> Credentials:
    kinds: list[str] = [name for name in _WHO if name in settings and name != "password"]
    if "password" in settings and "user" not in settings:
        kinds.append("password")
    if "userJwt" in kinds:
        # A context may hold the JWT and its seed separately.
        kinds = [name for name in kinds if name not in ("nkeySeed", "nkeySeedFile")]
    if len(kinds) > 1:
        raise _contradiction(settings[kinds[0]], settings[kinds[1]])
    kind = kinds[0] if kinds else ""
    match kind:
        case "user":
            if "password" not in settings:
                raise OptionError(
                    f'{settings["user"].label} is given without "password"',
                    hint='Set "password" too; for a token set "token" alone.',
                )
            return Credentials(settings["user"].value, settings["password"].value)
        case "password":
            raise OptionError(f'{settings["password"].label} is given without "user"')
        case "token":
            return Credentials(token=settings["token"].value)
        case "nkeySeed" | "nkeySeedFile":
            return Credentials(seed=_seed(settings))
        case "userJwt":
            jwt = settings["userJwt"]
            return credentials.of_jwt(jwt.value, _seed(settings), jwt.label)
        case "credentials":
            return credentials.in_file(*_content(settings["credentials"]))
        case _:
            return Credentials()


def _seed(settings: Settings) -> str:
    if "nkeySeed" in settings:
        return credentials.seed_in(settings["nkeySeed"].value, settings["nkeySeed"].label)
    if "nkeySeedFile" in settings:
        return credentials.seed_in(*_content(settings["nkeySeedFile"]))
    return ""


def _contradiction(one: ContextSetting, other: ContextSetting) -> OptionError:
    return OptionError(
        f"{one.label} and {other.label} contradict each other",
        hint="Say in one way who the user is.",
    )


def _tls(settings: Settings) -> Tls:
    is_first = settings.get("tlsFirst", _EMPTY).value == "true"
    sources = [settings.get(name, _EMPTY) for name in ("tlsCa", "tlsCert", "tlsKey")]
    _, cert, key = sources
    if bool(cert.value) != bool(key.value):
        label, other = (cert.label, "tlsKey") if cert.value else (key.label, "tlsCert")
        raise OptionError(f'{label} is given without "{other}"')
    contents = [_content(one) if one.value else ("", "") for one in sources]
    ca, cert_text, key_text = (text for text, _ in contents)
    result = Tls(ca, cert_text, key_text, is_first)
    if result.ca or result.cert:
        (_, ca_label), (_, cert_label), (_, key_label) = contents
        tls.check(result, (ca_label, cert_label, key_label))
    return result


def _content(setting: ContextSetting) -> tuple[str, str]:
    """Content of the file that ``setting`` names, and the name of both for errors."""
    if setting.is_content:
        return setting.value, setting.label
    label = f'{setting.label} names "{setting.value}", which'
    try:
        text = Path(setting.value).expanduser().read_text()
    except OSError as error:
        raise OptionError(f"{label} can't be read", detail=f"{error.strerror}.") from error
    except ValueError as error:
        raise OptionError(f"{label} is no text file") from error
    if not text.strip():
        raise OptionError(f"{label} is empty")
    return text, label


def _subject(settings: Settings, name: str, default: str) -> str:
    """A prefix of subjects, without a trailing dot."""
    setting = settings.get(name, ContextSetting(default, ""))
    prefix = setting.value.removesuffix(".>").removesuffix(".")
    if not all(token and not set(token) & set(" \t\r\n*>") for token in prefix.split(".")):
        raise OptionError(f'{setting.label} is "{setting.value}", which no subject can start with')
    return prefix


def _js_api_prefix(settings: Settings) -> str:
    prefix = _subject(settings, "jsApiPrefix", "$JS.API")
    if "jsDomain" not in settings:
        return prefix
    domain = settings["jsDomain"]
    of_domain = f"$JS.{_subject(settings, 'jsDomain', '')}.API"
    if "." in domain.value:
        raise OptionError(f'{domain.label} is "{domain.value}", which no domain is called')
    if "jsApiPrefix" in settings and prefix != of_domain:
        raise OptionError(
            f"{domain.label} and {settings['jsApiPrefix'].label} contradict each other",
            detail=f'The prefix of that domain is "{of_domain}".',
        )
    return of_domain


_EMPTY: Final = ContextSetting("", "")
