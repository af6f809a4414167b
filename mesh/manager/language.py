"""Answers of the language service for pages, computed in a process of bounded time and memory."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final

import anyio.to_thread
from anyio import CapacityLimiter

from mesh.connect.references import types_of
from mesh.errors import MeshError
from mesh.http.bounds import Bound
from mesh.language_service.completion import complete
from mesh.language_service.document import NOT_RUN_YET, Document
from mesh.language_service.hover import hover
from mesh.plan.typed_references import needs_types, with_types
from mesh.processes.bounded_process import BoundedProcess

if TYPE_CHECKING:
    from mesh.model.values import JsonObject
    from mesh.processes.bounded_process import Process

#: Longest text, and time for one answer.
TEXT_LENGTH_MAX: Final = 200_000
TIME_S_MAX: Final = 5.0
#: Requests that wait at most: a page asks again with the next key.
WAITING_MAX: Final = 16


def _exceeded(detail: str) -> MeshError:
    return MeshError(
        "MESH-A413", "the text can't be analysed within its limits", detail=detail,
        hint="'mesh validate' checks it without limits.",
    )  # fmt: skip


#: Of this Python process, so that it is started once.
_PROCESS: Final = BoundedProcess(__name__, _exceeded)


class LanguageDesk:
    """Errors, completion and hover of texts that are being written."""

    def __init__(self, refs_file: str = "", process: Process = _PROCESS) -> None:
        self._refs_file = refs_file
        self._process = process
        self._waiting = Bound(WAITING_MAX, "answers about texts wait")
        self._limiter = CapacityLimiter(1)

    async def answer(self, kind: str, text: str, name: str, line: int, column: int) -> Any:
        """The answer about a place of a text, as JSON values.

        Args:
            kind: ``errors``, ``completion`` or ``hover``.
            text: SiddhiQL.
            name: of the app, if the text has none.
            line: from 1; so is the column, in characters.
            column: without a meaning for errors.

        Raises:
            MeshError: MESH-A400 for another question, MESH-A413 for a text that is too long or
                takes too long, MESH-A429 while many wait.
        """
        if kind not in _ANSWERS:
            raise MeshError("MESH-A400", f'there is no answer "{kind}" about a text')
        if len(text) > TEXT_LENGTH_MAX:
            raise _exceeded(f"It has more than {TEXT_LENGTH_MAX} characters.")
        types = tuple(types_of(self._refs_file).items()) if needs_types(text) else ()
        with self._waiting.turn():
            return await anyio.to_thread.run_sync(
                partial(
                    self._process.call,
                    TIME_S_MAX,
                    answer_of,
                    kind,
                    text,
                    name,
                    types,
                    line,
                    column,
                ),
                limiter=self._limiter,
                abandon_on_cancel=True,
            )


def answer_of(
    kind: str, text: str, name: str, types: tuple[tuple[str, str], ...], line: int, column: int
) -> object:
    """See ``LanguageDesk.answer``; ``types``: those of references."""
    return _ANSWERS[kind](_document(text, name, types), line, column)


@lru_cache(maxsize=8)
def _document(text: str, name: str, types: tuple[tuple[str, str], ...]) -> Document:
    return Document(text, name, lambda source: with_types(source, dict(types)) if types else source)


def _errors(document: Document, line: int, column: int) -> list[JsonObject]:
    return [
        {**error.to_dict(), "is_warning": error.code == NOT_RUN_YET} for error in document.problems
    ]


def _completion(document: Document, line: int, column: int) -> JsonObject:
    completion = complete(document, line, column)
    start = document.places.of(completion.start, completion.start)
    return {
        "line": start.line,
        "column": start.column,
        "proposals": [
            {
                "label": one.label,
                "kind": str(one.kind),
                "detail": one.detail,
                "doc": one.doc,
                "insert": one.insert or one.label,
            }
            for one in completion.proposals
        ],
    }


def _hover(document: Document, line: int, column: int) -> JsonObject | None:
    info = hover(document, line, column)
    if info is None:
        return None
    at = info.position
    position = {"line": at.line, "column": at.column, "length": at.length}
    return {"code": info.code, "doc": info.doc, "position": position}


_ANSWERS: Final = {"errors": _errors, "completion": _completion, "hover": _hover}
