"""Answers of the language service for pages, computed in a process of bounded time and memory."""

from __future__ import annotations

from dataclasses import dataclass
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
from mesh.language_service.navigation import definition, fixes, renamable, rename
from mesh.language_service.outline import inferred_types, lenses
from mesh.plan.connectors import needs_types, with_types
from mesh.processes.bounded_process import BoundedProcess

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mesh.errors import Position
    from mesh.language_service.navigation import TextEdit
    from mesh.language_service.proposals import ClusterStream
    from mesh.model.values import JsonObject
    from mesh.processes.bounded_process import Process

#: Longest text, and time for one answer.
TEXT_LENGTH_MAX: Final = 200_000
TIME_S_MAX: Final = 5.0
#: Last line, for what is asked of a whole text.
_LAST_LINE: Final = TEXT_LENGTH_MAX
#: Requests that wait at most: a page asks again with the next key.
WAITING_MAX: Final = 16


def _exceeded(detail: str) -> MeshError:
    return MeshError(
        "MESH-A413", "the text can't be analysed within its limits", detail=detail,
        hint="'mesh validate' checks it without limits.",
    )  # fmt: skip


#: Of this Python process, so that it is started once.
_PROCESS: Final = BoundedProcess(__name__, _exceeded)


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a text that is being written."""

    #: A name of ``_ANSWERS``.
    kind: str
    text: str
    #: Of the app, if the text has none.
    name: str = ""
    #: A place in the text, counted from 1, in characters.
    line: int = 1
    column: int = 1
    #: For ``rename`` the new name.
    to: str = ""
    #: For ``completion`` the streams of the cluster.
    streams: tuple[ClusterStream, ...] = ()


class LanguageDesk:
    """Answers about texts that are being written."""

    def __init__(self, refs_file: str = "", process: Process = _PROCESS) -> None:
        self._refs_file = refs_file
        self._process = process
        self._waiting = Bound(WAITING_MAX, "answers about texts wait")
        self._limiter = CapacityLimiter(1)

    async def answer(self, question: Question) -> Any:
        """The answer, as JSON values.

        Raises:
            MeshError: MESH-A400 for a question of no such kind, MESH-A413 for a text that is too
                long or takes too long, MESH-A429 while many wait, MESH-U184 for a name that can't
                be given.
        """
        text = question.text
        if question.kind not in _ANSWERS:
            raise MeshError("MESH-A400", f'there is no answer "{question.kind}" about a text')
        if len(text) > TEXT_LENGTH_MAX:
            raise _exceeded(f"It has more than {TEXT_LENGTH_MAX} characters.")
        types = tuple(types_of(self._refs_file).items()) if needs_types(text) else ()
        with self._waiting.turn():
            return await anyio.to_thread.run_sync(
                partial(self._process.call, TIME_S_MAX, answer_of, question, types),
                limiter=self._limiter,
                abandon_on_cancel=True,
            )


def answer_of(question: Question, types: tuple[tuple[str, str], ...]) -> object:
    """See ``LanguageDesk.answer``; ``types``: those of references."""
    return _ANSWERS[question.kind](_document(question.text, question.name, types), question)


@lru_cache(maxsize=8)
def _document(text: str, name: str, types: tuple[tuple[str, str], ...]) -> Document:
    return Document(text, name, lambda source: with_types(source, dict(types)) if types else source)


def _errors(document: Document, _: Question) -> list[JsonObject]:
    by_error: dict[int, list[JsonObject]] = {}
    for fix in fixes(document, 1, _LAST_LINE):
        edits = _edits([fix.edit])
        by_error.setdefault(id(fix.error), []).append({"title": fix.title, "edits": edits})
    return [
        {
            **error.to_dict(),
            "is_warning": error.code == NOT_RUN_YET,
            "fixes": by_error.get(id(error), []),
        }
        for error in document.problems
    ]


def _completion(document: Document, question: Question) -> JsonObject:
    completion = complete(document, question.line, question.column, question.streams)
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


def _hover(document: Document, question: Question) -> JsonObject | None:
    info = hover(document, question.line, question.column)
    if info is None:
        return None
    return {"code": info.code, "doc": info.doc, "position": _place(info.position)}


def _format(document: Document, _: Question) -> dict[str, str] | None:
    text = document.formatted
    return {"text": text} if text is not None else None


def _definition(document: Document, question: Question) -> dict[str, int] | None:
    at = definition(document, question.line, question.column)
    return _place(at) if at is not None else None


def _name(document: Document, question: Question) -> JsonObject | None:
    """The name at a place, if it can be changed."""
    at = renamable(document, question.line, question.column)
    return {"name": document.slice(at), "position": _place(at)} if at is not None else None


def _rename(document: Document, question: Question) -> list[JsonObject]:
    return _edits(rename(document, question.line, question.column, question.to))


def _notes(document: Document, _: Question) -> JsonObject:
    """The lines above queries, and the types after selected attributes."""
    found = {"lenses": lenses(document), "types": inferred_types(document, 1, _LAST_LINE)}
    return {
        kind: [{**_place(one.position), "text": one.text} for one in notes]
        for kind, notes in found.items()
    }


def _place(at: Position) -> dict[str, int]:
    return {"line": at.line, "column": at.column, "length": at.length}


def _edits(edits: Iterable[TextEdit]) -> list[JsonObject]:
    return [{**_place(one.position), "text": one.text} for one in edits]


_ANSWERS: Final = {
    "errors": _errors, "completion": _completion, "hover": _hover, "format": _format,
    "definition": _definition, "name": _name, "rename": _rename, "notes": _notes,
}  # fmt: skip
