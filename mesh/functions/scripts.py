"""Script functions of an app: ``define function f[python] return T { .. }``.

A body in Python is that of a Python function with the argument ``data``, the list of its arguments:

    define function ratio[python] return double { return data[0] / data[1] };

It is called for each row, with Python's own values: None for null, ``int``, ``float``, ``str``,
``bool``, and of objects ``list``, ``dict`` and ``set``.  A body whose first line is the comment
``# vectorised`` is called for many rows at once.  Each argument is then an Arrow array, and the
result an Arrow array, a NumPy array or a list of that length; ``pa``, ``pc`` and ``np`` are
defined.  The result of a row must depend on that row alone, as the batch boundaries are undefined.

A row on which the body raises fails; the others don't.  A vectorised body that raises is called
again for the halves of its rows.

Bodies of functions in JavaScript: ``define function f[javascript] return T { .. }``.

The engine is QuickJS, embedded in the process.  A body sees its arguments in ``data``, the language
and nothing else: no file, no network, no clock but ``Date``.  Each call has a time and each
function a heap of its own; the call that exceeds one fails, and the function starts again with an
empty heap.

Arguments and results pass as JSON texts: numbers are doubles, as everywhere in JavaScript, so that
a ``long`` beyond 2^53 loses digits.
"""

from __future__ import annotations

import ast
import json
import os
import re
import textwrap
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mesh.connect.contract import library
from mesh.errors import MeshError, Position
from mesh.functions.engine import cast_number
from mesh.functions.objects import ValueSet, from_python, python_value
from mesh.functions.script_switch import SWITCH
from mesh.functions.vectors import (
    SIZED,
    Room,
    Vector,
    dtype_of,
    fail_rows,
    from_arrow,
    from_values,
    object_values,
    python_values,
)
from mesh.model.types import AttributeType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mesh.functions.vectors import Function, Rows


#: The comment that marks a body as vectorised.
_VECTORISED: Final = re.compile(r"\s*#\s*vectori[sz]ed\b")
# The stubs have a dozen overloads for each Arrow function, and reject most valid calls.
_concat: Any = pa.concat_arrays
_SAFE_NAMES: Final = {"np": np, "pa": pa, "pc": pc}

#: Bound of a call's processor time, seconds.
CALL_S_MAX: Final = 1.0
#: Bound of a function's memory, bytes.
HEAP_BYTES_MAX: Final = 64 * 1024 * 1024
_BEFORE: Final = "(function(data) {"
# A number or a truth value passes as it is; what else there is, as JSON, which has no BigInt.
_CALL: Final = """
(function(body, isText) {
  return function(text, isLiteral) {
    var result = body(isLiteral ? (0, eval)(text) : JSON.parse(text));
    if (result === undefined || result === null) return null;
    if (isText) result = String(result);
    if (typeof result === 'number' || typeof result === 'boolean') return result;
    return typeof result === 'bigint' ? String(result) : JSON.stringify(result);
  };
})
"""
#: Errors of the engine at the ends of its time and of its memory.
_TOO_LONG: Final = "InternalError: interrupted"
_TOO_LARGE: Final = "InternalError: out of memory"
_PLACE: Final = re.compile(r"<input>:(\d+)(?::(\d+))?")
#: A half of a surrogate pair; JSON escapes these, and no other letters.
_HALF: Final = re.compile(r"(?<!\\)(?:\\\\)*\\ud[89a-f][0-9a-f]{2}")


class Script(Protocol):
    """A function as the app defines it."""

    @property
    def name(self) -> str:
        """The name in calls."""
        ...

    @property
    def language(self) -> str:
        """``python`` or ``javascript``."""
        ...

    @property
    def type(self) -> AttributeType:
        """The declared result type."""
        ...

    @property
    def body(self) -> str:
        """The text between its brackets."""
        ...

    @property
    def position(self) -> Position:
        """The position of its name in the definition."""
        ...


class Body(Protocol):
    """A compiled body that is called for one event after the other."""

    def call(self, data: list[object]) -> Any:
        """Its result, a value of Python; raises if the body does."""
        ...

    def reason(self, error: Exception) -> str:
        """The message of a failure of ``call``, with the line of the body."""
        ...


