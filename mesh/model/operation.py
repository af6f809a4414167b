"""A call of the REST API, declared once for the server, the clients, and the documents.

    @operation("GET", "/siddhi-apps/{app}/errors", Permission.DATA_READ)
    def errors(self, app: str, *, limit: Annotated[int, Query(high=1000)] = 100) -> list[Entry]:
        "The last events of one app that could not be read, oldest first."

From this the server has its route, the check of the permission and of the parameters
(``mesh.api.routing``, ``mesh.api.auth``), the OpenAPI document its operation, ``docs/cli.md`` its
line, and ``mesh.client`` two methods of this signature: one that blocks, and a coroutine.  Types of
parameters are ``str``, ``bool``, ``int``, ``float``, a ``Literal``, sequences of texts, and values
of JSON; None stands for a parameter that is left out.
"""

from __future__ import annotations

import functools
import inspect
import typing
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, ParamSpec, TypeVar, overload
from urllib.parse import quote

import orjson

from mesh.errors import MeshError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from mesh.model.access import Permission

P = ParamSpec("P")
R = TypeVar("R")

TEXT_TYPE: Final = "text/plain"
JSON_TYPE: Final = "application/json"
#: Time for an answer, unless the declaration gives another one, seconds.
LIMIT_S: Final = 15.0
#: Largest value of a number that has no other bound.
HIGH: Final = 10**18 - 1
_REQUIRED: Final = inspect.Parameter.empty
_TEXT: Final[dict[str, Any]] = {"type": "string"}


class Public(Enum):
    """Access without a user."""

    #: Probes and the address of the identity provider: nothing is checked.
    OPEN = "open"
    #: The request makes the user known; limits of addresses hold.
    SIGN_IN = "sign-in"


#: For any user, whatever it may do: about itself.
ANY_USER: Final = None


class About(Enum):
    """The object of the permission, and the place of its check."""

    #: The app of the path, or the whole cluster without one; the guard checks it.
    PATH = "path"
    #: The app that the text of the body names; checked when the text is read.
    TEXT = "text"
    #: Apps that the body or the answer names: the handler checks each, or leaves it out.
    HANDLER = "handler"


class ParameterPlace(StrEnum):
    """The place of a parameter in a request."""

    PATH = "path"
    QUERY = "query"
    #: A field of a JSON object.
    JSON = "json"
    #: The whole body.
    BODY = "body"
    #: The whole body, which is the text of an app.
    APP_TEXT = "text of an app"


@dataclass(frozen=True, slots=True)
class ParameterMarker:
    """Details of a parameter that its Python type does not have, for ``Annotated``."""

    place: ParameterPlace
    #: In the request, if it is no good name in Python.
    name: str = ""
    low: float = 0
    high: float = HIGH
    #: Value of a request without it, where clients send another default.
    absent: Any = _REQUIRED
    #: The expected value in words, for refusals.
    expected: str = ""
    media_type: str = JSON_TYPE
    schema: dict[str, Any] = field(default_factory=dict)


#: A parameter of the query, with a name, bounds or words of its own.
Query: Final = functools.partial(ParameterMarker, ParameterPlace.QUERY)
#: A field of the JSON object in the body.
Field: Final = functools.partial(ParameterMarker, ParameterPlace.JSON)
#: The body, with its media type and schema.
Body: Final = functools.partial(ParameterMarker, ParameterPlace.BODY)
#: The body, as the text of an app: a request may name it by ``?name=``.
APP_TEXT: Final = ParameterMarker(ParameterPlace.APP_TEXT, media_type=TEXT_TYPE, schema=_TEXT)


