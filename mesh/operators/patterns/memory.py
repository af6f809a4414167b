"""Tables in memory as native code sees them: addresses, without a count of references.

Numba counts the references to each array that is passed to an ``njit`` function, and passes each as
nine words.  The pattern machine has some thirty tables and many small functions: passing the
tables would cost more than the work of the functions.  So each function gets one address, that of a
directory: for each table its address, the width of its rows and their number.
``w.lists[3, SIZE]`` is then two loads, and ``w`` is one word.

The owner of a directory keeps its tables alive, and makes another when one of them moves.  Bounds
are not checked, as with Numba's own arrays.
"""
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import extending as numba_extending
from numba import types
from numba.core import cgutils as numba_cgutils
from numba.core.typing.templates import AttributeTemplate

from mesh.operators.base import Numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numba.core.base import BaseContext
    from numba.core.datamodel.manager import DataModelManager
    from numba.core.typing.context import BaseContext as BaseTypingContext
    from numba.core.typing.templates import Signature

    from mesh.operators.base import Longs

    #: A signature, and the code for a call with it.
    Typed = tuple[Signature, Callable[..., ir.Value]]

Array = Numbers
# Numba has no types.
extending: Any = numba_extending
cgutils: Any = numba_cgutils

#: Words of a directory for each table: address, width of a row, rows.
_ENTRY: Final = 3
_WORD = ir.IntType(64)
_WORDS = _WORD.as_pointer()


class TableType(types.Type):
    """A table of cells of 64 bits; ``width``: of its rows, 0 if the directory has it."""

    def __init__(self, width: int, is_floating: bool) -> None:
        self.width = width
        self.is_floating = is_floating
        super().__init__(name=f"Table({width}, {is_floating})")


class DirectoryType(types.Type):
    """All tables, by name."""

    def __init__(self, tables: Sequence[tuple[str, TableType]]) -> None:
        self.numbers = {name: number for number, (name, _) in enumerate(tables)}
        self.tables = dict(tables)
        super().__init__(name=f"Directory({tables})")


def directory_type(widths: Mapping[str, int], floating: Sequence[str]) -> DirectoryType:
    """The type of a directory, from the tables' names in order and their widths."""
    return DirectoryType([(n, TableType(width, n in floating)) for n, width in widths.items()])


class TableDirectory:
    """The directory of tables in the order of their names: contiguous, of 64 bits wide cells."""

    def __init__(self) -> None:
        self._tables: list[Array] = []
        self._entries: Longs = np.empty(0, dtype=np.int64)

    def of(self, tables: Sequence[Array]) -> Longs:
        """Its cells; these tables live as long as it has no others."""
        if len(tables) != len(self._tables):
            self._tables = [self._entries] * len(tables)
            self._entries = np.empty(_ENTRY * len(tables), dtype=np.int64)
        for number, table in enumerate(tables):
            if table is not self._tables[number]:
                width = 1 if table.ndim == 1 else table.shape[1]
                at = _ENTRY * number
                self._entries[at : at + _ENTRY] = table.ctypes.data, width, len(table)
        self._tables = list(tables)
        return self._entries


@extending.register_model(TableType)
@extending.register_model(DirectoryType)
class _Address(extending.models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: DataModelManager, of: types.Type) -> None:
        super().__init__(manager, of, _WORDS)


def opener(kind: DirectoryType) -> Callable[[Array], Any]:
    """A native function from the array that ``directory`` made to the tables."""

    @extending.intrinsic  # type: ignore[untyped-decorator]
    def opened(context: BaseTypingContext, entries: types.Type) -> Typed:
        def generate(
            context: BaseContext,
            builder: ir.IRBuilder,
            signature: Signature,
            arguments: Sequence[ir.Value],
        ) -> ir.Value:
            return context.make_array(signature.args[0])(context, builder, arguments[0]).data

        return kind(entries), generate

    return cast("Callable[[Array], Any]", opened)


