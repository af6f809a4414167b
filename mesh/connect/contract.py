"""Interface of connectors: the methods that an author writes, and the values that they exchange.

A connector is one class with the methods of ``Source``, ``Server`` or ``Sink``, made without
arguments.  The host does the rest: it retries with a growing delay, keeps positions, fences
replaced instances, maps payloads, distributes events and records those that are refused.

Client libraries, which are imported when they are used and may be absent.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from mesh.errors import MeshError
from mesh.model.values import JsonMapping

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

#: Values of options by name, of the kinds that the ``Spec`` declares.
Options: TypeAlias = Mapping[str, Any]


class UnavailableError(Exception):
    """The other side can't be used now; the host tries again.

    ``outcomes`` has the outcomes of records that were written or refused before, by their index.
    ``is_busy``: it works, and has too much to do.  ``is_lost``: the host opens a sink again before
    it tries the others.
    """

    def __init__(
        self,
        reason: str,
        *,
        retry_after_s: float | None = None,
        outcomes: Mapping[int, str | None] | None = None,
        is_busy: bool = False,
        is_lost: bool = False,
    ) -> None:
        super().__init__(reason)
        self.is_busy = is_busy
        self.is_lost = is_lost
        self.retry_after_s = retry_after_s
        self.outcomes = dict(outcomes or {})


class ShardsChangedError(Exception):
    """The parts of its input that an instance of a source reads are others now.

    The host opens the source again at once.
    """


class RefusedRecordsError(Exception):
    """A sink has written nothing, because it refuses some records; the host leaves those out.

    ``reasons`` has the reason of each refused record by its index.
    """

    def __init__(self, reasons: Mapping[int, str]) -> None:
        super().__init__(next(iter(reasons.values())))
        self.reasons = dict(reasons)


class FailedRecordsError(Exception):
    """A record could not be written, and no outage is known to be the reason.

    The host tries a few times, and then looks for the record.  ``outcomes`` has the outcomes of the
    records that were written or refused, by their index.
    """

    def __init__(self, reason: str, outcomes: Mapping[int, str | None]) -> None:
        super().__init__(reason)
        self.outcomes = dict(outcomes)


class RefusedPayloadError(Exception):
    """A payload that a server has accepted from a client can't be read; nothing of it is stored."""

    def __init__(self, reason: str, *, index: int = 0, is_too_large: bool = False) -> None:
        super().__init__(reason)
        self.index = index
        self.is_too_large = is_too_large


@dataclass(frozen=True, slots=True)
class NodeAccess:
    """Permissions of connectors on a node."""

    #: Directories below which files may be read and written.
    file_roots: tuple[str, ...] = ()
    #: ``host:port`` or ``host:first-last`` that may be bound.
    listen: tuple[str, ...] = ()
    #: The same of hosts that may be connected to; None for all.
    egress: tuple[str, ...] | None = None
    #: Connections to one address that is bound, half from one client; time of a request's head and
    #: of its body.
    connections_max: int = 800
    head_timeout_s: float = 10.0
    body_timeout_s: float = 60.0
    #: Files and directories of the mesh itself, with links resolved: closed, wherever they are.
    mesh_files: tuple[str, ...] = ()
    #: JetStream streams of the mesh that are not the app's own, and that it may read.
    reads: tuple[str, ...] = ()
    #: Whether statements of apps may change databases.
    changes_databases: bool = False


@dataclass(frozen=True, slots=True)
class Context:
    """Environment of one opened source or sink."""

    app: str
    stream: str
    #: Values of the options, as ``Spec.values`` gives them, dynamic ones as text.
    options: Options
    access: NodeAccess = field(default_factory=NodeAccess)
    #: Content type of a sink's payloads.
    content_type: str = ""
    #: Name of the instance, for connections and logs.
    instance: str = ""
    #: The host's own connection to the mesh's NATS servers; a connector does not close it.
    client: Any = None
    #: Name of a sink's destination, which is unique among apps and their incarnations.
    producer: str = ""
    #: Names and types of the stream's attributes.
    attributes: tuple[tuple[str, str], ...] = ()
    #: Number of the instance from 1, and of all instances of its group.
    index: int = 1
    count: int = 1
    #: Of the instance: a sink that keeps its own position refuses writers of earlier epochs by it.
    epoch: int = 0
    #: Beginning of each file, for a sink with ``writes_header = True``; else payloads have it.
    header: bytes = b""
    #: Of a source's mapper: whether a line ends inside of a value, which the next one continues.
    is_open: Callable[[bytes], bool] | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """Payloads that a source has read, and its position after them."""

    payloads: Sequence[bytes]
    #: JSON values; ``open`` gets them back.
    position: JsonMapping
    #: Transport properties of each payload by lower-case name; None for none.  One that is no text
    #: is bytes: an event that needs it is refused.
    properties: Sequence[Mapping[str, str | bytes]] | None = None
    #: Name of each payload, the same in every read of it; None if batches are always cut alike.
    names: Sequence[str] | None = None
    #: Reasons of payloads that the source itself can't read, by index; they are recorded.
    refused: Mapping[int, str] = field(default_factory=dict)