@dataclass(frozen=True, slots=True)
class OperationParameter:
    """A parameter of an operation."""

    #: In Python, and in the request.
    argument: str
    name: str
    place: ParameterPlace
    schema: dict[str, Any]
    is_required: bool
    #: Value of a request without it.
    absent: Any
    #: Type of one value.
    kind: Any
    is_repeated: bool
    marker: ParameterMarker

    def parsed(self, text: str) -> Any:
        """The value of a text in a query.

        Raises:
            MeshError: MESH-A400 for another value.
        """
        if self.kind is bool:
            if text.lower() in ("true", "false"):
                return text.lower() == "true"
            raise parameter_error(self.name, text, self.marker.expected or "true or false")
        if self.kind in (int, float):
            return self._number(text)
        if choices := typing.get_args(self.kind):
            if text in choices:
                return text
            *most, last = choices
            listed = f"{', '.join(most)} or {last}" if most else last
            raise parameter_error(self.name, text, self.marker.expected or listed)
        return text

    def _number(self, text: str) -> float:
        low, high = self.marker.low, self.marker.high
        try:
            value = float(text) if text.isascii() else -1.0
        except ValueError:
            value = -1.0
        is_whole = self.kind is float or value.is_integer()
        if not (low <= value <= high and is_whole):
            kind = "a number" if self.kind is float else "a whole number"
            expected = f"{kind} from {low:g} to {high:g}" if high < HIGH else kind
            raise parameter_error(self.name, text, self.marker.expected or expected)
        # A whole number of many digits is no float.
        return value if self.kind is float else int(text) if text.isdigit() else int(value)


def parameter_error(name: str, value: str, expected: str) -> MeshError:
    """The error for a value of request parameter ``name``: MESH-A400."""
    return MeshError("MESH-A400", f'parameter "{name}" is {expected}, not {value!r}')


@dataclass(frozen=True, slots=True)
class CallRequest:
    """A request as any HTTP client can send it."""

    method: str
    path: str
    params: tuple[tuple[str, str], ...]
    content: bytes | None
    media_type: str
    #: Time for the answer, seconds; None for no limit.
    limit_s: float | None


class QueryValues(typing.Protocol):
    """Parameters of a query, each with one value or several."""

    def getlist(self, key: Any) -> list[str]:
        """The values of a parameter."""
        ...


class Caller(ABC):
    """Base of clients whose calls block."""

    @abstractmethod
    def call(self, operation: Operation[P, R], *args: P.args, **values: P.kwargs) -> R:
        """Send the request of an operation; its answer."""


class AsyncCaller(ABC):
    """Base of clients whose calls are coroutines."""

    @abstractmethod
    async def call(self, operation: Operation[P, R], *args: P.args, **values: P.kwargs) -> R:
        """Send the request of an operation; its answer."""


