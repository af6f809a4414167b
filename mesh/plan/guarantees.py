"""Delivery of an app: exactly once between its channels, and what each source and sink gives.

``@App:guarantee('exactly-once')`` refuses an app that has a weaker border.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.connect import registry
from mesh.connect.spec import Guarantee, Role
from mesh.errors import MeshError
from mesh.language.parser import parse_app
from mesh.language.syntax import find
from mesh.plan.guarantee_audit import some

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mesh.language.syntax import Annotation, App
    from mesh.model.app import AppSpec
    from mesh.plan.receivers import ConnectorGroup

_ANNOTATION: Final = "App:guarantee"
#: From the strongest to the weakest.
_BY_WORD: Final = {
    guarantee.value.partition(",")[0].replace(" ", "-"): guarantee
    for guarantee in (Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE, Guarantee.AT_MOST_ONCE)
}
_ORDER: Final = tuple(Guarantee)


def check_guarantee(tree: App, connectors: Iterable[ConnectorGroup]) -> None:
    """Refuse sources and sinks that give less than the app demands.

    Raises:
        MeshError: MESH-P234 for a word that is no guarantee, MESH-P235 for a weaker border.
    """
    annotation = find(tree.annotations, _ANNOTATION)
    if annotation is None:
        return
    demanded = _demanded_by(annotation)
    if demanded is None:
        raise MeshError(
            "MESH-P234",
            f'@{annotation.name} is no guarantee: "{_word(annotation)}"',
            hint=f"Write one of {', '.join(_BY_WORD)}.",
            position=annotation.position,
        )
    for connector in connectors:
        guarantee = guarantee_of(connector.kind)
        if guarantee is None or _ORDER.index(guarantee) >= _ORDER.index(demanded):
            continue
        role = "source" if connector.is_source else "sink"
        others = [
            name
            for name, spec in registry.of_role(Role(role)).items()
            if _ORDER.index(spec.guarantee) >= _ORDER.index(demanded)
        ]
        raise MeshError(
            "MESH-P235",
            f'{connector.kind} of stream "{connector.stream}" gives {guarantee.value}, '
            f"and the app demands {demanded.value}",
            hint=f"Types of a {role} that give it: {', '.join(sorted(others))}; or leave out "
            f"@{annotation.name}.",
            position=connector.annotation.position,
        )


def demanded_guarantee(text: str) -> Guarantee | None:
    """The guarantee that the text of an app demands; None for one without the annotation."""
    annotation = find(parse_app(text).annotations, _ANNOTATION)
    return None if annotation is None else _demanded_by(annotation)


def _word(annotation: Annotation) -> str:
    return (annotation.get() or "").strip().lower()


def _demanded_by(annotation: Annotation) -> Guarantee | None:
    return _BY_WORD.get(_word(annotation))


def guarantee_of(connector: str) -> Guarantee | None:
    """The guarantee of ``source http`` and the like; None for one that is not installed."""
    role, _, name = connector.partition(" ")
    spec = registry.find(Role(role), name)
    return spec.guarantee if spec is not None else None


def describe_delivery(spec: AppSpec) -> str:
    """One line: the delivery between channels, and the weakest borders."""
    borders: list[tuple[Guarantee, str]] = [
        (guarantee, group.name)
        for group in spec.groups
        for connector in group.connectors
        if (guarantee := guarantee_of(connector)) is not None
    ]
    inside = "exactly once between channels"
    weakest = min((guarantee for guarantee, _ in borders), key=_ORDER.index, default=None)
    if weakest is None or weakest is Guarantee.EXACTLY_ONCE:
        return f"{inside}{', sources and sinks' if borders else ''}"
    where = some([name for guarantee, name in borders if guarantee is weakest])
    return f"{inside}; {weakest.value} in {where}"
