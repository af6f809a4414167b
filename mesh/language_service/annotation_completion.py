"""Completion inside of annotations: keys, values, nested annotations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.language.tokens import TokenKind
from mesh.language_service.annotations import (
    LISTS,
    kind_of,
    kinds_at,
    options_at,
    spec_at,
    type_key,
    types_at,
    values_of,
)
from mesh.language_service.proposals import Completion, Proposal, ProposalKind
from mesh.language_service.statements import defined_attributes, key_before

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.language_service.proposals import ClusterStream
    from mesh.language_service.statements import OpenAnnotation, Piece, Statement


def complete_annotation(
    statement: Statement, open_: list[OpenAnnotation], offset: int, cluster: Sequence[ClusterStream]
) -> Completion:
    """Proposals inside of the innermost of ``open_``; ``cluster``: streams that it has."""
    tokens = statement.tokens
    path = [one.name.lower() for one in open_]
    keys = [type_key(path[: depth + 1]) for depth in range(len(path))]
    types = [one.options.get(key) if key else None for one, key in zip(open_, keys, strict=True)]
    last = tokens[-1]
    if last.kind is TokenKind.BROKEN and last.text[:1] in "'\"":
        has_key = len(tokens) > 1 and tokens[-2].text == "="
        key = key_before(tokens, len(tokens) - 2) if has_key else ""
        return _value(statement, path, types, key, last, cluster)
    if last.text == "@" or (len(tokens) > 1 and tokens[-2].text == "@"):
        start = offset if last.text == "@" else last.start
        return Completion(start, tuple(annotation_proposals(path[-1])))
    if last.text == "=":
        key = key_before(tokens, len(tokens) - 1)
        completion = _value(statement, path, types, key, None, cluster)
        quoted = (
            Proposal(f"'{one.label}'", one.kind, one.detail, one.doc)
            for one in completion.proposals
        )
        return Completion(offset, tuple(quoted))
    first = len(tokens)
    while first > 0 and (
        tokens[first - 1].kind is TokenKind.NAME or tokens[first - 1].text in ".-:"
    ):
        first -= 1
    if first == 0 or tokens[first - 1].text not in ("(", ","):
        return Completion(offset, ())
    start = tokens[first].start if first < len(tokens) else offset
    existing = open_[-1].options
    proposals = [
        Proposal(
            option.name,
            ProposalKind.OPTION,
            _detail(option.default, str(option.kind), is_required=option.is_required),
            option.doc,
            f"{option.name}='",
        )
        for option in options_at(path, types)
        if option.name.lower() not in existing
    ]
    key_of_type = keys[-1]
    if key_of_type is not None and key_of_type not in existing:
        doc = "The type, which decides the other options."
        first_one = Proposal(
            key_of_type, ProposalKind.OPTION, "text, required", doc, f"{key_of_type}='"
        )
        proposals.insert(0, first_one)
    if path[-1] == "attributes":
        proposals += [
            Proposal(name, ProposalKind.ATTRIBUTE, kind, insert=f"{name}='")
            for name, kind in defined_attributes(statement.whole)
        ]
    proposals += [
        Proposal(f"@{one.label}", one.kind, one.detail, one.doc)
        for one in annotation_proposals(path[-1])
    ]
    return Completion(start, tuple(proposals))


def _of_cluster(
    path: list[str], types: list[str | None], key: str, cluster: Sequence[ClusterStream]
) -> list[Proposal]:
    """Subjects and streams of the cluster, as values of an option of NATS."""
    if types[-1] != "nats" or path[-1] not in ("source", "sink"):
        return []
    match key.lower():
        case "stream":
            values = [one.js_stream for one in cluster]
        case "destination":
            values = [one.subject for one in cluster]
        case _:
            values = []
    return [
        Proposal(value, ProposalKind.VALUE, f"{one.name} of app {one.app}", one.attributes)
        for value, one in zip(values, cluster, strict=False)
    ]


def _detail(default: str | None, kind: str, *, is_required: bool) -> str:
    parts = [kind]
    if is_required:
        parts.append("required")
    if default:
        parts.append(f"default {default}")
    return ", ".join(parts)


def annotation_proposals(place: str) -> list[Proposal]:
    """The annotations that may be at a place."""
    return [
        Proposal(kind.name, ProposalKind.ANNOTATION, "annotation", kind.doc)
        for kind in kinds_at(place)
    ]


def _value(
    statement: Statement,
    path: list[str],
    types: list[str | None],
    key: str,
    text: Piece | None,
    cluster: Sequence[ClusterStream],
) -> Completion:
    """Proposals for the text of an element; ``text``: the part of it that is there."""
    start = text.start + 1 if text is not None else 0
    written = text.text[1:] if text is not None else ""
    attributes = [
        Proposal(name, ProposalKind.ATTRIBUTE, kind)
        for name, kind in defined_attributes(statement.whole)
    ]
    if "{{" in written and "}}" not in written.rpartition("{{")[2]:
        return Completion(start + written.rfind("{{") + 2, tuple(attributes))
    if key and key.lower() == type_key(path):
        proposals = [
            Proposal(n, ProposalKind.VALUE, "type", doc) for n, doc in types_at(path).items()
        ]
        return Completion(start, tuple(proposals))
    if not key:
        if path[-1] in LISTS:
            return Completion(start, tuple(attributes))
        kind = kind_of(path[-1], "")
        texts = kind.texts if kind is not None else ()
        return Completion(start, tuple(Proposal(one, ProposalKind.VALUE) for one in texts))
    spec = spec_at(path, types)
    options = {option.name.lower(): option for option in options_at(path, types)}
    option = (spec.option(key) if spec is not None else None) or options.get(key.lower())
    if option is None:
        return Completion(start, ())
    if option.is_attribute:
        return Completion(start, tuple(attributes))
    values = [
        Proposal(one, ProposalKind.VALUE, "default" if one == option.default else "", option.doc)
        for one in values_of(option)
    ]
    return Completion(start, (*_of_cluster(path, types, key, cluster), *values))
