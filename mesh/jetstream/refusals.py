"""Errors of the API for calls that NATS did not answer, or that another writer's change refused."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js.errors import APIError, BucketNotFoundError

from mesh.errors import MeshError
from mesh.jetstream import kv
from mesh.jetstream.connection import UNREACHABLE
from pyspark_nats.protocol.answers import FULL_CODES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.model.values import JsonMapping

#: Errors that only calls of NATS raise; a request that they end is answered with MESH-A503.
NATS_ERRORS: Final = (NatsError, NatsTimeoutError)


#: Of a write, and of a stream that is made: limits of streams, and no server with room for it.
NO_ROOM: Final = FULL_CODES | {10035, 10005, 10120}
_MAKE_ROOM: Final = (
    "Free room ('nats stream ls', 'nats stream purge'), or raise max_file_store of the servers or"
    " the limits of the account."
)


def no_room(error: BaseException) -> str:
    """The refusal of a write for which JetStream has no room, in words; empty for other errors."""
    if isinstance(error, APIError) and error.err_code in NO_ROOM:
        return f"JetStream has no room: {error.description}"
    return ""


def answer_of(error: JsonMapping) -> str:
    """The refusal in an answer of JetStream as a sentence, with the remedy if there is no room."""
    said = f"The server says: {error.get('description')}."
    return f"{said} {_MAKE_ROOM}" if error.get("err_code") in NO_ROOM else said


def unreachable(error: Exception) -> MeshError:
    """The error for a call that NATS did not answer: MESH-A503; MESH-N127 without its bucket."""
    if isinstance(error, BucketNotFoundError):
        named = error.bucket if isinstance(error, kv.BucketMissingError) else "of the mesh"
        return MeshError(
            "MESH-N127",
            f"NATS has no bucket {named}",
            detail="It was deleted while the cluster ran.",
            hint="The managers make it again within seconds; try again then.",
        )
    if reason := no_room(error):
        return MeshError("MESH-A503", reason, hint=_MAKE_ROOM)
    return MeshError(
        "MESH-A503",
        "NATS did not answer",
        detail=f"{type(error).__name__}: {error}.",
        hint="Try again; 'nats server check jetstream' tells more.",
    )


@contextmanager
def refusals(on_conflict: MeshError | None = None) -> Iterator[None]:
    """Translate failures of NATS calls into errors of the API.

    Args:
        on_conflict: raised where another writer was first; without one the conflict passes.

    Raises:
        MeshError: ``on_conflict``, or MESH-A503 when NATS does not answer.
    """
    try:
        yield
    except kv.RevisionConflict as conflict:
        if on_conflict is None:
            raise
        raise on_conflict from conflict
    except UNREACHABLE as error:
        raise unreachable(error) from error