class JavaScriptBody:
    """The compiled body; one thread at a time is in it."""

    def __init__(self, script: Script) -> None:
        """Compile the body.

        Raises:
            MeshError: MESH-L228, it is no JavaScript, with its line in the app; MESH-C134, the
                engine is not installed.
        """
        self.name, self.type = script.name, script.type
        self._text = f"{_BEFORE}{script.body}\n}})"
        self._lines = script.body.splitlines()
        self._lock = Lock()
        self._quickjs = library("quickjs", "javascript")
        try:
            self._function = self._compiled()
        except self._quickjs.JSException as error:
            raise _no_javascript(script, str(error)) from error

    def _compiled(self) -> Any:
        context = self._quickjs.Context()
        context.set_memory_limit(HEAP_BYTES_MAX)
        context.set_time_limit(CALL_S_MAX)
        body = context.eval(self._text)
        return context.eval(_CALL)(body, self.type is AttributeType.STRING)

    def call(self, data: list[Any]) -> Any:
        """The result for one event: None, a number, a truth value, or what JSON makes of it.

        Raises:
            Exception: the body threw, or took too much.
        """
        is_literal = False
        try:
            text = json.dumps(data, ensure_ascii=False, default=list, allow_nan=False)
        except ValueError:
            # JSON has no NaN and no infinity; Python writes them as JavaScript does.
            is_literal = True
            text = json.dumps(data, ensure_ascii=False, default=list)
        with self._lock:
            try:
                result = self._function(text, is_literal)
            except self._quickjs.JSException as error:
                if _message(error) in (_TOO_LONG, _TOO_LARGE):
                    self._function = self._compiled()
                raise
        if not isinstance(result, str):
            return result
        if _HALF.search(result):
            raise ValueError("it returned half of a surrogate pair")
        return json.loads(result)

    def reason(self, error: Exception) -> str:
        """The reason of an error: the line of the body, counted from its bracket, and its text."""
        if not isinstance(error, self._quickjs.JSException):
            return f'function "{self.name}" failed: {error}'
        message, trace = _message(error), str(error).partition("\n")[2]
        if message == _TOO_LONG:
            return f'function "{self.name}" failed: it took more than {CALL_S_MAX:g} s'
        if message == _TOO_LARGE:
            limit = HEAP_BYTES_MAX >> 20
            return f'function "{self.name}" failed: it took more than {limit} MB'
        where = ""
        place = _PLACE.search(trace)
        if place is not None and int(place[1]) <= len(self._lines):
            where = f" in line {place[1]} ({self._lines[int(place[1]) - 1].strip()})"
        return f'function "{self.name}" failed{where}: {message}'


