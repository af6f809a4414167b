"""Tables in memory: the rows, conditions over them, and writes by queries.

``Table`` keeps rows; ``Condition`` finds them; ``TableAction`` applies a query's output; ``Tables``
are those of one app, which expressions search with ``in``.
"""

from mesh.operators.tables.actions import TableAction as TableAction
from mesh.operators.tables.app import Tables as Tables
from mesh.operators.tables.app_table import AppTable as AppTable
from mesh.operators.tables.store import Table as Table
