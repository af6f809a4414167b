"""Support table of the language: parses, types and runs an example of each element.

Parsed: ``mesh.language`` reads it.  Typed: names and types are resolved as well.  Runs: an app with
it can be deployed.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError
from mesh.functions.catalogue import (
    DOCUMENTED_STREAM_FUNCTIONS,
    TRAINED_BY,
    Argument,
    ArgumentForm,
    NameKind,
    Resolution,
    resolve,
)
from mesh.language.parser import parse_app, parse_on_demand_query
from mesh.language.substitution import substitute
from mesh.manager.query_parts import plan_query
from mesh.model.types import AttributeType
from mesh.plan.bind import bind, bind_on_demand
from mesh.plan.build import plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mesh.functions.catalogue import Overload, Parameter, Signature

_NAME: Final = "@App:name('A')\n"
_QUERY: Final = "query: "


@dataclass(frozen=True, slots=True)
class Support:
    """The last stage that an example passes."""

    parsed: bool = False
    typed: bool = False
    runs: bool = False


@dataclass(frozen=True, slots=True)
class Element:
    """An element of the language with an example of it."""

    name: str
    written: str
    remark: str
    app: str
    #: An on-demand query, where the element is one.
    query: str | None = None


def elements() -> dict[str, tuple[Element, ...]]:
    """The elements by their groups, as ``elements.txt`` lists them."""
    text = resources.files(__package__).joinpath("elements.txt").read_text(encoding="utf-8")
    groups: dict[str, list[Element]] = {}
    for block in text.strip("\n").split("\n\n"):
        if block.startswith("= "):
            group = groups.setdefault(block.removeprefix("= "), [])
        elif not block.startswith("#"):
            group.append(_element(block))
    return {name: tuple(group) for name, group in groups.items()}


def _element(block: str) -> Element:
    head, _, example = block.partition("\n")
    name, written, remark = (*head.split(" | "), "")[:3]
    app, has_query, query = example.partition(f"\n{_QUERY}")
    return Element(name, written, remark, app, query if has_query else None)


def try_element(element: Element) -> Support:
    """The last stage that the element's example passes."""
    return try_app(element.app, element.query)


def try_app(app: str, query: str | None = None) -> Support:
    """The last stage that an app passes, or an on-demand query to it."""
    if not app.startswith("@App:name"):
        app = _NAME + app
    try:
        text = substitute(app, {})
        tree = parse_app(text)
        if query is not None:
            asked = parse_on_demand_query(query)
    except MeshError:
        return Support()
    try:
        bound = bind(tree)
        if query is not None:
            bind_on_demand(asked, bound)
    except MeshError:
        return Support(parsed=True)
    try:
        if query is not None:
            groups = plan(text).spec.groups if tree.queries else ()
            plan_query(text, tuple((group.name, group.text) for group in groups), query)
        else:
            plan(text)
    except MeshError:
        return Support(parsed=True, typed=True)
    return Support(parsed=True, typed=True, runs=True)


# Functions, aggregators, windows, stream functions: a call that is right, made from the signature

_ATTRIBUTES: Final = {
    AttributeType.INT: "i",
    AttributeType.LONG: "l",
    AttributeType.DOUBLE: "d",
    AttributeType.FLOAT: "f",
    AttributeType.STRING: "s",
    AttributeType.BOOL: "b",
    AttributeType.OBJECT: "o",
}
_CONSTANTS: Final[dict[AttributeType, tuple[str, int | float | bool | str]]] = {
    AttributeType.INT: ("1", 1),
    AttributeType.LONG: ("1L", 1),
    AttributeType.DOUBLE: ("0.5", 0.5),
    AttributeType.FLOAT: ("0.5f", 0.5),
    # A text that is right for every window: cron's is checked when an app is planned.
    AttributeType.STRING: ("'0 0 * * * ?'", "0 0 * * * ?"),
    AttributeType.BOOL: ("true", True),
}
#: Constants of parameters for which that text is wrong.
_TEXTS: Final = {"attribute.definition.list": "x int", "query": "select 1"}


