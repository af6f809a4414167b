"""A source or sink of a group as it is opened: its declaration, mapper and options.

Avro schemas of a registry, which the host asks for before a source or sink begins.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import orjson

from mesh.connect import registry
from mesh.connect.access import check_url, path_of
from mesh.connect.contract import UnavailableError
from mesh.connect.references import TYPE
from mesh.errors import MeshError
from mesh.model.secrets import filled, names_in, without
from mesh.plan.bind.apps import bind_group
from mesh.plan.connectors import connector_of, make_mapper

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mesh.connect.contract import NodeAccess
    from mesh.connect.spec import Spec
    from mesh.model.app import GroupSpec
    from mesh.model.types import StreamSchema
    from mesh.model.values import JsonObject
    from mesh.plan.connectors import Connector
    from mesh.receiver.environment import HostEnvironment


#: Options that are addresses; an instance shows the first that it has.
_ADDRESSES: Final = (
    "publisher.url", "receiver.url", "file.uri", "dir.uri", "destination", "bootstrap.servers",
    "url", "uri", "jdbc.url", "server.url", "bucket.name", "host", "topic", "datasource",
    "datasource.name",
)  # fmt: skip
_LOGIN: Final = re.compile(r"//.*@")
#: The rest of a login with such a character: it is no port that follows the colon.
_REST_OF_LOGIN: Final = re.compile(r"//[^/:,\[]*:(?!\{|\d*(?:[/,]|$)).*")
#: Characters before the parameters of a URL, or of an address of JDBC.
_PARAMETERS: Final = re.compile(r"[?;#\s]")

_CALL_S: Final = 10.0


def endpoint_of(values: JsonObject) -> str:
    """The address among the values of options, without a login."""
    for name in _ADDRESSES:
        if values.get(name):
            text = str(values[name])
            if name == "host" and values.get("port"):
                text = f"[{text}]:{values['port']}" if ":" in text else f"{text}:{values['port']}"
            # Parameters may be a login, too; names of files may have their characters.
            if ":/" in text or text.startswith("jdbc:"):
                text = _PARAMETERS.split(text, maxsplit=1)[0]
            return _REST_OF_LOGIN.sub("//", _LOGIN.sub("//", text.partition("?")[0]))
    return ""


@dataclass(frozen=True, slots=True)
class Opened:
    """A connector of a group, with its declaration and mapper."""

    connector: Connector
    spec: Spec
    stream: StreamSchema
    mapper: Any

    @staticmethod
    def of_group(group: GroupSpec) -> Opened:
        """The only connector of a group.

        Raises:
            MeshError: MESH-C130 for a connector that is not installed here.
        """
        bound = bind_group(group)
        ((name, annotation),) = [
            (stream, a)
            for stream, a in bound.stream_annotations
            if a.name.lower() in ("source", "sink")
        ]
        connector = connector_of(annotation)
        spec = registry.find(connector.role, connector.type)
        if spec is None or not spec.implementation:
            raise MeshError(
                "MESH-C130",
                f'connector "{connector.kind}" is not installed on this worker',
                hint="Install its package there; 'mesh connectors' lists the installed ones.",
            )
        stream = bound.stream(name)
        return Opened(connector, spec, stream, make_mapper(connector, stream))

    def secrets(self, environment: HostEnvironment) -> frozenset[str]:
        """Names of the secrets that its options refer to."""
        texts = [*self.connector.options.values()]
        texts += [text for options in self.connector.destinations for text in options.values()]
        if self.connector.ref:
            texts += environment.references().get(self.connector.ref, {}).values()
        return names_in(str(one) for one in texts)

    def values(
        self,
        environment: HostEnvironment,
        overrides: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> JsonObject:
        """Values of the options: of the reference, then of the annotation, then ``overrides``.

        ``secrets`` has a value for each name of ``self.secrets``.

        Raises:
            MeshError: MESH-C131 for a reference that the node does not have, or invalid options;
                MESH-C132 for a file that an app may not name.
        """
        texts = self._references(environment)
        written = {
            name: filled(str(text), secrets or {})
            for name, text in {**self.connector.options, **(overrides or {})}.items()
        }
        for name, text in written.items():
            option = self.spec.option(name)
            if option is not None and option.is_file:
                path_of(environment.access, text)
        texts = {name: filled(str(text), secrets or {}) for name, text in texts.items()} | written
        return self._values(texts)

    def endpoint(
        self, environment: HostEnvironment, overrides: Mapping[str, str] | None = None
    ) -> str:
        """The address among the options, without a login and without any value of a secret."""
        options = {**self._references(environment), **self.connector.options, **(overrides or {})}
        texts = {option.name: option.default for option in self.spec.options}
        for name, text in options.items():
            option = self.spec.option(name)
            texts[option.name if option is not None else name] = without(str(text))
        return endpoint_of(texts)

    def _references(self, environment: HostEnvironment) -> Mapping[str, str]:
        """The options of the reference, as the node's file has them."""
        if not self.connector.ref:
            return {}
        references = environment.references()
        options = dict(references.get(self.connector.ref, {}))
        kind = options.pop(TYPE, self.connector.type)
        if kind != self.connector.type:
            raise MeshError(
                "MESH-C131",
                f'reference "{self.connector.ref}" of {self.connector.kind} is of type "{kind}"',
                hint="Write that type in the annotation, or name another reference.",
            )
        if self.connector.ref not in references:
            raise MeshError(
                "MESH-C131",
                f'reference "{self.connector.ref}" of {self.connector.kind} is not on this worker',
                detail="Or it is not open to this app.",
                hint="Add it to the file of the setting receiver.refs_file; its key apps names "
                "patterns of apps that may use it.",
            )
        return options

    def _values(self, options: Mapping[str, str]) -> JsonObject:
        try:
            values = self.spec.values(options)
        except ValueError as error:
            raise MeshError(
                "MESH-C131", f"{self.connector.kind} can't be opened", detail=f"{error}."
            ) from error
        reason = self.spec.reason_against(options)
        if reason is not None:
            raise MeshError("MESH-C131", f"{self.connector.kind} can't be opened: {reason}")
        missing = [o.name for o in self.spec.options if o.is_required and not values[o.name]]
        if missing:
            raise MeshError(
                "MESH-C131",
                f'{self.connector.kind} can\'t be opened: option "{missing[0]}" is missing',
                hint="Write it in the annotation or in the reference.",
            )
        return values


