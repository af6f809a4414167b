"""Discovery of connectors: entry points of the group ``mesh.connectors``.

The value of an entry point is a module with ``SPECS``.  Ours are declared in the same way in
``pyproject.toml``; they are also listed here, so that a checkout knows them before it is installed
again.

Description of connectors as JSON values and as Markdown: ``mesh connectors`` and its page.
"""

from __future__ import annotations

import importlib
import logging
import textwrap
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, Final

from mesh.connect.spec import Role, Spec
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mesh.connect.spec import Option
    from mesh.model.values import JsonObject

log = logging.getLogger(__name__)

GROUP: Final = "mesh.connectors"
#: The entry points of this project; a test compares them with ``pyproject.toml``.
ENTRY_POINTS: Final[Mapping[str, str]] = {
    "mesh": "mesh.connect.builtin",
    "mesh-brokers": "mesh.connect.brokers",
    "mesh-databases": "mesh.connect.databases",
    "mesh-maps": "mesh.connect.maps",
    "mesh-web": "mesh.connect.web",
}


@cache
def builtin_specs() -> tuple[Spec, ...]:
    """The connectors of this project."""
    return tuple(spec for module in ENTRY_POINTS.values() for spec in _specs_of(module))


@cache
def specs() -> Mapping[tuple[Role, str], Spec]:
    """Every installed connector by role and name; ours take precedence over others."""
    connectors = {(spec.role, spec.name): spec for spec in builtin_specs()}
    others = dict.fromkeys(point.value for point in metadata.entry_points(group=GROUP))
    for module in others:
        for spec in () if module in ENTRY_POINTS.values() else _specs_of(module):
            if connectors.setdefault((spec.role, spec.name), spec) is not spec:
                extra = fields(connector=spec.name, module=module)
                log.warning("connector is declared twice, the first one counts", extra=extra)
    return connectors


def _specs_of(module: str) -> Iterable[Spec]:
    try:
        return tuple(importlib.import_module(module.partition(":")[0]).SPECS)
    # The module is of another package; its failure must not stop the others.
    except Exception as error:
        extra = fields(module=module, error=error)
        log.warning("connectors of a module can't be read", extra=extra)
        return ()


def find(role: Role, name: str) -> Spec | None:
    """The connector of this role and name, which is case-sensitive; None if it is not installed."""
    return specs().get((role, name))


def of_role(role: Role) -> dict[str, Spec]:
    """The connectors of a role by name."""
    return {name: spec for (kind, name), spec in specs().items() if kind is role}


def transports() -> tuple[str, ...]:
    """``role name`` of each source and sink whose library is installed, for the heartbeat."""
    kinds = (Role.SOURCE, Role.SINK)
    return tuple(
        sorted(
            f"{role} {name}"
            for (role, name), spec in specs().items()
            if role in kinds and spec.is_installed()
        )
    )


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