class Operation(Generic[P, R]):
    """A row of the table of operations; as an attribute of a client, its call."""

    def __init__(
        self,
        declaration: Callable[Concatenate[Any, P], R],
        method: str,
        paths: tuple[str, ...],
        permission: Permission | Public | None,
        about: About,
        limit_s: float | None,
    ) -> None:
        self.declaration = declaration
        self.name = declaration.__name__
        self.method = method
        self.paths = paths
        self.permission = permission
        self.about = about
        self.limit_s = limit_s
        # As a function in a class has them: for help.
        self.__name__, self.__doc__ = declaration.__name__, declaration.__doc__
        self.__wrapped__ = declaration

    def __call__(self, client: Caller, *args: P.args, **values: P.kwargs) -> R:
        """The answer to the call by a client."""
        return client.call(self, *args, **values)

    def __repr__(self) -> str:
        return f"<operation {self.name}: {', '.join(self.keys)}>"

    @property
    def keys(self) -> tuple[str, ...]:
        """``METHOD /path`` of each of its routes."""
        return tuple(f"{self.method} {path}" for path in self.paths)

    @property
    def summary(self) -> str:
        """Its purpose, in a line."""
        return (self.declaration.__doc__ or "").strip().partition("\n")[0]

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        """The signature of a client's method, with types as values."""
        declared = inspect.signature(self.declaration, eval_str=True)
        return declared.replace(parameters=list(declared.parameters.values())[1:])

    @functools.cached_property
    def parameters(self) -> tuple[OperationParameter, ...]:
        """Its parameters, in the order of the signature."""
        return tuple(map(self._parameter, self.signature.parameters.values()))

    @functools.cached_property
    def app_text(self) -> OperationParameter | None:
        """The parameter with the text of an app; None if there is none."""
        return next((one for one in self.parameters if one.place is ParameterPlace.APP_TEXT), None)

    @property
    def answer_schema(self) -> dict[str, Any]:
        """The schema of its answer; empty if that can be any."""
        return schema_of(self.signature.return_annotation)

    @property
    def body(self) -> tuple[str, dict[str, Any], bool] | None:
        """Media type and schema of the body, and whether it is required; None without a body."""
        fields = [one for one in self.parameters if one.place is ParameterPlace.JSON]
        if fields:
            required = [one.name for one in fields if one.is_required]
            schema = {"type": "object", "properties": {one.name: one.schema for one in fields}}
            return JSON_TYPE, schema | ({"required": required} if required else {}), True
        for one in self.parameters:
            if one.place in (ParameterPlace.BODY, ParameterPlace.APP_TEXT):
                return one.marker.media_type, one.marker.schema, one.is_required
        return None

    def parsed(self, path: Mapping[str, Any], query: QueryValues) -> dict[str, Any]:
        """The arguments in path and query, by their names in Python.

        Raises:
            MeshError: MESH-A400 for a value of another type or out of bounds, and for a missing
                one.
        """
        arguments: dict[str, Any] = {}
        for one in self.parameters:
            if one.place is ParameterPlace.PATH and one.name in path:
                arguments[one.argument] = path[one.name]
            elif one.place is ParameterPlace.QUERY:
                texts = query.getlist(one.name)
                if one.is_repeated:
                    arguments[one.argument] = [one.parsed(text) for text in texts]
                elif texts:
                    arguments[one.argument] = one.parsed(texts[-1])
                elif one.is_required:
                    raise parameter_error(one.name, "", one.marker.expected or "missing")
                else:
                    arguments[one.argument] = one.absent
        return arguments

    def request(self, *args: P.args, **values: P.kwargs) -> CallRequest:
        """The request of a call with these arguments."""
        bound_args = self.signature.bind(*args, **values)
        bound_args.apply_defaults()
        path, params, fields = self.paths[0], [], {}
        content, media_type, limit_s = None, "", self.limit_s
        for one in self.parameters:
            value = bound_args.arguments[one.argument]
            if value is None:
                continue
            match one.place:
                case ParameterPlace.PATH:
                    path = path.replace(f"{{{one.name}}}", quote(str(value), safe=""))
                case ParameterPlace.QUERY:
                    each = value if one.is_repeated else [value]
                    params += [(one.name, _written(part)) for part in each]
                case ParameterPlace.JSON:
                    fields[one.name] = value
                case ParameterPlace.BODY | ParameterPlace.APP_TEXT:
                    media_type = one.marker.media_type
                    content, name = _content(value, media_type)
                    params += [("name", name)] if name else []
            if one.name == "timeout" and limit_s is not None:
                limit_s += value
        if fields:
            content, media_type = orjson.dumps(fields), JSON_TYPE
        return CallRequest(self.method, path, tuple(params), content, media_type, limit_s)

    def _parameter(self, declared: inspect.Parameter) -> OperationParameter:
        hint, marker = declared.annotation, None
        if typing.get_origin(hint) is typing.Annotated:
            hint, marker = typing.get_args(hint)
        in_path = any(f"{{{declared.name}}}" in path for path in self.paths)
        marker = marker or ParameterMarker(ParameterPlace.PATH if in_path else ParameterPlace.QUERY)
        is_required = declared.default is _REQUIRED
        absent = None if is_required else declared.default
        kind = _without_none(hint)
        is_repeated = typing.get_origin(kind) is Sequence and marker.place is ParameterPlace.QUERY
        name = marker.name or declared.name
        schema = marker.schema or schema_of(hint, marker)
        return OperationParameter(
            declared.name,
            name,
            marker.place,
            schema,
            is_required,
            absent if marker.absent is _REQUIRED else marker.absent,
            typing.get_args(kind)[0] if is_repeated else kind,
            is_repeated,
            marker,
        )

    @overload
    def __get__(self, instance: None, owner: type) -> Operation[P, R]: ...
    @overload
    def __get__(self, instance: Caller, owner: type) -> Callable[P, R]: ...
    @overload
    def __get__(
        self, instance: AsyncCaller, owner: type
    ) -> Callable[P, Coroutine[Any, Any, R]]: ...

    def __get__(self, instance: Caller | AsyncCaller | None, owner: type) -> Any:
        """The row itself of a class; the call of a client."""
        if instance is None:
            return self
        call: Any = functools.partial(instance.call, self)
        functools.update_wrapper(call, self.declaration)
        shown = inspect.signature(self.declaration)
        call.__signature__ = shown.replace(parameters=list(shown.parameters.values())[1:])
        return call


