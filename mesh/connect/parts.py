"""Options that many connectors declare."""

from __future__ import annotations

from typing import Final

from mesh.connect.places import OptionPlace
from mesh.connect.spec import Kind, Option

#: Of every sink.
ON_ERROR: Final = Option(
    "on.error",
    default="WAIT",
    choices=("WAIT", "LOG", "STORE", "STREAM"),
    doc="WAIT: this sink waits and tries again. LOG: drops the events. STORE: error stream. "
    "STREAM: fault stream.",
)
#: Of every source: for payloads that can't be read and have no client that waits for an answer.
ON_UNREADABLE: Final = Option(
    "on.error",
    default="STORE",
    choices=("LOG", "STORE", "STREAM"),
    doc="Of payloads that can't be read. STORE: error stream. LOG: drops them. STREAM: fault "
    "stream, with null for each attribute.",
)
REF: Final = Option("ref", doc="Options from the node's own file; written ones take precedence.")
SOURCE: Final = (ON_UNREADABLE, REF)
SINK: Final = (ON_ERROR, REF)


def ignored(*names: str) -> tuple[Option, ...]:
    """Options that steer the engine's own threads and pools."""
    return tuple(Option(name, is_ignored=True, doc="No effect here.") for name in names)


def noted(note: str, *names: str) -> tuple[Option, ...]:
    """Options that are accepted without effect, of which a deploy says what serves instead."""
    return tuple(Option(name, is_ignored=True, note=note, doc=note) for name in names)


def secret(name: str, doc: str) -> Option:
    """An option that is never shown."""
    return Option(name, is_secret=True, doc=doc)


def required(name: str, doc: str) -> Option:
    """A text that must be given."""
    return Option(name, is_required=True, doc=doc)


def of_event(
    name: str, doc: str, place: OptionPlace, kind: Kind = Kind.TEXT, *, is_required: bool = False
) -> Option:
    """An option that an event may leave empty: it then has none."""
    return Option(name, kind, is_required=is_required, place=place, may_be_empty=True, doc=doc)


def headers(doc: str) -> Option:
    """Headers of a message or request."""
    return of_event("headers", doc, OptionPlace.HEADERS, Kind.PAIRS)


def switch(name: str, default: str, doc: str) -> Option:
    """True or false."""
    return Option(name, Kind.SWITCH, default, doc=doc)


def file(name: str, doc: str) -> Option:
    """A path of the node."""
    return Option(name, is_file=True, doc=doc)


#: Of every connector that may use TLS, with the names of the original's.
TLS: Final = (
    file("tls.ca", "PEM file of the authority."),
    file("tls.cert", "PEM file of the own certificate."),
    file("tls.key", "PEM file of its key."),
    Option(
        "tls.store",
        is_file=True,
        aliases=("keystore.file", "https.keystore.file", "keystore.path", "tls.keystore.path"),
        doc="PKCS#12 file with certificate, key and authorities.",
    ),
    Option(
        "tls.store.password",
        is_secret=True,
        aliases=("keystore.password", "https.keystore.password", "tls.keystore.password"),
        doc="Password of tls.store.",
    ),
    Option(
        "tls.truststore",
        is_file=True,
        aliases=(
            "truststore.file", "https.truststore.file", "truststore.path", "tls.truststore.path",
            "client.truststore.file",
        ),
        doc="PKCS#12 file with authorities.",
    ),
    Option(
        "tls.truststore.password",
        is_secret=True,
        aliases=(
            "truststore.password", "https.truststore.password", "client.truststore.password",
        ),
        doc="Password of tls.truststore.",
    ),
    *ignored(
        "tls.store.type", "client.verify", "keystore.algorithm", "truststore.algorithm",
        "tls.keystore.type", "tls.keystore.algorithm", "tls.truststore.type",
        "tls.truststore.algorithm", "tls.version",
    ),
)  # fmt: skip
