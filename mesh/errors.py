"""The one error type that people see, and how it is shown.

A code is stable and starts with ``MESH-`` and a letter for where it was found: L language, P plan,
D data, O operators, S Spark, N NATS, C control plane, A API, U usage of the command line.  The
message is a lower-case fragment that names the kind and the name of the thing, without a full stop;
detail and hint are full sentences.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

#: Of SiddhiQL and of positions in it.
LINE_END: Final = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class Position:
    """A stretch of source text.

    Lines and columns count from 1; ``length`` is in characters and stays within the line.
    """

    line: int
    column: int
    length: int = 1


def text_lines(text: str) -> list[str]:
    """The lines of a text as positions count them; ``str.splitlines`` ends lines elsewhere too."""
    return LINE_END.split(text)


class MeshError(Exception):
    """Something a person can act on: a code, a message, a detail, a hint and a place."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        detail: str | None = None,
        hint: str | None = None,
        position: Position | None = None,
        related: Position | None = None,
    ) -> None:
        """Describe the error.

        Args:
            code: see the module.
            message: a fragment that names the kind and the name of the thing.
            detail: sentences; ``{line}`` in them is the line of ``related``.
            hint: what to do.
            position: where it is in its text.
            related: where the other thing is that the detail names.
        """
        super().__init__(message)
        self.code = code
        self.message = message
        self._detail = detail
        if detail is not None and related is not None:
            detail = detail.replace("{line}", str(related.line))
        self.detail = detail
        self.hint = hint
        self.position = position
        self.related = related
        # A traceback shows them below the message.
        for note in filter(None, (detail, hint)):
            self.add_note(note)

    def __str__(self) -> str:
        where = f" at {self.position.line}:{self.position.column}" if self.position else ""
        return f"{self.message}{where} [{self.code}]"

    def one_line(self) -> str:
        """The message, the detail and the hint, for statuses and logs."""
        more = " ".join(filter(None, (self.detail, self.hint)))
        return f"{self}: {more}" if more else str(self)

    def render(self, text: str | None = None, source: str = "app.siddhi") -> str:
        """Show the error as a person reads it, with the line of ``text`` it points at."""
        lines = [f"{self.message} [{self.code}]"]
        if self.position is not None:
            at = self.position
            lines.append(f"  --> {source}:{at.line}:{at.column}")
            source_lines = text_lines(text) if text is not None else []
            if 0 < at.line <= len(source_lines):
                number = str(at.line)
                # Tabs would move the caret away from what it marks.
                shown = source_lines[at.line - 1].replace("\t", " ")
                lines.append(f"  {number} | {shown}")
                lines.append(" " * (len(number) + 5 + at.column - 1) + "^" * max(1, at.length))
        if self.detail:
            lines.append(f"  detail: {self.detail}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)

    def moved(self, to: Callable[[Position], Position]) -> MeshError:
        """The same error of a text in which its positions are others."""
        at, related = (one and to(one) for one in (self.position, self.related))
        return MeshError(
            self.code,
            self.message,
            detail=self._detail,
            hint=self.hint,
            position=at,
            related=related,
        )

    def to_dict(self) -> dict[str, Any]:
        """The error as JSON values, for the API and ``--output json``."""
        out: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.detail:
            out["detail"] = self.detail
        if self.hint:
            out["hint"] = self.hint
        if self.position:
            at = self.position
            out["position"] = {"line": at.line, "column": at.column, "length": at.length}
        return out

    def __reduce__(self) -> tuple[object, ...]:
        parts = self.code, self.message, self._detail, self.hint, self.position, self.related
        return (_rebuild, parts)


def error_of(values: Mapping[str, Any]) -> MeshError:
    """The error of JSON values as ``MeshError.to_dict`` has them; several if they say so."""
    several = values.get("errors") or ()
    if len(several) > 1:
        return MeshErrors([error_of(one) for one in several])
    at = values.get("position")
    return MeshError(
        str(values["code"]),
        str(values["message"]),
        detail=values.get("detail"),
        hint=values.get("hint"),
        position=Position(**at) if at else None,
    )


def _rebuild(
    code: str,
    message: str,
    detail: str | None,
    hint: str | None,
    position: Position | None,
    related: Position | None,
) -> MeshError:
    return MeshError(code, message, detail=detail, hint=hint, position=position, related=related)


class MeshErrors(MeshError):
    """Several errors of one text, in its order; as an error it is the first of them."""

    def __init__(self, errors: Sequence[MeshError]) -> None:
        first = errors[0]
        super().__init__(
            first.code,
            first.message,
            detail=first.detail,
            hint=first.hint,
            position=first.position,
            related=first.related,
        )
        self.errors = tuple(errors)

    def __reduce__(self) -> tuple[object, ...]:
        return (MeshErrors, (self.errors,))


def all_errors(error: MeshError) -> tuple[MeshError, ...]:
    """The errors that ``error`` stands for: several, or itself."""
    return error.errors if isinstance(error, MeshErrors) else (error,)


def not_supported(
    what: str, position: Position | None = None, hint: str | None = None
) -> MeshError:
    """The refusal of a part of SiddhiQL that is not built yet; says where it stands."""
    return MeshError(
        "MESH-P900",
        f"not supported yet: {what}",
        hint=hint or "docs/siddhiql.md lists what is supported.",
        position=position,
    )