class Record(NamedTuple):
    """One payload for a sink."""

    #: Stable over replays, restarts and moves; unique in the mesh.
    key: str
    payload: bytes
    #: Values of dynamic options for this record.
    options: Mapping[str, str] = MappingProxyType({})
    #: Sequence of its message, 0 for a replay.  The last record of each write ends its message.
    sequence: int = 0
    #: Values by attribute, for a sink with ``takes_events = True``.
    event: JsonMapping | None = None


def payloads_of(records: Sequence[Record]) -> list[bytes]:
    """The payloads of records; those of the host are not made one by one for it."""
    payloads: list[bytes] | None = getattr(records, "payloads", None)
    return payloads if payloads is not None else [record.payload for record in records]


class Source(Protocol):
    """A source that reads at its own pace and knows its position.

    Several instances may share its input if it consists of parts with positions of their own.  Such
    a source has ``async shards(context)``, which the host calls before ``open``: the names of the
    parts that instance ``index`` of ``count`` reads.  A part belongs to one instance, by a rule
    that all instances apply alike.  ``open`` then gets the positions by part, and a batch has the
    positions of the parts that it is from.  ``read`` raises ``ShardsChangedError`` once the parts
    are others.

    A source with ``failed(batch, numbers)`` learns which payloads of a batch can't be read, before
    the batch is stored, and returns the batch with a position that knows it.

    A source that creates something on the other side has ``async remove(context)``, which deletes
    it: the host calls it once the source is removed from its app, with all others closed.

    A source that continues without a part of its input has the attribute ``problem``: after
    ``read`` the reason, which the status of the instance shows, or None.
    """

    async def open(self, context: Context, position: JsonMapping | None) -> None:
        """Begin after ``position``; None for the beginning."""
        ...

    async def read(self) -> Batch | None:
        """The next payloads; None if there are none yet.  The host calls it again at once."""
        ...

    async def committed(self, position: JsonMapping) -> None:
        """Everything up to ``position`` is stored; may be repeated for the same position."""
        ...

    async def close(self) -> None:
        """Release everything; also called after a failed ``open``."""
        ...

    # A source or sink whose ``open`` or ``read`` has an effect has ``async check(context)`` as
    # well, for 'mesh check': it raises UnavailableError, or returns a sample or None.


class Server(Protocol):
    """A source to which others send; it answers when ``accept`` has returned."""

    async def open(
        self,
        context: Context,
        accept: Callable[[bytes, Mapping[str, str], str | None], Awaitable[int]],
    ) -> None:
        """Begin to accept; ``accept`` stores a payload with its properties and its key.

        It returns the number of events once they are durable, and raises ``RefusedPayloadError``
        for a payload that can't be read, ``UnavailableError`` under back-pressure.
        """
        ...

    async def close(self) -> None:
        """Accept nothing more."""
        ...


class Sink(Protocol):
    """A sink.

    One that stores its position itself, in the transaction of the records, has the attribute
    ``position``: after ``open`` the ``sequence`` of the last record that is stored under
    ``Context.producer``, None for none.  The host begins after it.  ``events_max`` is the number of
    records up to which the host gives it whole messages in one ``write``; 2000 without it.
    """

    #: JSON values that the host stores with the position after each ``write``; None for a sink
    #: that needs none.  ``open`` gets them back, and undoes everything that was written later.
    state: JsonMapping | None

    async def open(self, context: Context, state: JsonMapping | None) -> None:
        """Connect."""
        ...

    async def write(self, records: Sequence[Record]) -> Sequence[str | None]:
        """Write records in order; for each None, or the reason why the other side refuses it.

        A lost connection (``OSError``, ``TimeoutError``, ``EOFError``) is an outage: the host
        waits, opens the sink again, and repeats the write.  With any other error it tries a few
        times, then divides the records until it has found the one that fails, and records it.

        Raises:
            UnavailableError: it can't be used now; with the outcomes so far.
            RefusedRecordsError: nothing was written; the host leaves the refused ones out.
            FailedRecordsError: a record has failed, with the outcomes of others.
        """
        ...

    async def close(self) -> None:
        """Release everything; also called after a failed ``open``."""
        ...


def library(module: str, extra: str) -> Any:
    """The module of a client library.

    Args:
        module: its name, such as ``confluent_kafka``.
        extra: the extra of this project that installs it.

    Raises:
        MeshError: MESH-C134 if it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MeshError(
            "MESH-C134",
            f'the library "{module}" is not installed here',
            detail=f"{error}.",
            hint=f"Run: pip install 'nats-event-mesh[{extra}]'",
        ) from error
