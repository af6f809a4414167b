"""Binding of definitions: the names that they declare, and conflicts between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, assert_never

from mesh.errors import MeshError, Position
from mesh.functions.catalogue import CallRefusal, ExtensionRole, find_extension
from mesh.language.syntax import (
    AggregationDefinition,
    EventKind,
    FunctionDefinition,
    StreamDefinition,
    TableDefinition,
    TriggerDefinition,
    WindowDefinition,
    WindowHandler,
)
from mesh.model.types import Attribute, AttributeType, StreamSchema
from mesh.plan.annotations import (
    check_aggregation,
    check_stream,
    check_table,
    has_fault_stream,
    indexes,
    primary_key,
    refuse_second,
)
from mesh.plan.bind.aggregations import (
    AGGREGATION_FUNCTIONS,
    check_table_names,
    check_time,
    durations,
    refuse_prefix,
    result_schema,
    without_prefixes,
)
from mesh.plan.bind.inputs import bind_stream, bind_window
from mesh.plan.bind.names import NamedDefinition, timestamps
from mesh.plan.bind.selection import bind_selection
from mesh.plan.bound import (
    BoundAggregation,
    BoundNamedWindow,
    BoundScript,
    BoundTable,
    BoundTrigger,
    SourceKind,
)
from mesh.plan.diagnostics import DependsOnError
from mesh.plan.expressions import Vocabulary, refused
from mesh.plan.history_source import of_running
from mesh.plan.scopes import InputScope, NamedSource, Sources, by_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mesh.language.syntax import Annotation, AttributeDefinition, Definition
    from mesh.plan.bind.names import AppNames
    from mesh.plan.diagnostics import Diagnostics


@dataclass(slots=True)
class Defined:
    """Bound definitions by kind; streams are in ``AppNames``."""

    tables: list[BoundTable] = field(default_factory=list)
    windows: list[BoundNamedWindow] = field(default_factory=list)
    triggers: list[BoundTrigger] = field(default_factory=list)
    scripts: list[BoundScript] = field(default_factory=list)
    aggregations: list[BoundAggregation] = field(default_factory=list)
    stream_annotations: list[tuple[str, Annotation]] = field(default_factory=list)


def bind_definitions(
    definitions: Iterable[Definition], names: AppNames, problems: Diagnostics
) -> Defined:
    """Declare the names of ``definitions``, and resolve the names inside them."""
    written = tuple(definitions)
    first: dict[tuple[type, str], Definition] = {}
    fresh = [d for d in written if _is_fresh(d, first, problems)]
    for definition in fresh:
        problems.attempt(_declare, definition, names, problems)
    names.add_scripts((d.name, d.return_type) for d in fresh if isinstance(d, FunctionDefinition))
    _refuse_clashes(fresh, names, problems)
    defined = Defined()
    for definition in fresh:
        problems.attempt(_complete, definition, defined, names, problems)
    return defined


def _is_fresh(
    definition: Definition, first: dict[tuple[type, str], Definition], problems: Diagnostics
) -> bool:
    """Whether it is the first of its kind and name; report one that differs from the first."""
    key = type(definition), definition.name
    if key not in first:
        first[key] = definition
        return True
    before = first[key]
    may_repeat = isinstance(definition, StreamDefinition | TableDefinition)
    if not (may_repeat and definition == before):
        kind = _kind(definition)
        differs = ", differently" if may_repeat else ""
        problems.add(
            MeshError(
                "MESH-L209",
                f'{kind} "{definition.name}" is defined twice{differs}',
                detail="First it is defined in line {line}.",
                hint="Leave one of them out, or give it another name.",
                position=definition.position,
                related=before.position,
            )
        )
    return False


def _kind(definition: Definition) -> str:
    """``stream`` for a ``StreamDefinition``, and so on."""
    return type(definition).__name__.removesuffix("Definition").lower()


def _declare(definition: Definition, names: AppNames, problems: Diagnostics) -> None:
    """Declare the name of ``definition``; aggregations follow when streams are known."""
    name, at = definition.name, definition.position
    match definition:
        case StreamDefinition():
            schema = _schema(name, definition.attributes, "stream", problems)
            names.streams[name] = NamedDefinition(SourceKind.STREAM, schema, at)
            if has_fault_stream(definition.annotations):
                fault = problems.attempt(_fault, schema, at) if schema is not None else None
                names.streams[f"!{name}"] = NamedDefinition(SourceKind.FAULT, fault, at)
        case TableDefinition():
            schema = _schema(name, definition.attributes, "table", problems)
            names.tables[name] = NamedDefinition(SourceKind.TABLE, schema, at)
        case WindowDefinition():
            schema = _schema(name, definition.attributes, "window", problems)
            names.windows[name] = NamedDefinition(SourceKind.WINDOW, schema, at)
        case TriggerDefinition():
            if name not in names.streams:
                names.streams[name] = NamedDefinition(SourceKind.TRIGGER, timestamps(name), at)
        case AggregationDefinition():
            names.aggregations[name] = NamedDefinition(SourceKind.AGGREGATION, None, at)
        case FunctionDefinition():
            pass
        case _:
            assert_never(definition)


def _schema(
    name: str, attributes: Iterable[AttributeDefinition], kind: str, problems: Diagnostics
) -> StreamSchema | None:
    fields: dict[str, Attribute] = {}
    is_right = True
    for attribute in attributes:
        if attribute.name in fields:
            is_right = False
            problems.add(
                MeshError(
                    "MESH-L210",
                    f'attribute "{attribute.name}" is defined twice in {kind} "{name}"',
                    position=attribute.position,
                )
            )
        fields[attribute.name] = Attribute(attribute.name, attribute.type)
    return StreamSchema(name, tuple(fields.values())) if is_right else None


def _fault(schema: StreamSchema, position: Position) -> StreamSchema:
    if schema.get("_error") is not None:
        raise MeshError(
            "MESH-L210",
            f'fault stream "!{schema.name}" would have attribute "_error" twice',
            detail="It has the stream's attributes and _error, an object.",
            position=position,
        )
    error = Attribute("_error", AttributeType.OBJECT)
    return StreamSchema(f"!{schema.name}", (*schema.attributes, error))


def _refuse_clashes(definitions: list[Definition], names: AppNames, problems: Diagnostics) -> None:
    """Refuse one name for things of two kinds, unless the engine treats them as one."""
    first: dict[str, list[Definition]] = {}
    for definition in definitions:
        if isinstance(definition, FunctionDefinition):
            continue
        others = first.setdefault(definition.name, [])
        clash = next((o for o in others if not _go_together(o, definition, names)), None)
        if clash is not None:
            kind, other = _kind(definition), _kind(clash)
            problems.add(
                MeshError(
                    "MESH-L209",
                    f'{kind} "{definition.name}" has the name of a {other}',
                    detail=f"The {other} is defined in line {{line}}.",
                    hint="Give one of them another name.",
                    position=definition.position,
                    related=clash.position,
                )
            )
        others.append(definition)


def _go_together(one: Definition, other: Definition, names: AppNames) -> bool:
    streamlike = (StreamDefinition, WindowDefinition, TriggerDefinition)
    if not (isinstance(one, streamlike) and isinstance(other, streamlike)):
        return False
    return _attributes(one) == _attributes(other)


def _attributes(
    definition: StreamDefinition | WindowDefinition | TriggerDefinition,
) -> tuple[tuple[str, AttributeType], ...]:
    if isinstance(definition, TriggerDefinition):
        return tuple((a.name, a.type) for a in timestamps(definition.name).attributes)
    return tuple((a.name, a.type) for a in definition.attributes)


def _complete(
    definition: Definition, defined: Defined, names: AppNames, problems: Diagnostics
) -> None:
    """Resolve the names inside ``definition``, and keep it as bound."""
    match definition:
        case StreamDefinition():
            refuse_second(definition.annotations, ("OnError", "Async"), problems)
            _each(definition.annotations, problems, lambda a: check_stream(a, definition))
            defined.stream_annotations += of_running(definition)
        case TableDefinition():
            schema = _schema_of(names.tables[definition.name])
            check_table(definition, schema, problems)
            defined.tables.append(
                BoundTable(
                    schema,
                    primary_key(definition.annotations),
                    indexes(definition.annotations),
                    definition.annotations,
                    position=definition.position,
                )
            )
        case WindowDefinition():
            _complete_window(definition, defined, names)
        case TriggerDefinition():
            _complete_trigger(definition, defined)
        case FunctionDefinition():
            _complete_script(definition, defined)
        case AggregationDefinition():
            _complete_aggregation(definition, defined, names, problems)
        case _:
            assert_never(definition)


def _each(
    annotations: Iterable[Annotation], problems: Diagnostics, check: Callable[[Annotation], None]
) -> None:
    for annotation in annotations:
        problems.attempt(check, annotation)


def _schema_of(definition: NamedDefinition) -> StreamSchema:
    if definition.schema is None:
        raise DependsOnError
    return definition.schema


def _complete_window(definition: WindowDefinition, defined: Defined, names: AppNames) -> None:
    schema = _schema_of(names.windows[definition.name])
    source = NamedSource(schema.name, by_name(schema.attributes))
    window = bind_window(definition.window, InputScope(Sources([source]), names.is_defined), names)
    defined.windows.append(
        BoundNamedWindow(
            schema,
            window,
            definition.events if definition.events is not None else EventKind.ALL,
            definition.annotations,
            position=definition.position,
        )
    )


def _complete_trigger(definition: TriggerDefinition, defined: Defined) -> None:
    value = definition.schedule.value
    defined.triggers.append(
        BoundTrigger(
            timestamps(definition.name),
            value if isinstance(value, int) else None,
            value if isinstance(value, str) else None,
            position=definition.position,
        )
    )


def _complete_script(definition: FunctionDefinition, defined: Defined) -> None:
    language = find_extension(ExtensionRole.SCRIPT, definition.language)
    if isinstance(language, CallRefusal):
        raise refused(language, "MESH-L224", definition.position)
    defined.scripts.append(
        BoundScript(
            definition.name,
            language.name,
            definition.return_type,
            definition.body,
            position=definition.position,
        )
    )


def _complete_aggregation(
    definition: AggregationDefinition, defined: Defined, names: AppNames, problems: Diagnostics
) -> None:
    failures = problems.failures
    _each(definition.annotations, problems, lambda a: check_aggregation(a, definition))
    every = problems.attempt(durations, definition.every)
    problems.attempt(_check_input, definition, names)
    problems.attempt(check_table_names, definition, every or (), names)
    bound_input = (
        bind_stream(definition.input, names, problems) if not failed(problems, failures) else None
    )
    if bound_input is None or every is None:
        return
    source, scope = bound_input
    vocabulary = Vocabulary(
        names.vocabulary.table,
        AGGREGATION_FUNCTIONS
        | {name: names.vocabulary.functions[name] for name in names.vocabulary.scripts},
        names.vocabulary.scripts,
    )
    by = definition.aggregate_by
    time = problems.attempt(scope.column, by) if by is not None else None
    if time is not None and by is not None:
        problems.attempt(check_time, time, by.position)
    for variable in definition.selector.group_by:
        problems.attempt(refuse_prefix, variable)
    selection = bind_selection(
        without_prefixes(definition.selector, vocabulary),
        scope,
        vocabulary,
        problems,
        output=definition.name,
        reads_input=False,
        position=definition.position,
    )
    if selection is None or failed(problems, failures):
        return
    schema = result_schema(definition.name, selection.schema(definition.name))
    names.aggregations[definition.name] = NamedDefinition(
        SourceKind.AGGREGATION, schema, definition.position
    )
    defined.aggregations.append(
        BoundAggregation(
            schema,
            source,
            selection.outputs,
            selection.group_by,
            time,
            every,
            definition.annotations,
            position=definition.position,
        )
    )


def failed(problems: Diagnostics, before: int) -> bool:
    """Whether something has gone wrong since there were ``before`` failures."""
    return problems.failures != before


def _check_input(definition: AggregationDefinition, names: AppNames) -> None:
    for handler in definition.input.handlers:
        if isinstance(handler, WindowHandler):
            raise MeshError(
                "MESH-L225",
                "a window in the input of an aggregation",
                detail="An aggregation keeps its values by time already.",
                hint="Leave the window out.",
                position=handler.position,
            )
    source = names.find(str(definition.input.stream))
    if source is not None and source.kind not in (SourceKind.STREAM, SourceKind.TRIGGER):
        raise MeshError(
            "MESH-L219",
            f'aggregation over {source.kind} "{definition.input.stream}"',
            hint="Aggregations are over streams and triggers.",
            position=definition.input.stream.position,
        )
