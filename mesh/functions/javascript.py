"""Bodies of functions in JavaScript: ``define function f[javascript] return T { .. }``.

The engine is QuickJS, embedded in the process.  A body sees its arguments in ``data``, the language
and nothing else: no file, no network, no clock but ``Date``.  Each call has a time and each
function a heap of its own; the call that exceeds one fails, and the function starts again with an
empty heap.

Arguments and results pass as JSON texts: numbers are doubles, as everywhere in JavaScript, so that
a ``long`` beyond 2^53 loses digits.
"""

from __future__ import annotations

import json
import re
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from mesh.connect.extras import library
from mesh.errors import MeshError, Position
from mesh.model.types import AttributeType

if TYPE_CHECKING:
    from mesh.functions.script_contract import Script

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
