"""Settings of a ``deployment.yaml``: references, data sources, shards and limits of the cluster.

siddhi.refs              refs.yaml, named by receiver.refs_file
wso2.datasources         sources.yaml, named by stores.sources_file
siddhi.properties        stores.shard_id
siddhi.extensions        stores.cud_operations
state.persistence        state.backups_kept
deployment.config        manager.min_workers
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import yaml

from mesh.errors import MeshError
from mesh.migrate.draft import Note, NoteKind
from mesh.model.stored import StoreKind
from mesh.plan.redis_stores import redis_of
from mesh.plan.stores import database_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.model.values import JsonMapping, JsonObject

REFERENCES: Final = "refs.yaml"
SOURCES: Final = "sources.yaml"
SETTINGS: Final = "mesh.yaml"
_CUD: Final = "perform.CUD.operations"
_ALIAS: Final = re.compile(r"\$\{sec:([^}]+)\}")
_CLUSTER: Final = (
    "managers find each other by NATS and elect a leader: nodes with one NATS account and one "
    "mesh.name are a group"
)
#: Sections that mesh has no need of, and what serves instead.
_INSTEAD: Final = {
    "cluster.config": (NoteKind.DIFFERS, _CLUSTER),
    "auth.configs": (NoteKind.ABSENT, "users are added by 'mesh user add', or come from oidc"),
    "wso2.metrics": (NoteKind.DIFFERS, "managers and workers have /metrics, always"),
    "wso2.metrics.jdbc": (NoteKind.DIFFERS, "managers and workers have /metrics, always"),
    "metrics": (NoteKind.DIFFERS, "managers and workers have /metrics, always"),
    "wso2.securevault": (NoteKind.ABSENT, "secrets are set by 'mesh secret set NAME'"),
    "securevault": (NoteKind.ABSENT, "secrets are set by 'mesh secret set NAME'"),
    "databridge.config": (NoteKind.ABSENT, "Thrift is absent: events come by NATS, or a source"),
    "siddhi.stores.query.api": (NoteKind.DIFFERS, "every manager answers POST /stores/query"),
    "wso2.carbon": (NoteKind.DIFFERS, "ids of nodes are manager.id and worker.id of each process"),
    "runtime": (NoteKind.DIFFERS, "ids of nodes are manager.id and worker.id of each process"),
}  # fmt: skip


@dataclass(slots=True)
class MigratedSettings:
    """Files of settings, by name, and notes about each section."""

    files: dict[str, str] = field(default_factory=dict)
    #: The type of each reference, which plans need.
    types: dict[str, str] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)


def is_deployment(text: str) -> bool:
    """Whether a YAML file is of a deployment of the original."""
    return (
        re.search(r"^(wso2\.|siddhi|state\.persistence|deployment\.config)", text, re.M) is not None
    )


def migrate_deployment(text: str) -> MigratedSettings:
    """The settings of a mesh that a ``deployment.yaml`` asks for.

    Returns:
        ``mesh.yaml``, and the files that it names; a note for each section.

    Raises:
        MeshError: MESH-U129 for a text that is no YAML mapping.
    """
    try:
        loaded = yaml.safe_load(text)
    except yaml.YAMLError as error:
        # The reason of the parser shows lines, which may hold passwords.
        raise _unreadable() from error
    if not isinstance(loaded, dict):
        raise _unreadable()
    reader = _Reader(text, loaded)
    reader.read()
    return reader.result


def _unreadable() -> MeshError:
    return MeshError(
        "MESH-U129",
        "the deployment can't be read",
        detail="It is no YAML mapping.",
        hint="It is the file conf/../deployment.yaml of a server.",
    )


class _Reader:
    """The sections of one file, each read once."""

    def __init__(self, text: str, values: JsonMapping) -> None:
        self._text = text
        self._values = values
        self._settings: dict[str, JsonObject] = {}
        self._data_sources: dict[str, dict[str, str]] = {}
        self.result = MigratedSettings()

    def read(self) -> None:
        for section, values in self._values.items():
            name = str(section)
            match name:
                case "siddhi":
                    self._siddhi(values if isinstance(values, dict) else {})
                case "refs":
                    self._references(values)
                case "extensions":
                    self._extensions(values)
                case "wso2.datasources" | "dataSources":
                    self._sources(values)
                case "state.persistence":
                    self._persistence(values if isinstance(values, dict) else {})
                case "deployment.config":
                    self._deployment(values if isinstance(values, dict) else {})
                case _:
                    kind, why = _INSTEAD.get(name, (NoteKind.ABSENT, "it has no counterpart"))
                    self._note(kind, name, f"{name} is left out: {why}")
        if self._data_sources:
            self.result.files[SOURCES] = _yaml(self._data_sources)
            self._settings.setdefault("stores", {})["sources_file"] = SOURCES
        self.result.files[SETTINGS] = _yaml(self._settings) if self._settings else "{}\n"

    def _note(self, kind: NoteKind, key: str, text: str) -> None:
        match = re.search(rf"^[ \t-]*['\"]?{re.escape(key)}['\"]?[ \t]*:", self._text, re.M)
        line = self._text.count("\n", 0, match.start()) + 1 if match is not None else 0
        self.result.notes.append(Note(kind, line, text))

    def _set(self, section: str, name: str, value: object, key: str) -> None:
        self._settings.setdefault(section, {})[name] = value
        self._note(NoteKind.CHANGED, key, f"{key} is {section}.{name}: {value}")

    def _siddhi(self, values: JsonMapping) -> None:
        for name, value in values.items():
            if name == "refs":
                self._references(value)
            elif name == "extensions":
                self._extensions(value)
            elif name == "properties":
                self._properties(value if isinstance(value, dict) else {})
            else:
                self._note(
                    NoteKind.ABSENT, name, f"siddhi.{name} is left out: it has no counterpart"
                )

    def _properties(self, values: JsonMapping) -> None:
        for name, value in values.items():
            if name == "shardId":
                self._set("stores", "shard_id", str(value), name)
            elif name == "partitionById":
                why = "with stores.shard_id each mesh has its own share of an aggregation"
                self._note(NoteKind.DIFFERS, name, f"partitionById: {why}")
            else:
                self._note(NoteKind.ABSENT, name, f"property {name} is left out")

    def _references(self, values: object) -> None:
        references: dict[str, dict[str, str]] = {}
        for one in _each(values, "ref"):
            name, options = str(one.get("name", "")), one.get("properties")
            if one.get("type") in set(StoreKind):
                self.result.types[name] = str(one["type"])
                self._source(name, dict(options or {}), "ref")
                continue
            entry = {str(k): self._secret(v) for k, v in (options or {}).items()}
            if one.get("type"):
                self.result.types[name] = str(one["type"])
                entry = {"type": str(one["type"]), **entry}
            references[name] = entry
            self._note(NoteKind.CHANGED, "ref", f'reference "{name}" is in {REFERENCES}')
        if references:
            self.result.files[REFERENCES] = _yaml(references)
            self._settings.setdefault("receiver", {})["refs_file"] = REFERENCES

    def _extensions(self, values: object) -> None:
        for one in _each(values, "extension"):
            name = f"{one.get('namespace', '')}:{one.get('name', '')}"
            properties = one.get("properties")
            if name == "rdbms:cud" and isinstance(properties, dict) and _CUD in properties:
                allowed = str(properties[_CUD]).lower() == "true"
                self._set("stores", "cud_operations", allowed, _CUD)
                continue
            why = "settings of extensions are options of the annotation, or of a reference"
            self._note(NoteKind.ABSENT, "extension", f"extension {name} is left out: {why}")

    def _sources(self, values: object) -> None:
        listed = values.get("dataSources") if isinstance(values, dict) else values
        for one in listed if isinstance(listed, list) else []:
            if not isinstance(one, dict):
                continue
            config = ((one.get("definition") or {}).get("configuration")) or {}
            self._source(str(one.get("name", "")), config, "dataSources")

    def _source(self, name: str, config: JsonMapping, key: str) -> None:
        """A data source, of the list of them or of a reference of ``@store``."""
        nodes = str(config.get("nodes") or "")
        url = str(config.get("jdbcUrl") or config.get("jdbc.url") or config.get("url") or "")
        source = {"url": url}
        source |= {k: self._secret(config[k]) for k in ("username", "password") if k in config}
        try:
            if nodes:
                host, _, password = nodes.partition("@")
                source = {"url": f"redis://{host}", "password": self._secret(password)}
                redis_of(source["url"], None, source["password"])
            else:
                database_of(url, source.get("username"), source.get("password"))
        except MeshError as error:
            what = error.message.removeprefix("not supported yet: ")
            self._note(NoteKind.ABSENT, key, f'data source "{name}" is left out: {what}')
            return
        self._data_sources[name] = source
        self._note(NoteKind.CHANGED, key, f'data source "{name}" is in {SOURCES}')

    def _persistence(self, values: JsonMapping) -> None:
        if "revisionsToKeep" in values:
            self._set("state", "backups_kept", values["revisionsToKeep"], "revisionsToKeep")
        why = (
            "states are in JetStream, at intervals of worker.snapshot_interval_s, and no event is "
        )
        self._note(
            NoteKind.DIFFERS, "state.persistence", f"state.persistence: {why}lost or counted twice"
        )

    def _deployment(self, values: JsonMapping) -> None:
        for name, value in values.items():
            if name == "minResourceCount":
                self._set("manager", "min_workers", value, name)
            elif name == "type":
                why = "two nodes are as docs/two-nodes.md has them, more as docs/distribution.md"
                self._note(NoteKind.DIFFERS, "deployment.config", f"type {value}: {why}")
            else:
                text = f"deployment.config.{name} is left out: nodes find each other by NATS"
                self._note(NoteKind.ABSENT, name, text)

    def _secret(self, value: object) -> str:
        """A value as text, with aliases of the vault as secrets of mesh."""
        text = str(value).lower() if isinstance(value, bool) else str(value)
        for alias in _ALIAS.findall(text):
            name = re.sub(r"[^A-Za-z0-9_]", "_", alias)
            self._note(
                NoteKind.CHANGED, alias, f"alias {alias} is a secret: mesh secret set {name}"
            )
        return _ALIAS.sub(lambda m: f"${{secret:{re.sub(r'[^A-Za-z0-9_]', '_', m[1])}}}", text)


def _each(values: object, key: str) -> Iterator[JsonMapping]:
    """The mappings of a list, each under its key."""
    for one in values if isinstance(values, list) else []:
        entry = one.get(key) if isinstance(one, dict) else None
        if isinstance(entry, dict):
            yield entry


def _yaml(values: JsonMapping) -> str:
    return str(yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True))
