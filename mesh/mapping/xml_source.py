"""XML payloads as rows; document types, and with them all entities but XML's own, are refused.

Events of the innermost elements of XML: each has the values of the elements around it as well.

    <child id="7"><detail key="a" value="1"/><detail key="b" value="2"/></child>

    id=/child/@id  key=/child/detail/@key    (7, a), (7, b)

An element without elements is a value of the one around it, unless one of its attributes is asked
for, or it has attributes and no text.  Every other one is a place: an event if no place is inside.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

import pyarrow as pa

from mesh.mapping.events import of_texts
from pyspark_nats.decode.values import article, type_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from mesh.mapping.events import Parsed
    from mesh.model.values import EventValues
    from pyspark_nats.decode.result import DecodeResult


#: Levels of elements.
_DEPTH_MAX: Final = 100
_NIL: Final = "{http://www.w3.org/2001/XMLSchema-instance}nil"

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


class RefusedXmlError(ValueError):
    """The document has parts that are not read from strangers."""


def document(payload: bytes) -> Element:
    """The root element of a document.

    Raises:
        RefusedXmlError: a document type, or too many levels; ``expat.ExpatError``: no XML.
    """
    parser = expat.ParserCreate(namespace_separator="}")
    builder = TreeBuilder()
    depth = 0

    def refuse(*_: object) -> None:
        raise RefusedXmlError("the document has a document type, which is not read")

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > _DEPTH_MAX:
            raise RefusedXmlError(f"the document has more than {_DEPTH_MAX} levels")
        builder.start(_name(tag), {_name(n): v for n, v in attributes.items()})

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(_name(tag))

    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = builder.data
    parser.buffer_text = True
    parser.Parse(payload, True)
    return builder.close()


def _name(tag: str) -> str:
    return f"{{{tag}" if "}" in tag else tag


class XmlSource:
    """Elements by attribute name, or by path; all values are texts that are converted."""

    def __init__(
        self,
        schema: pa.Schema,
        missing: str,
        *,
        paths: Mapping[str, str],
        enclosing: str,
        namespaces: Mapping[str, str],
        is_event: bool,
        takes_leaves: bool,
    ) -> None:
        """The mapping; paths are those of ElementTree: ``a/b``, ``.//c``, ``a/@b``.

        ``is_event``: an enclosing element is an event itself.  ``takes_leaves``: the default
        mapping takes elements without elements, however deep they are; with paths there is an event
        for each innermost element; see the first lines of this file.
        """
        self._schema, self._missing = schema, missing
        self._paths, self._enclosing, self._namespaces = dict(paths), enclosing, dict(namespaces)
        self._is_event, self._takes_leaves = is_event, takes_leaves
        self._leaves = LeafPaths(paths, _value) if paths and takes_leaves else None
        #: Attributes that are no texts, of which the text of several elements is no value.
        self._typed = {
            field.name: article(type_name(field.type))
            for field in schema
            if not pa.types.is_string(field.type)
        }

    def decode(
        self, payloads: Sequence[bytes], properties: Sequence[Mapping[str, str]] | None = None
    ) -> DecodeResult:
        """See ``SourceMapper``."""
        return of_texts(self._events, payloads, self._schema, self._missing)

    def _events(self, number: int, payload: bytes) -> Parsed:
        root = document(payload)
        # Without one no tag has a namespace; in UTF-16 the word has zeros inside.
        has_spaces = b"xmlns" in payload or b"\0" in payload
        if has_spaces and not self._paths and not self._namespaces:
            for element in root.iter():
                element.tag = self._tail(element.tag)
        if self._enclosing:
            holders = self._holders(root)
            if not holders:
                return ["the enclosing element is missing"]
            inner = [event for holder in holders for event in holder]
            events = holders if self._is_event else inner
        else:
            events = list(root) if root.tag == "events" or self._is_list(root) else [root]
        if self._leaves is not None:
            return [one for event in events for one in self._leaves.events(event)]
        return [self._event(event) for event in events]

    def _is_list(self, root: Element) -> bool:
        return not self._paths and bool(len(root)) and all(child.tag == "event" for child in root)

    def _holders(self, root: Element) -> list[Element]:
        path = self._enclosing
        if path.startswith("/") and not path.startswith("//"):
            head, _, rest = path[1:].partition("/")
            if root.tag not in (head, self._resolved(head)):
                return []
            return root.findall(rest, self._namespaces) if rest else [root]
        path = f".{path}" if path.startswith("/") else path
        if path.removeprefix(".//") in (root.tag, self._tail(root.tag)):
            return [root]
        return root.findall(path, self._namespaces)

    def _resolved(self, name: str) -> str:
        prefix, colon, local_name = name.partition(":")
        return f"{{{self._namespaces.get(prefix, '')}}}{local_name}" if colon else name

    @staticmethod
    def _tail(tag: str) -> str:
        return tag.rpartition("}")[2]

    def _event(self, element: Element) -> EventValues | str:
        event: EventValues = {}
        if not self._paths:
            leaves = (e for e in element.iter() if e is not element and not len(e))
            for child in leaves if self._takes_leaves else element:
                name = self._tail(child.tag)
                if len(child) and name in self._typed:
                    return self._not_plain(name)
                event[name] = _value(child)
            return event
        for name, path in self._paths.items():
            place, _, attribute = path.partition("@")
            node = self._element_at(element, place.rstrip("/"))
            if node is None:
                continue
            if attribute:
                if attribute in node.attrib:
                    event[name] = node.attrib[attribute]
            elif len(node) and name in self._typed:
                return self._not_plain(name)
            else:
                event[name] = _value(node)
        return event

    def _element_at(self, element: Element, place: str) -> Element | None:
        """The element at a path, which begins at ``element``, or with its name after a slash."""
        if place.startswith("//"):
            place = f".{place}"
        elif place.startswith("/"):
            head, _, place = place[1:].partition("/")
            if element.tag not in (head, self._resolved(head)):
                return None
        return element.find(place, self._namespaces) if place else element

    def _not_plain(self, name: str) -> str:
        return f'attribute "{name}" is an element with elements inside, not {self._typed[name]}'


def _value(element: Element) -> str | None:
    if element.attrib.get(_NIL) in ("true", "1"):
        return None
    return "".join(element.itertext())
