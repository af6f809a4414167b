"""Description of connectors as JSON values and as Markdown: ``mesh connectors`` and its page."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from mesh.connect.spec import Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mesh.connect.spec import Option, Spec
    from mesh.model.values import JsonObject

#: Width of a line.
_WIDTH: Final = 98
#: Headings of the page, in its order.
_HEADINGS: Final = {
    Role.SOURCE: "Sources",
    Role.SINK: "Sinks",
    Role.DISTRIBUTION: "Distribution strategies",
    Role.SOURCE_MAPPER: "Mappers of sources",
    Role.SINK_MAPPER: "Mappers of sinks",
}


def to_values(spec: Spec) -> JsonObject:
    """A connector as JSON values."""
    return {
        "name": spec.name,
        "role": str(spec.role),
        "doc": spec.doc,
        "guarantee": str(spec.guarantee) if spec.role in (Role.SOURCE, Role.SINK) else None,
        "condition": spec.condition,
        "properties": list(spec.properties),
        "extra": spec.extra,
        "options": [_option_values(option) for option in spec.options],
    }


def _option_values(option: Option) -> JsonObject:
    return {
        "name": option.name,
        "type": str(option.kind),
        "default": option.default,
        "required": option.is_required,
        "dynamic": option.is_dynamic,
        "choices": list(option.choices),
        "secret": option.is_secret,
        "ignored": option.is_ignored,
        "aliases": list(option.aliases),
        "doc": option.doc,
    }


def rows(spec: Spec) -> Iterator[tuple[str, str, str, str]]:
    """Name, type, default and meaning of each option that has an effect."""
    for option in spec.options:
        if option.is_ignored:
            continue
        marks = ["required"] if option.is_required else []
        marks += ["{{attribute}}"] if option.is_dynamic else []
        marks += ["secret"] if option.is_secret else []
        kind = "attribute" if option.is_attribute else str(option.kind)
        default = {"\n": "a line break"}.get(option.default or "", option.default or "")
        doc = " ".join([option.doc, f"({', '.join(marks)})" if marks else ""]).strip()
        yield option.name, " or ".join(option.choices) or kind, default, doc


def ignored(spec: Spec) -> tuple[str, ...]:
    """Names of the options that are accepted without effect."""
    return tuple(option.name for option in spec.options if option.is_ignored)


def markdown(specs: Iterable[Spec]) -> str:
    """The connectors as sections by role."""
    all_specs = list(specs)
    parts: list[str] = []
    for role, heading in _HEADINGS.items():
        mine = [spec for spec in all_specs if spec.role is role]
        if mine:
            parts += [f"### {heading}", *(_section(spec) for spec in mine)]
    return "\n\n".join(parts)


def _bullet(text: str) -> str:
    return textwrap.fill(
        text, _WIDTH, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False
    )


def _section(spec: Spec) -> str:
    lines = [f"#### {spec.role} `{spec.name}`", "", textwrap.fill(spec.doc, _WIDTH)]
    if spec.role in (Role.SOURCE, Role.SINK):
        lines += [
            "",
            textwrap.fill(f"Delivery: {spec.guarantee}. {spec.condition}".rstrip(), _WIDTH),
        ]
    if spec.extra:
        lines += [
            "",
            f"Needs the extra `{spec.extra}`: `pip install 'nats-event-mesh[{spec.extra}]'`.",
        ]
    table = list(rows(spec))
    lines += [""] if table else []
    for name, kind, default, doc in table:
        has_default = f", default `{default}`" if default else ""
        lines.append(_bullet(f"`{name}`: {kind}{has_default}. {doc}"))
    without = ignored(spec)
    if without:
        lines += ["", "Accepted without effect:", "", *(f"- `{name}`" for name in without)]
    return "\n".join(lines)
