"""Sources, sinks, stores and tables of all versions: what runs otherwise here, or not at all."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from mesh.connect import registry
from mesh.connect.databases import without_driver
from mesh.connect.files import is_followed
from mesh.connect.spec import Role as Connector
from mesh.errors import MeshError, Position
from mesh.functions.catalogue import Extension, ExtensionRole, find_extension, instead_of_kind
from mesh.language.written import nested
from mesh.migrate.draft import Definitions, NoteKind
from mesh.model.stored import StoreKind
from mesh.plan.redis_stores import REDIS_OPTIONS
from mesh.plan.stores import RDBMS_OPTIONS, database_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.connect.spec import Spec
    from mesh.language.written import WrittenAnnotation, WrittenElement
    from mesh.migrate.draft import Draft

#: Elements of each source and sink that are no options.
_OF_ALL: Final = ("type", "ref")
_OF_DATABASES: Final = ("cdc", "rdbms")
_NOT_SUPPORTED: Final = "MESH-P900"
#: Option of a server: requests need a login.
_LOGIN: Final = "basic.auth.enabled"
_LOGIN_OF_ALL: Final = (
    "the original asks its own users for the login of a source: give a name and a password of this "
    "one with --var"
)
#: Options of a server's certificate, and the first of those with which a source gets one.
_CERTIFICATES: Final = ("tls.cert", "tls.store")
_CERTIFICATE: Final = ", tls.cert='${TLS_CERT}', tls.key='${TLS_KEY}'"
_CERTIFICATE_OF_ALL: Final = (
    "the original's server has one certificate for all sources: give the PEM files of this one "
    "with --var"
)
#: Options whose file the original has in a format of Java.
_KEY_STORES: Final = ("tls.store", "tls.truststore")
#: Sinks that answer a request, whose number an attribute of their stream has.
_ANSWERS: Final = ("http-response", "http-service-response", "grpc-service-response")
_MESSAGE_ID: Final = re.compile(r"\bmessage_?id\b", re.IGNORECASE)
_STREAM: Final = re.compile(r"\bdefine\s+stream\b[^(]*\(([^)]*)\)", re.IGNORECASE)
#: Names of an index in earlier versions as well, and the attribute of one, as a store writes it.
_INDEXES: Final = ("index", "indexby", "indexedby")
_INDEXED: Final = re.compile(r"\s*(\w+)")
_DEFINED_OR_READ: Final = re.compile(r"\b(define|from|partition)\b", re.IGNORECASE)
_DIST: Final = "@dist of a stream has no effect: written before a query it gives the group of that"
#: The original's default hosts of source and sink email.
_MAIL_HOSTS: Final = {"source": "imap.gmail.com", "sink": "smtp.gmail.com"}
#: Annotations of the app or of a stream that change nothing here, with the reason.
_WITHOUT_EFFECT: Final = {
    "async": "@Async has no effect: a channel keeps its events and their order, and groups run in "
    "workers; 'workers' of it would give the order up",
    "app:enforceorder": "@App:enforceOrder has no effect: events of a channel keep their order",
    "app:statistics": "@App:statistics has no effect: 'mesh top' and /metrics have the figures",
    "persistedaggregation": "@persistedAggregation has no effect: the state has the buckets",
}
_SHARDS: Final = (
    "@PartitionById has no effect without a database: all instances of a group have one state"
)
_WAITS: Final = (
    "a sink waits for its destination and loses nothing; the original drops events while it is "
    "away: write on.error='LOG' for that"
)
_HTTP: Final = (
    "an answer other than 2xx is a failure: 408, 425, 429 and 5xx are tried again, others are "
    "recorded; the original takes every answer as success"
)
_PLAYBACK: Final = "@App:playback: time is that of the events; a trigger by time is refused in it"


def rewrite_annotations(draft: Draft, subject: str, types: Mapping[str, str] | None = None) -> None:
    """Replace or comment out what doesn't run here, with a note for each.

    Args:
        draft: the text, in the words of Siddhi 5.
        subject: that of a stream, ``{}`` for its name.
        types: types of references, by name.
    """
    definitions = Definitions.of(draft.text)
    unstored: set[str] = set()
    annotations = draft.annotations()
    for annotation in annotations:
        name = annotation.name.lower()
        kind, defined = definitions.after(annotation.stop)
        if name in ("source", "sink"):
            _connector(draft, annotation, defined, subject.format(defined))
        elif name == "dist" and kind == "stream" and _is_defining(draft, annotation, annotations):
            draft.comment_out(annotation, _DIST)
        elif name == "store" and _store(draft, annotation, kind, defined, types or {}):
            unstored.add(defined)
        elif name == "app:async":
            draft.comment_out(annotation, "@App:async has no effect: write @Async before a stream")
        elif name == "app:playback":
            draft.note(NoteKind.DIFFERS, annotation.start, _PLAYBACK)
        elif name in _WITHOUT_EFFECT:
            draft.note(NoteKind.DIFFERS, annotation.start, _WITHOUT_EFFECT[name])
    for annotation in annotations:
        kind, defined = definitions.after(annotation.stop)
        has_store = any(
            a.name.lower() == "store" and definitions.after(a.stop)[1] == defined
            for a in annotations
        )
        is_stored = has_store and defined not in unstored
        if annotation.name.lower() in _INDEXES and kind == "table":
            _index(draft, annotation, is_stored=is_stored)
        elif annotation.name.lower() == "partitionbyid" and not is_stored:
            draft.comment_out(annotation, _SHARDS)


# Sources and sinks


def _connector(draft: Draft, annotation: WrittenAnnotation, stream: str, subject: str) -> None:
    is_source = annotation.name.lower() == "source"
    role = ExtensionRole.SOURCE if is_source else ExtensionRole.SINK
    written = annotation.element("type")
    if written is None:
        return
    kind = _spelled(draft, written, role)
    extension = find_extension(role, kind)
    if not isinstance(extension, Extension) or not extension.runs:
        verb = "publish JSON to" if is_source else "subscribe to"
        instead = instead_of_kind(role, kind) or "Leave"
        more = "" if instead.startswith("Leave") else f". {instead.removesuffix('.')}"
        draft.comment_out(
            annotation, f'{role} "{kind}" of stream "{stream}": {verb} {subject}{more}'
        )
        return
    database = without_driver(annotation.get("url") or annotation.get("jdbc.url") or "")
    if kind in _OF_DATABASES and database is not None:
        verb = "publish JSON to" if is_source else "subscribe to"
        what = f'{role} "{kind}" of stream "{stream}", in a database of kind {database}'
        draft.comment_out(annotation, f"{what}: {verb} {subject}")
        return
    mapper = annotation.first("map")
    if mapper is not None:
        _mapper(
            draft, mapper, ExtensionRole.SOURCE_MAPPER if is_source else ExtensionRole.SINK_MAPPER
        )
    spec = registry.find(Connector(str(role)), kind)
    if spec is not None:
        _options(draft, annotation, spec, f'{role} "{kind}"')
        _tls(draft, annotation, spec)
    dist = annotation.first("dist")
    if dist is not None and dist.elements:
        others = [one for one in dist.elements if (one.key or "").lower() != "parallel"]
        if len(others) == len(dist.elements):
            stop = dist.elements[-1].stop
            draft.change(stop, stop, " parallel='1'", "parallel of a source is 1 by default")
        _leave_out(draft, others, f"@dist of a {role}")
    if is_source:
        _login(draft, annotation)
    elif kind in _ANSWERS:
        _answer(draft, annotation)
    if kind == "file" and is_source:
        _file(draft, annotation)
    if kind == "email" and annotation.get("host") is None and annotation.get("ref") is None:
        opened = annotation.opened or annotation.stop
        host = _MAIL_HOSTS[role.value]
        why = f"host is {host}, the original's default"
        draft.change(opened, opened, f"host='{host}', ", why)
    if not is_source and kind not in ("log", "inMemory"):
        if annotation.get("on.error") is None:
            draft.note(NoteKind.DIFFERS, annotation.start, _WAITS)
        if kind == "http":
            draft.note(NoteKind.DIFFERS, annotation.start, _HTTP)


def _spelled(draft: Draft, written: WrittenElement, role: ExtensionRole) -> str:
    """The kind that an element names; one that differs in case alone is put right."""
    names = {name.lower(): name for name in registry.of_role(Connector(str(role)))}
    kind = names.get(written.text.lower(), written.text)
    if kind != written.text:
        draft.set_text(written, kind, f"the name of the {role} is {kind}")
    return kind


def _login(draft: Draft, annotation: WrittenAnnotation) -> None:
    """The login of a server, which has its own name and password here."""
    switch = annotation.element(_LOGIN)
    is_asked = switch is not None and switch.text.lower() == "true"
    has_login = annotation.get("basic.auth.username") or annotation.get("ref")
    if switch is None or not is_asked or has_login:
        return
    login = ", basic.auth.username='${HTTP_USERNAME}', basic.auth.password='${HTTP_PASSWORD}'"
    draft.change(switch.stop, switch.stop, login, _LOGIN_OF_ALL)


def _tls(draft: Draft, annotation: WrittenAnnotation, spec: Spec) -> None:
    """The certificate of a server by https, and key stores of Java."""
    has_certificate = annotation.get("ref") is not None
    for element in annotation.elements:
        option = spec.option(element.key or "")
        if option is None:
            continue
        has_certificate |= option.name in _CERTIFICATES
        if option.name in _KEY_STORES and element.text.lower().endswith(".jks"):
            why = (
                f"{element.key} is a file in PKCS#12 here: one in JKS is written so by "
                "'keytool -importkeystore -deststoretype PKCS12'"
            )
            draft.note(NoteKind.DIFFERS, element.start, why)
    url = annotation.element("receiver.url")
    if url is not None and url.text.lower().startswith("https:") and not has_certificate:
        draft.change(url.stop, url.stop, _CERTIFICATE, _CERTIFICATE_OF_ALL)


def _answer(draft: Draft, annotation: WrittenAnnotation) -> None:
    """The number of the request that a sink answers, where an attribute has its name."""
    opened = annotation.opened
    stream = _STREAM.search(draft.text, annotation.stop)
    attribute = _MESSAGE_ID.search(stream[1]) if stream is not None else None
    if opened is None or attribute is None or annotation.get("message.id") is not None:
        return
    why = f'message.id is the attribute "{attribute[0]}"'
    draft.change(opened, opened, f"message.id='{{{{{attribute[0]}}}}}', ", why)


def _is_defining(
    draft: Draft, annotation: WrittenAnnotation, annotations: Sequence[WrittenAnnotation]
) -> bool:
    """Whether an annotation precedes a definition, maybe with others between."""
    inside = [(one.start, one.stop) for one in annotations]
    for word in _DEFINED_OR_READ.finditer(draft.text, annotation.stop):
        if not any(start <= word.start() < stop for start, stop in inside):
            return word[0].lower() == "define"
    return False


def _mapper(draft: Draft, mapper: WrittenAnnotation, role: ExtensionRole) -> None:
    written = mapper.element("type")
    if written is None:
        return
    kind = _spelled(draft, written, role)
    extension = find_extension(role, kind)
    if not isinstance(extension, Extension) or not extension.runs:
        draft.set_text(written, "json", f"the mapper {kind} is json: so are the payloads")
        kind = "json"
    spec = registry.find(Connector(str(role)), kind)
    if spec is not None and not spec.is_open:
        _leave_out(draft, _unknown(mapper, spec), f'{role} "{kind}"')


def _unknown(annotation: WrittenAnnotation, spec: Spec) -> list[WrittenElement]:
    """The options of an annotation that a connector does not have."""
    keyed = [(e.key.lower(), e) for e in annotation.elements if e.key is not None]
    return [e for key, e in keyed if key not in _OF_ALL and spec.option(key) is None]


def _options(draft: Draft, annotation: WrittenAnnotation, spec: Spec, of: str) -> None:
    """Notes of options that are accepted without effect, and of those that are unknown."""
    ignored: list[str] = []
    for one in nested([annotation]):
        if one is not annotation and one.name.lower() != "destination":
            continue
        if not spec.is_open:
            _leave_out(draft, _unknown(one, spec), of)
        for element in one.elements:
            option = spec.option(element.key or "")
            if option is None or not option.is_ignored:
                continue
            if option.note:
                draft.note(NoteKind.DIFFERS, element.start, f"{element.key}: {option.note}")
            else:
                ignored.append(str(element.key))
    if ignored:
        names = ", ".join(dict.fromkeys(ignored))
        draft.note(NoteKind.DIFFERS, annotation.start, f"no effect here: {names}")


def _leave_out(draft: Draft, elements: Sequence[WrittenElement], of: str) -> None:
    """Keep options as comments only, with the commas that divide them from others."""
    text = draft.text
    runs: list[tuple[int, int]] = []
    for one in elements:
        why = f'option "{one.key}" of {of}: it has none like it'
        draft.note(NoteKind.ABSENT, one.start, why)
        if runs and not text[runs[-1][1] : one.start].strip(", \t\r\n"):
            runs[-1] = runs[-1][0], one.stop
        else:
            runs.append((one.start, one.stop))
    for start, stop in runs:
        after, before = text[stop:].lstrip(), text[:start].rstrip()
        if after.startswith(","):
            stop = len(text) - len(after) + 1
        elif before.endswith(","):
            start = len(before) - 1
        written = text[start:stop].replace("*/", "* /")
        draft.edits.append((start, stop, f"/* {written} */"))


def _file(draft: Draft, annotation: WrittenAnnotation) -> None:
    options = {(e.key or "").lower(): e.text for e in annotation.elements}
    action = annotation.element("action.after.process")
    if action is None or not is_followed(options) or action.text.lower() in ("keep", "none"):
        return
    draft.set_text(
        action,
        "keep",
        f"a file that is followed is never done, so action.after.process='{action.text}' is keep; "
        "tailing='false' reads each file once",
    )


# Stores and tables


def _store(
    draft: Draft, annotation: WrittenAnnotation, kind: str, defined: str, types: Mapping[str, str]
) -> bool:
    """Comment out a store that doesn't run here; whether it was."""
    store, reference = annotation.get("type") or "", annotation.get("ref")
    if not store and reference is not None and annotation.opened is not None:
        store, opened = types.get(reference, StoreKind.RDBMS), annotation.opened
        if store in set(StoreKind):
            why = f'reference "{reference}" of a store is a data source of stores.sources_file'
            draft.change(opened, opened, f"type='{store}', ", why)
    extension = find_extension(ExtensionRole.STORE, store)
    if not isinstance(extension, Extension) or not extension.runs:
        _unstore(draft, annotation, f'store "{store}"', kind, defined)
        return True
    _store_errors(draft, annotation)
    _store_options(draft, annotation, store)
    if store == StoreKind.REDIS:
        is_cluster = (annotation.get("cluster.mode") or "").lower() == "true"
        if is_cluster or kind == "aggregation":
            what = "a cluster of Redis" if is_cluster else f'store "{store}"'
            _unstore(draft, annotation, what, kind, defined)
        return is_cluster or kind == "aggregation"
    url = annotation.get("jdbc.url") or ""
    if "${" in url or not url or annotation.get("datasource") is not None or reference:
        return False
    try:
        database_of(url, annotation.get("username"), annotation.get("password"), Position(1, 1))
    except MeshError as error:
        if error.code == _NOT_SUPPORTED:
            what = error.message.removeprefix("not supported yet: ")
            _unstore(draft, annotation, what, kind, defined)
            return True
    return False


