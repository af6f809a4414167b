"""Tables in memory: the rows, conditions over them, and what queries do to them.

``Table`` keeps rows; ``Condition`` finds them; ``TableAction`` is what a query does with its
output; ``Tables`` are those of one app, which expressions ask with ``in``.
"""

from mesh.operators.tables.actions import TableAction as TableAction
from mesh.operators.tables.app import Tables as Tables
from mesh.operators.tables.conditions import Condition as Condition
from mesh.operators.tables.store import Table as Table