@extending.intrinsic  # type: ignore[untyped-decorator]
def as_floating(context: BaseTypingContext, bits: types.Type) -> Typed:
    """Native: the double that 64 bits are."""

    def generate(
        context: BaseContext,
        builder: ir.IRBuilder,
        signature: Signature,
        arguments: Sequence[ir.Value],
    ) -> ir.Value:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), generate


@extending.infer_getattr
class _Names(AttributeTemplate):
    key = DirectoryType

    def generic_resolve(self, kind: DirectoryType, name: str) -> TableType | None:  # type: ignore[override]
        return kind.tables.get(name)


@extending.lower_getattr_generic(DirectoryType)  # type: ignore[untyped-decorator]
def _table(
    context: BaseContext, builder: ir.IRBuilder, kind: DirectoryType, value: ir.Value, name: str
) -> ir.Value:
    """The place of a table's entry."""
    return builder.gep(value, [_WORD(_ENTRY * kind.numbers[name])])


def _entry(builder: ir.IRBuilder, table: ir.Value, number: int) -> ir.Value:
    return builder.load(builder.gep(table, [_WORD(number)]))


def _cell(
    context: BaseContext,
    builder: ir.IRBuilder,
    signature: Signature,
    table: ir.Value,
    index: ir.Value,
) -> ir.Value:
    """The address of a cell."""
    kind: TableType = signature.args[0]
    of: Any = signature.args[1]
    if isinstance(signature.args[1], types.BaseTuple):
        row, column = cgutils.unpack_tuple(builder, index)
        row = context.cast(builder, row, of[0], types.int64)
        column = context.cast(builder, column, of[1], types.int64)
        width = _WORD(kind.width) if kind.width else _entry(builder, table, 1)
        place = builder.add(builder.mul(row, width), column)
    else:
        place = context.cast(builder, index, of, types.int64)
    cells = ir.DoubleType().as_pointer() if kind.is_floating else _WORDS
    return builder.gep(builder.inttoptr(_entry(builder, table, 0), cells), [place])


def _load(
    context: BaseContext, builder: ir.IRBuilder, signature: Signature, arguments: Sequence[ir.Value]
) -> ir.Value:
    return builder.load(_cell(context, builder, signature, *arguments))


def _store(
    context: BaseContext, builder: ir.IRBuilder, signature: Signature, arguments: Sequence[ir.Value]
) -> ir.Value:
    table, index, value = arguments
    kind, _, value_type = signature.args
    value = context.cast(builder, value, value_type, _cell_type(kind))
    builder.store(value, _cell(context, builder, signature, table, index))
    return context.get_dummy_value()


def _length(
    context: BaseContext, builder: ir.IRBuilder, signature: Signature, arguments: Sequence[ir.Value]
) -> ir.Value:
    return _entry(builder, arguments[0], 2)


def _cell_type(kind: TableType) -> types.Type:
    return types.float64 if kind.is_floating else types.int64


@extending.type_callable(operator.getitem)  # type: ignore[untyped-decorator]
def _types_of_loads(
    context: BaseTypingContext,
) -> Callable[[types.Type, types.Type], types.Type | None]:
    def typed(table: types.Type, index: types.Type) -> types.Type | None:
        return _cell_type(table) if isinstance(table, TableType) else None

    return typed


@extending.type_callable(operator.setitem)  # type: ignore[untyped-decorator]
def _types_of_stores(
    context: BaseTypingContext,
) -> Callable[[types.Type, types.Type, types.Type], types.Type | None]:
    def typed(table: types.Type, index: types.Type, value: types.Type) -> types.Type | None:
        return types.none if isinstance(table, TableType) else None

    return typed


@extending.type_callable(len)  # type: ignore[untyped-decorator]
def _types_of_lengths(context: BaseTypingContext) -> Callable[[types.Type], types.Type | None]:
    def typed(table: types.Type) -> types.Type | None:
        return types.int64 if isinstance(table, TableType) else None

    return typed


for _index in (types.BaseTuple, types.Integer):
    extending.lower_builtin(operator.getitem, TableType, _index)(_load)
    extending.lower_builtin(operator.setitem, TableType, _index, types.Any)(_store)
extending.lower_builtin(len, TableType)(_length)