def _store_options(draft: Draft, annotation: WrittenAnnotation, store: str) -> None:
    """Options that no store has."""
    allowed = REDIS_OPTIONS if store == StoreKind.REDIS else RDBMS_OPTIONS
    keyed = [(one.key.lower(), one) for one in annotation.elements if one.key is not None]
    _leave_out(draft, [one for key, one in keyed if key not in allowed], f'store "{store}"')


def _store_errors(draft: Draft, annotation: WrittenAnnotation) -> None:
    """``on.error='STORE'`` of rows that the mesh has as well: they wait for the database."""
    written = annotation.element("on.error")
    if written is None or written.text.upper() != "STORE" or annotation.get("kept") is not None:
        return
    why = "a store waits for its database, so on.error='STORE' is RETRY"
    draft.set_text(written, "RETRY", why)


def _unstore(
    draft: Draft, annotation: WrittenAnnotation, what: str, kind: str, defined: str
) -> None:
    draft.comment_out(
        annotation,
        f'{what} of {kind} "{defined}": its rows are in the state of the app, where other programs '
        "don't see them; for a database write @store(type='rdbms', ..)",
    )


def _index(draft: Draft, annotation: WrittenAnnotation, *, is_stored: bool) -> None:
    """Indexes as other stores write them, and over several attributes in the state."""
    if is_stored or not annotation.elements:
        return
    matches = (_INDEXED.match(e.text) for e in annotation.elements)
    names = [match[1] for match in matches if match is not None]
    is_plain = [e.text for e in annotation.elements] == names and len(names) == 1
    if is_plain and annotation.name.lower() == "index":
        return
    text = " ".join(f"@Index('{name}')" for name in names)
    draft.change(annotation.start, annotation.stop, text, f"each attribute has an index: {text}")