def operation(
    method: str,
    path: str,
    permission: Permission | Public | None,
    *,
    also: Sequence[str] = (),
    about: About = About.PATH,
    limit_s: float | None = LIMIT_S,
) -> Callable[[Callable[Concatenate[Any, P], R]], Operation[P, R]]:
    """Declare an operation by the signature and the docstring of a function without a body.

    Args:
        method: of HTTP.
        path: with names of parameters in braces.
        permission: a permission, ``ANY_USER``, or access without a user.
        also: further paths with the same handler.
        about: the object of the permission.
        limit_s: time for the answer, seconds; None for no limit.
    """

    def declare(declaration: Callable[Concatenate[Any, P], R]) -> Operation[P, R]:
        return Operation(declaration, method, (path, *also), permission, about, limit_s)

    return declare


def operations_of(*tables: type) -> list[Operation[..., Any]]:
    """The operations of classes, in the order of their declarations."""
    return [one for table in tables for one in vars(table).values() if isinstance(one, Operation)]


def schema_of(hint: Any, marker: ParameterMarker | None = None) -> dict[str, Any]:
    """The JSON schema of a type."""
    hint = _without_none(hint)
    if typing.is_typeddict(hint):
        hints = typing.get_type_hints(hint)
        properties = {name: schema_of(one) for name, one in hints.items()}
        required = sorted(hint.__required_keys__)
        return {"type": "object", "properties": properties, "required": required}
    origin = typing.get_origin(hint) or hint
    if origin is typing.Literal:
        return {"enum": list(typing.get_args(hint))}
    if origin in (list, Sequence):
        (inner,) = typing.get_args(hint) or (Any,)
        return {"type": "array", "items": schema_of(inner)}
    if origin in (dict, Mapping):
        return {"type": "object"}
    if origin is bool:
        in_query = marker is not None and marker.place is ParameterPlace.QUERY
        return {"enum": ["true", "false"]} if in_query else {"type": "boolean"}
    if origin in (int, float):
        bounds = {"minimum": marker.low, "maximum": marker.high} if marker is not None else {}
        return {"type": "integer" if origin is int else "number", **bounds}
    return dict(_TEXT) if origin is str else {}


def _without_none(hint: Any) -> Any:
    if typing.get_origin(hint) in (typing.Union, UnionType):
        kinds = [one for one in typing.get_args(hint) if one is not NoneType]
        return kinds[0] if len(kinds) == 1 else Any
    return hint


def _written(value: Any) -> str:
    """A value in a query."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _content(value: Any, media_type: str) -> tuple[bytes, str]:
    """The bytes of a body, and the name of an app whose text has none.

    Positions in errors are those of the text as it was given.
    """
    if media_type == JSON_TYPE:
        return orjson.dumps(value), ""
    content = getattr(value, "original", value)
    return content if isinstance(content, bytes) else content.encode(), getattr(value, "name", "")
