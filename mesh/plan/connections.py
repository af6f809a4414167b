"""``@source``, ``@sink`` and ``@store``: kinds, options, mappers and destinations, checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.connect.places import TEMPLATE
from mesh.errors import MeshError, not_supported
from mesh.functions.catalogue import (
    EXTENSIONS,
    CallRefusal,
    Extension,
    ExtensionRole,
    check_options,
    find_extension,
    instead_of_kind,
)
from mesh.language.syntax import find
from mesh.plan.expressions import refused
from mesh.plan.name_errors import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mesh.language.syntax import Annotation, AttributeDefinition


def check_source(source: Annotation, attributes: Sequence[AttributeDefinition]) -> None:
    """Refuse a ``@source`` that the engine refuses; MESH-L223 or MESH-L224."""
    extension = _extension(source, ExtensionRole.SOURCE)
    _check_options(source, extension, _options(source), attributes)
    mapper = _mapper(source, ExtensionRole.SOURCE_MAPPER)
    mapped = find(mapper.annotations, "attributes") if mapper is not None else None
    if mapper is not None and mapped is not None:
        _check_mapped(mapper, mapped, attributes)


def _check_mapped(
    mapper: Annotation, mapped: Annotation, attributes: Sequence[AttributeDefinition]
) -> None:
    keys = [key for key, _ in mapped.elements]
    if None in keys and any(key is not None for key in keys):
        way_out = "Give a name to all of them, as in a='$.x', or to none."
        raise wrong(mapped, "@attributes has elements with and without names", way_out)
    names = [attribute.name for attribute in attributes]
    if None in keys:
        if len(keys) != len(names):
            raise wrong(mapped, f"@attributes has {len(keys)} elements, the stream {len(names)}")
        return
    mapped_keys = set(keys)
    missing = next((name for name in names if name not in mapped_keys), None)
    if missing is not None:
        odd = next((key for key in keys if key is not None and key not in names), None)
        hint = nearest(odd, names) if odd is not None else None
        raise wrong(mapped, f'@attributes says nothing of attribute "{missing}"', hint)


def check_sink(sink: Annotation, attributes: Sequence[AttributeDefinition]) -> None:
    """Refuse a ``@sink`` that the engine refuses; MESH-L223 or MESH-L224."""
    extension = _extension(sink, ExtensionRole.SINK)
    mapper = _mapper(sink, ExtensionRole.SINK_MAPPER)
    if mapper is not None:
        _check_payload(mapper, attributes)
    options = _options(sink)
    distribution = find(sink.annotations, "distribution")
    if distribution is None:
        _check_options(sink, extension, options, attributes)
        return
    strategy = _extension(distribution, ExtensionRole.DISTRIBUTION, key="strategy")
    settings = _options(distribution, but="strategy")
    _check_options(distribution, strategy, settings, attributes)
    destinations = [a for a in distribution.annotations if a.name.lower() == "destination"]
    if not destinations:
        hint = "Write @destination(..) in it for each."
        raise wrong(distribution, "@distribution has no destination", hint)
    for destination in destinations:
        _check_options(destination, extension, options | _options(destination), attributes)


def check_store(store: Annotation) -> None:
    """Refuse a ``@store`` of a kind that is not known; MESH-L223 or MESH-L224."""
    _extension(store, ExtensionRole.STORE)


def _extension(annotation: Annotation, role: ExtensionRole, key: str = "type") -> Extension:
    name = annotation.get(key)
    reference = annotation.get("ref")
    if (
        name is None
        and reference is not None
        and role in (ExtensionRole.SOURCE, ExtensionRole.SINK)
    ):
        raise wrong(
            annotation,
            f'@{annotation.name} has no type, and reference "{reference}" has none here',
            f"Write @{annotation.name}(type='..', ref='{reference}'), or give the reference its "
            "type in the file of receiver.refs_file of each manager.",
        )
    if name is None:
        of_reference = f", ref='{reference}'" if reference is not None else ""
        kind = "rdbms" if role is ExtensionRole.STORE else ".."
        raise wrong(
            annotation,
            f'@{annotation.name} has no element "{key}"',
            f"Write @{annotation.name}({key}='{kind}'{of_reference}).",
        )
    extension = find_extension(role, name)
    if isinstance(extension, CallRefusal):
        raise refused(extension, "MESH-L224", annotation.position)
    if not extension.runs:
        # At once: its other options and annotations have a meaning that is not known here.
        raise not_supported(
            f'{role} "{name}"', annotation.position, hint=instead_of_kind(role, name) or _run(role)
        )
    return extension


def _run(role: ExtensionRole) -> str:
    """A hint with the kinds of a role that run."""
    runs = ", ".join(kind.name for kind in EXTENSIONS[role].values() if kind.runs)
    return f"{str(role).capitalize()}s that run: {runs}; see docs/connectors.md."


def _mapper(annotation: Annotation, role: ExtensionRole) -> Annotation | None:
    mappers = [a for a in annotation.annotations if a.name.lower() == "map"]
    if len(mappers) > 1:
        raise wrong(mappers[1], "@map is given twice")
    if not mappers:
        return None
    _extension(mappers[0], role)
    return mappers[0]


def _check_payload(mapper: Annotation, attributes: Iterable[AttributeDefinition]) -> None:
    names = {attribute.name: attribute for attribute in attributes}
    payloads = [a for a in mapper.annotations if a.name.lower() == "payload"]
    if len(payloads) > 1:
        raise wrong(payloads[1], "@payload is given twice")
    payload = payloads[0] if payloads else None
    keys = [key for key, _ in payload.elements] if payload is not None else []
    if payload is not None and len(set(keys)) < len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        message = "values without names" if twice is None else f'values for "{twice}"'
        raise wrong(payload, f"@payload has two {message}")
    if _options(mapper).get("mustache.enabled", "").lower() == "true":
        # Its tags have another form; the mapper checks them.
        return
    for _, text in payload.elements if payload is not None else ():
        for name in TEMPLATE.findall(text):
            if name not in names:
                message = f'@payload names attribute "{name}", which the stream doesn\'t have'
                raise wrong(payload or mapper, message, nearest(name, names))


def _options(annotation: Annotation, but: str = "type") -> dict[str, str]:
    return {key: text for key, text in annotation.elements if key is not None and key != but}


def _check_options(
    annotation: Annotation,
    extension: Extension,
    options: dict[str, str],
    attributes: Iterable[AttributeDefinition],
) -> None:
    refusal = check_options(extension, options, [attribute.name for attribute in attributes])
    if refusal is not None:
        raise refused(refusal, "MESH-L224", annotation.position)


def wrong(annotation: Annotation, message: str, hint: str | None = None) -> MeshError:
    """MESH-L223: the engine refuses an annotation."""
    return MeshError("MESH-L223", message, hint=hint, position=annotation.position)
