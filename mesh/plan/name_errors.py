"""Errors about names: unknown, ambiguous or duplicate; with the most similar known name."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError
from mesh.functions.catalogue import AGGREGATORS, SCALARS, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mesh.errors import Position
    from mesh.language.syntax import Variable
    from mesh.model.types import Attribute
    from mesh.plan.bound import Column

#: Maximum number of names in a message.
_SHOWN_MAX: Final = 20
#: Limits of the search for the nearest name, in names and length: it takes time.
_NEAR_MAX: Final = 1000
_LENGTH_MAX: Final = 100


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """A hint at the name that ``name`` probably means; None if none is similar."""
    if len(name) > _LENGTH_MAX:
        return None
    return did_you_mean(name, islice(candidates, _NEAR_MAX))


def shortened(names: Iterable[str], joint: str = ", ") -> str:
    """Names for a message; of many the first."""
    listed = list(islice(names, _SHOWN_MAX + 1))
    more = f"{joint}.." if len(listed) > _SHOWN_MAX else ""
    return f"{joint.join(listed[:_SHOWN_MAX])}{more}"


def refuse_doubles(columns: Sequence[Column], position: Position) -> None:
    """MESH-L210 where two of ``columns`` have one name."""
    seen: set[str] = set()
    for column in columns:
        if column.name in seen:
            raise MeshError(
                "MESH-L210",
                f'attribute "{column.name}" is from two inputs',
                hint="Select the attributes one by one, and give one of them another name.",
                position=position,
            )
        seen.add(column.name)


def unknown_attribute(variable: Variable, attributes: Iterable[Attribute], of: str) -> MeshError:
    """MESH-L202."""
    candidates = list(attributes)
    shown = shortened(dict.fromkeys(f"{a.name} {a.type}" for a in candidates))
    return MeshError(
        "MESH-L202",
        f'attribute "{variable.name}" is not defined',
        detail=f"Attributes of {of}: {shown}." if shown else f"There are no attributes of {of}.",
        hint=_as_null(variable.name)
        or nearest(variable.name, [a.name for a in candidates])
        or _as_function(variable.name),
        position=variable.position,
    )


def _as_null(name: str) -> str | None:
    """A hint at the test for null, which is no value of its own."""
    return "Null is not written as a value: test 'a is null'." if name.lower() == "null" else None


def _as_function(name: str) -> str | None:
    """A hint at the parentheses of a function's name."""
    is_function = name in SCALARS or name in AGGREGATORS
    return f"A function has parentheses: {name}()." if is_function else None


def unknown_source(
    variable: Variable, candidates: Sequence[str], hint: str | None = None
) -> MeshError:
    """MESH-L203."""
    return MeshError(
        "MESH-L203",
        f'"{variable.kind}{variable.source}" is not known here',
        detail=f"Known: {shortened(dict.fromkeys(candidates))}." if candidates else None,
        hint=hint or nearest(str(variable.source), candidates),
        position=variable.position,
    )


def ambiguous(variable: Variable, owners: Sequence[str]) -> MeshError:
    """MESH-L204."""
    return MeshError(
        "MESH-L204",
        f'attribute "{variable.name}" is ambiguous',
        detail=f"{shortened(dict.fromkeys(owners), ' and ')} have it.",
        hint=f"Write {owners[0]}.{variable.name}, for instance."
        if len(set(owners)) > 1
        else "Give them other names: S as one join S as other; e1=S -> e2=S.",
        position=variable.position,
    )
