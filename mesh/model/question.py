"""Wire form of on-demand queries between managers and workers.

A manager sends a ``Question`` about one part of a group to the worker that has it.  The worker
replies with messages, each a JSON head and a stretch of the answer's bytes:

    4 bytes: length of the head | head: a ``ReplyHead`` as JSON | bytes
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import orjson

from mesh.errors import MeshError
from mesh.model import codec
from mesh.model.values import JsonMapping

_LENGTH: Final = 4
_ID: Final = re.compile("[A-Za-z0-9_-]{0,100}")
#: Prefixes of subjects that replies may go to: those of clients' inboxes, and of the server's for
#: clients of other accounts.  Any other would let a client publish with the mesh's permissions.
_INBOXES: Final = ("_INBOX.", "_R_.")


def is_inbox(subject: str) -> bool:
    """Whether a reply may be sent to this subject."""
    return subject.startswith(_INBOXES)


@dataclass(frozen=True, slots=True)
class Question:
    """An on-demand query about one part of an instance."""

    app: str
    query: str
    instance: str
    #: In which the asking manager knows the instance to run there.
    epoch: int
    partition: int
    #: Time that the manager still waits, seconds.
    limit_s: float
    #: By JetStream stream: the sequence that the answer has to include.
    at_least: Mapping[str, int] = field(default_factory=dict)
    #: Whether the answer is one of several that the manager merges; see ``operators.divided``.
    is_divided: bool = False
    #: Of a change of a table: its id.  The answer is the outcome, as JSON.
    change: str = ""
    #: Whether the rows may be a JSON list of lists: nothing has to be done with them.
    may_be_json: bool = False


@dataclass(frozen=True, slots=True)
class ReplyHead:
    """The head of one message of a reply."""

    #: Its number, from 0, and the number of all.
    number: int = 0
    count: int = 1
    #: By JetStream stream: the last sequence that the answer includes.
    positions: Mapping[str, int] = field(default_factory=dict)
    #: The error in the form of ``MeshError.to_dict``; None for an answer.
    error: JsonMapping | None = None
    #: Whether the bytes are a JSON list of lists, see ``Question.may_be_json``.
    is_json: bool = False


@dataclass(frozen=True, slots=True)
class AnswerTask:
    """A question with the place of its answer, for the process that computes it."""

    #: Of the instances of the worker's session.
    directory: str
    instance: str
    epoch: int
    partition: int
    app_text: str
    group_text: str
    #: The streams that leave the group.
    outputs: tuple[str, ...]
    #: The JetStream streams that the part reads.
    streams: tuple[str, ...]
    query: str
    at_least: Mapping[str, int]
    rows_max: int
    bytes_max: int
    is_divided: bool = False
    change: str = ""
    #: The name of the part in the markers of databases.
    producer: str = ""
    #: By stream that the part reads by key: the key's attributes, and the number of partitions.
    keys: Mapping[str, tuple[tuple[str, ...], int]] = field(default_factory=dict)
    may_be_json: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer: its rows, or the outcome of a change; the last sequences in it.

    Rows are an Arrow IPC stream, or with ``is_json`` a JSON list of lists.
    """

    data: bytes
    positions: Mapping[str, int]
    is_json: bool = False


def to_messages(reply: ReplyHead, data: bytes, most: int) -> list[bytes]:
    """The messages of a reply, each of ``most`` bytes at most; one for an empty answer."""
    room = most - len(_message(reply, b"")) - 64
    parts = [data[start : start + room] for start in range(0, len(data), room)] or [b""]
    return [
        _message(replace(reply, number=number, count=len(parts)), part)
        for number, part in enumerate(parts)
    ]


def from_message(data: bytes) -> tuple[ReplyHead, bytes]:
    """The head and the bytes of one message; MESH-C100 if it is none."""
    length = int.from_bytes(data[:_LENGTH], "big")
    head = codec.decode(ReplyHead, data[_LENGTH : _LENGTH + length])
    return head, data[_LENGTH + length :]


def too_many_rows(count: int, rows_max: int) -> MeshError:
    """MESH-A413 for an answer of too many rows."""
    return MeshError(
        "MESH-A413",
        f"the answer has {count} rows",
        detail=f"queries.rows_max allows {rows_max}.",
        hint="Ask for less with 'on', 'limit' and 'offset', or for aggregates.",
    )


def _message(reply: ReplyHead, data: bytes) -> bytes:
    head = codec.encode(reply)
    return len(head).to_bytes(_LENGTH, "big") + head + data


# Queries of clients


@dataclass(frozen=True, slots=True)
class QueryRequest:
    """A query as a client sends it."""

    query: str
    at_least: Mapping[str, int]
    partial: bool = False
    details: bool = False
    #: Of a change, given by a client that may send it again; empty: the manager gives one.
    id: str = ""


def query_of(data: bytes) -> QueryRequest:
    """A query from a message: its text, or a JSON object with further fields; MESH-A400."""
    if not data.lstrip().startswith(b"{"):
        try:
            return QueryRequest(data.decode("utf-8"), {})
        except UnicodeDecodeError as error:
            raise MeshError(
                "MESH-A400", "the text of a query is UTF-8", detail=f"{error}."
            ) from error
    try:
        values = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise MeshError("MESH-A400", "the body is not JSON", detail=f"{error}.") from error
    return request_of(values)


def request_of(values: object) -> QueryRequest:
    """A query from JSON values; MESH-A400."""
    if not isinstance(values, dict):
        raise MeshError("MESH-A400", "a query is a JSON object")
    query, at_least = values.get("query"), values.get("min_position") or {}
    flags = [values.get(name) or False for name in ("partial", "details")]
    if not isinstance(query, str) or not query.strip():
        # The words of the system before this one.
        raise MeshError("MESH-A400", "query cannot be empty or null")
    if not isinstance(at_least, dict) or not all(_is_sequence(n) for n in at_least.values()):
        raise MeshError("MESH-A400", '"min_position" is an object of JetStream streams and numbers')
    if not all(isinstance(flag, bool) for flag in flags):
        raise MeshError("MESH-A400", '"partial" and "details" are true or false')
    id_ = values.get("id") or ""
    if not isinstance(id_, str) or not _ID.fullmatch(id_):
        raise MeshError("MESH-A400", '"id" has at most 100 letters, digits, "_" and "-"')
    partial, details = flags
    return QueryRequest(query, at_least, partial, details, id_)


def _is_sequence(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