def _message(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _no_javascript(script: Script, error: str) -> MeshError:
    """The refusal of a body, at the place in the app."""
    message, _, trace = error.partition("\n")
    position = script.position
    place = _PLACE.search(trace)
    if place is not None and int(place[1]) > 1:
        position = Position(position.line + int(place[1]) - 1, max(1, int(place[2] or 1)))
    return MeshError(
        "MESH-L228",
        f'function "{script.name}" is no JavaScript: {message}',
        detail="The body is that of a function of the array 'data'.",
        hint="Write it as return data[0] + 1; with all of its brackets closed.",
        position=position,
    )


def compile_scripts(scripts: Iterable[Script]) -> dict[str, Function]:
    """The functions by name.

    Raises:
        MeshError: as ``compile_script``.
    """
    return {script.name: compile_script(script) for script in scripts}


def compile_script(script: Script) -> Function:
    """The function that ``script`` defines; the module describes the calls.

    Raises:
        MeshError: MESH-L228, its body is not in its language, with its line in the app; MESH-S131
            in a process that runs none; MESH-C134, the engine of the language is not installed.
    """
    where = os.environ.get(SWITCH)
    if where == "false":
        raise not_allowed(script)
    if where == "manager":
        raise MeshError(
            "MESH-S131",
            f'function "{script.name}" is not run by a manager',
            hint="Workers run it; ask about a group without functions of its own.",
            position=script.position,
        )
    if script.language == "javascript":
        return _scalar(JavaScriptBody(script))
    body = _Body(script)
    return _vectorised(body) if _VECTORISED.match(script.body) else _scalar(body)


def not_allowed(script: Script) -> MeshError:
    """The refusal of a function where ``functions.python`` is false: MESH-S131."""
    return MeshError(
        "MESH-S131",
        f'function "{script.name}" is not run: functions.python is false',
        hint="Compute it in SiddhiQL, or have the cluster's operator allow functions of apps.",
        position=script.position,
    )


class _Body:
    """The compiled body, and its text for messages."""

    def __init__(self, script: Script) -> None:
        self.name = script.name
        self.lines = script.body.splitlines()
        self.file = f"<function {script.name}>"
        namespace: dict[str, Any] = dict(_SAFE_NAMES)
        if "pandas" in script.body:
            # Our processes hide it from Arrow (``mesh.processes.imports``), which looks again now.
            with suppress(ImportError):
                pa.table({}).to_pandas()
        exec(_code(script, self.file), namespace)
        self.call: Callable[[list[Any]], Any] = namespace["function"]

    def reason(self, error: Exception) -> str:
        """The reason of an error: the line of the body, counted from its bracket, and its text."""
        where = ""
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == self.file:
                line = trace.tb_lineno
                text = self.lines[line - 1].strip() if line <= len(self.lines) else ""
                where = f" in line {line} ({text})"
            trace = trace.tb_next
        return f'function "{self.name}" failed{where}: {type(error).__name__}: {error}'


def _code(script: Script, file: str) -> Any:
    """``def function(data): ..``; its lines are numbered from the one with the bracket."""
    text = _dedented(script.body)
    try:
        tree = ast.parse(text, file)
        shell = ast.parse("def function(data): pass", file)
        (function,) = shell.body
        assert isinstance(function, ast.FunctionDef)
        function.body = tree.body or function.body
        return compile(shell, file, "exec")
    except (RecursionError, MemoryError, ValueError) as error:
        raise MeshError(
            "MESH-L228",
            f'function "{script.name}" is no Python: {str(error) or type(error).__name__}',
            detail="It is nested too deeply, or holds a character that Python does not read.",
            hint="Divide its expressions.",
            position=script.position,
        ) from error
    except SyntaxError as error:
        place, line = script.position, error.lineno or 1
        position = place
        if line > 1:
            indent = len(script.body.splitlines()[line - 1]) - len(text.splitlines()[line - 1])
            column = max(1, (error.offset or 1) + indent)
            position = Position(place.line + line - 1, column)
        raise MeshError(
            "MESH-L228",
            f'function "{script.name}" is no Python: {error.msg}',
            detail="The body is that of a function of the list 'data'.",
            hint="Write it as return data[0] + 1, or on lines of their own, indented alike.",
            position=position,
        ) from error


def _dedented(body: str) -> str:
    """The body without its common indentation; the first line follows a bracket."""
    first, newline, rest = body.partition("\n")
    return first.strip() + newline + textwrap.dedent(rest)


def _scalar(body: Body) -> Function:
    def apply(arguments: Sequence[Vector], type: AttributeType, rows: Rows) -> Vector:
        columns = [_arguments(argument.spread(rows.length)) for argument in arguments]
        data = zip(*columns, strict=True) if columns else iter([()] * rows.length)
        results = []
        failed: dict[int, str] = {}
        room = Room()
        for row, values in enumerate(data):
            try:
                results.append(_result(body.call(list(values)), type))
            except Exception as error:
                results.append(None)
                failed[row] = body.reason(error)
                continue
            if type in SIZED:
                room.keep(results, failed)
        fail_rows(rows, failed)
        return from_values(results, type)

    return apply


def _arguments(vector: Vector) -> list[object]:
    if vector.type is not AttributeType.OBJECT:
        return python_values(vector)
    return [
        {python_value(one) for one in value} if isinstance(value, ValueSet) else python_value(value)
        for value in object_values(vector)
    ]


def _result(value: object, type: AttributeType) -> object:
    """The result of a body, as a value of the declared type."""
    if type is AttributeType.OBJECT:
        return from_python(value)
    if isinstance(value, np.generic):
        value = value.item()
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if type.is_numeric and is_number:
        return cast_number(value, type)
    if type is AttributeType.STRING and isinstance(value, str):
        return value
    if type is AttributeType.BOOL and isinstance(value, bool):
        return value
    raise TypeError(f"it returned {value!r}, which is no {type}")


@dataclass(slots=True)
class _Results:
    """Results of a vectorised body for all rows, piece by piece, and the rows that failed."""

    pieces: list[Vector]
    failed: dict[int, str]


def _vectorised(body: _Body) -> Function:
    def apply(arguments: Sequence[Vector], type: AttributeType, rows: Rows) -> Vector:
        arrays = [argument.to_arrow(rows.length) for argument in arguments]
        done = _Results([], {})
        _halves(body, arrays, type, 0, rows.length, done)
        for row, message in done.failed.items():
            rows.failures.setdefault(row, message)
        joined = [piece.to_arrow(len(piece)) for piece in done.pieces]
        return from_arrow(_concat(joined), type)

    return apply


def _halves(
    body: _Body, arrays: list[Any], type: AttributeType, start: int, stop: int, done: _Results
) -> None:
    """Call ``body`` for the rows from ``start`` to ``stop``, or for halves of them if it raises."""
    count = stop - start
    try:
        output = body.call([array.slice(start, count) for array in arrays])
        done.pieces.append(_column(output, type, count))
    except Exception as error:
        if count <= 1:
            done.pieces.append(from_values([None] * count, type))
            done.failed |= dict.fromkeys(range(start, stop), body.reason(error))
            return
        middle = start + count // 2
        _halves(body, arrays, type, start, middle, done)
        _halves(body, arrays, type, middle, stop, done)


def _column(output: Any, type: AttributeType, count: int) -> Vector:
    if isinstance(output, pa.ChunkedArray):
        output = output.combine_chunks()
    if isinstance(output, pa.Scalar):
        output = [output.as_py()] * count
    if type is AttributeType.OBJECT and not isinstance(output, pa.Array):
        output = [from_python(value) for value in output]
        result = from_values(output, type)
    elif isinstance(output, np.ndarray) and type is not AttributeType.STRING:
        result = Vector(type, output.astype(dtype_of(type)))
    else:
        array = output if isinstance(output, pa.Array) else pa.array(output)
        result = from_arrow(array.cast(type.arrow, safe=False), type)
    if len(result) != count:
        raise ValueError(f"it returned {len(result)} values for {count} rows")
    return result