def try_call(signature: Signature) -> Support:
    """The last stage that an app with the simplest call of ``signature`` passes."""
    written = _example_call(signature)
    assert written is not None, f"no call of {signature.name} is right"
    call, types = written
    training = TRAINED_BY.get(signature.name)
    trained = _example_call(DOCUMENTED_STREAM_FUNCTIONS[training]) if training else None
    used = {*types, *(trained[1] if trained else ())}
    definition = _definition([one for one in _ATTRIBUTES if one in used])
    if trained is not None:
        definition += f"from S#{trained[0]} select * insert into Trained;\n"
    match signature.kind:
        case NameKind.SCALAR | NameKind.AGGREGATOR:
            query = f"from S select {call} as x insert into Out;"
        case NameKind.WINDOW:
            query = f"from S#window.{call} select * insert into Out;"
        case NameKind.STREAM_FUNCTION | NameKind.STREAM_PROCESSOR:
            query = f"from S#{call} select * insert into Out;"
    return try_app(definition + query)


def _definition(types: Sequence[AttributeType]) -> str:
    """A stream S with an attribute of each type; objects are created, not read."""
    plain = [one for one in types if one is not AttributeType.OBJECT] or [AttributeType.INT]
    attributes = ", ".join(f"{_ATTRIBUTES[one]} {one}" for one in plain)
    if AttributeType.OBJECT not in types:
        return f"define stream S ({attributes});\n"
    names = ", ".join(_ATTRIBUTES[one] for one in plain)
    made = f"createSet({_ATTRIBUTES[plain[0]]}) as {_ATTRIBUTES[AttributeType.OBJECT]}"
    return f"define stream R ({attributes});\nfrom R select {names}, {made} insert into S;\n"


def _example_call(signature: Signature) -> tuple[str, Sequence[AttributeType]] | None:
    """A call that the catalogue accepts, and the types of the attributes in it."""
    for overload in signature.overloads:
        for start in range(len(_ATTRIBUTES)):
            written = [_example_argument(p, start, overload) for p in overload.parameters]
            arguments = [argument for _, argument in written]
            found = resolve({signature.name: signature}, signature.name, arguments)
            if isinstance(found, Resolution) and found.fails is None:
                used = [a.type for a in arguments if a.form is ArgumentForm.ATTRIBUTE]
                return f"{signature.name}({', '.join(text for text, _ in written)})", used
    return None


def _example_argument(parameter: Parameter, start: int, overload: Overload) -> tuple[str, Argument]:
    """An argument as written; of the types that fit, the ``start``-th is taken."""
    same_as = parameter.same_as
    typed = parameter if same_as is None else overload.parameters[same_as]
    fitting = [one for one in _ATTRIBUTES if one in typed.types]
    chosen = fitting[start % len(fitting)]
    if ArgumentForm.ATTRIBUTE in parameter.forms and not parameter.choices:
        return _ATTRIBUTES[chosen], Argument(chosen, ArgumentForm.ATTRIBUTE)
    if parameter.choices:
        choice = parameter.choices[0]
        return f"'{choice}'", Argument(AttributeType.STRING, ArgumentForm.CONSTANT, choice)
    if parameter.name in _TEXTS:
        written = _TEXTS[parameter.name]
        return f"'{written}'", Argument(chosen, ArgumentForm.CONSTANT, written)
    text, value = _CONSTANTS[chosen]
    return text, Argument(chosen, ArgumentForm.CONSTANT, value)


def namespaces(signatures: dict[str, Signature]) -> Iterator[tuple[str, list[Signature]]]:
    """The signatures by the namespaces of their names, in the order of the first of each."""
    spaces = dict.fromkeys(name.rpartition(":")[0] for name in signatures)
    for space in spaces:
        yield space, [s for n, s in signatures.items() if n.rpartition(":")[0] == space]


def all_supports(signatures: Sequence[Signature]) -> tuple[int, int, int]:
    """Number of calls that each stage accepts."""
    tried = [try_call(signature) for signature in signatures]
    return (
        sum(s.parsed for s in tried),
        sum(s.typed for s in tried),
        sum(s.runs for s in tried),
    )
