"""Windows: the events of a stream that a query remembers, and when each expires.

One operator holds the windows of all instances of a partition.  Its loop over the events is native
code and follows the reference engine event by event; see ``window_loop``.  ``registry`` lists the
kinds of windows with their properties.
"""

from mesh.operators.windows.kind import WindowKind as WindowKind
from mesh.operators.windows.kind import WindowOperator as WindowOperator
from mesh.operators.windows.registry import WINDOWS as WINDOWS
from mesh.operators.windows.registry import kind_of as kind_of
from mesh.operators.windows.registry import make_window as make_window
from mesh.operators.windows.registry import time_columns as time_columns
from mesh.operators.windows.row_ref_window import RowRefWindow as RowRefWindow
