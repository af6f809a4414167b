"""Events of the innermost elements of XML: each has the values of the elements around it as well.

    <child id="7"><detail key="a" value="1"/><detail key="b" value="2"/></child>

    id=/child/@id  key=/child/detail/@key    (7, a), (7, b)

An element without elements is a value of the one around it, unless one of its attributes is asked
for, or it has attributes and no text.  Every other one is a place: an event if no place is inside.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from xml.etree.ElementTree import Element

    from mesh.model.values import EventValues

_STEP: Final = r"(?:[^\W\d][\w.-]*:)?[^\W\d][\w.-]*"
#: ``/child/detail/@key``, also without the event's element: ``detail/@key``, ``@id``.
_PATH: Final = re.compile(rf"/?(?:{_STEP}(?:/{_STEP})*)?(?:/?@{_STEP})?")


class LeafPaths:
    """Finds the events of an element by the paths of attributes."""

    def __init__(self, paths: Mapping[str, str], value_of: Callable[[Element], str | None]) -> None:
        """From the paths of attributes; ValueError for one that is more than names."""
        for name, path in paths.items():
            if not path or not _PATH.fullmatch(path):
                raise ValueError(
                    f'attribute "{name}" has the path "{path}", and with extract.leaf.node.data a '
                    "path has names only, as in /child/detail/@key"
                )
        self._paths = {name: _steps(path) for name, path in paths.items()}
        self._value_of = value_of

    def events(self, element: Element) -> Iterator[EventValues]:
        """The events of an element, with the values that are there."""
        root = _tail(element.tag)
        # A path that begins with a slash has the name of the element; without, what is inside.
        names: dict[tuple[str, ...], list[str]] = {}
        for name, steps in self._paths.items():
            at = steps[1:] if steps[0] == "" else (root, *steps)
            names.setdefault(at, []).append(name)
        yield from self._walked(element, (root,), {}, names)

    def _walked(
        self,
        element: Element,
        path: tuple[str, ...],
        outer: Mapping[str, object],
        names: Mapping[tuple[str, ...], list[str]],
    ) -> Iterator[EventValues]:
        values = dict(outer)
        self._take(element, path, values, names)
        places = []
        for child in element:
            inside = (*path, _tail(child.tag))
            is_asked = any((*inside, f"@{_tail(key)}") in names for key in child.attrib)
            has_text = bool((child.text or "").strip())
            if len(child) or is_asked or (child.attrib and not has_text):
                places.append(child)
            else:
                self._take(child, inside, values, names)
        for child in places:
            yield from self._walked(child, (*path, _tail(child.tag)), values, names)
        if not places:
            yield values

    def _take(
        self,
        element: Element,
        path: tuple[str, ...],
        values: EventValues,
        names: Mapping[tuple[str, ...], list[str]],
    ) -> None:
        """Put the values of an element, and of its attributes, that have names."""
        for key, text in element.attrib.items():
            for name in names.get((*path, f"@{_tail(key)}"), ()):
                values[name] = text
        if not len(element):
            for name in names.get(path, ()):
                value = self._value_of(element)
                values[name] = value.strip() if value is not None else None


def _steps(path: str) -> tuple[str, ...]:
    """The names of a path, without prefixes; the first is empty if it begins with a slash."""
    place, at, attribute = path.partition("@")
    steps = [_local(one) for one in place.rstrip("/").split("/")] if place else []
    return (*steps, f"@{_local(attribute)}") if at else tuple(steps)


def _local(name: str) -> str:
    return name.rpartition(":")[2]


def _tail(tag: str) -> str:
    return tag.rpartition("}")[2]