async def with_schema(opened: Opened, access: NodeAccess) -> Opened:
    """A source or sink whose mapper has the schema that its options name in a registry.

    Raises:
        UnavailableError: the registry doesn't answer, or doesn't have the schema.
        MeshError: MESH-C132 for a registry to which no connector may connect.
        ValueError: the schema is invalid.
    """
    mapping = opened.connector.map
    by_name = {name.lower(): value for name, value in mapping.options.items()}
    url = by_name.get("schema.registry")
    if not url:
        return opened
    check_url(access, url, 443 if url.startswith("https") else 80)
    text = await _schema(f"{url.rstrip('/')}/schemas/ids/{by_name['schema.id'].strip()}")
    options = {**mapping.options, "schema.def": text}
    connector = replace(opened.connector, map=replace(mapping, options=options))
    return replace(opened, connector=connector, mapper=make_mapper(connector, opened.stream))


async def _schema(url: str) -> str:
    # Few hosts need it for this.
    import httpx

    from mesh.http.web_answers import ask

    try:
        # The environment of the worker is not the app's.
        async with httpx.AsyncClient(timeout=_CALL_S, trust_env=False) as client:
            answer = await ask(client, "GET", url)
        answer.response.raise_for_status()
        schema = orjson.loads(answer.content)["schema"]
    except httpx.HTTPStatusError as error:
        code = error.response.status_code
        raise UnavailableError(f"the schema registry answered {code}") from None
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        reason = type(error).__name__
        raise UnavailableError(f"the schema registry gave no schema: {reason}") from None
    return str(schema)
