"""Syntax tree of SiddhiQL: the text as written, with positions, before names are resolved.

Nodes are frozen values.  Each has the ``Position`` of its start; equality ignores positions, so a
text and its printed form have equal trees.
"""

from __future__ import annotations

from mesh.language.syntax.apps import AggregationDefinition as AggregationDefinition
from mesh.language.syntax.apps import App as App
from mesh.language.syntax.apps import AttributeDefinition as AttributeDefinition
from mesh.language.syntax.apps import Definition as Definition
from mesh.language.syntax.apps import Durations as Durations
from mesh.language.syntax.apps import Element as Element
from mesh.language.syntax.apps import FunctionDefinition as FunctionDefinition
from mesh.language.syntax.apps import StreamDefinition as StreamDefinition
from mesh.language.syntax.apps import TableDefinition as TableDefinition
from mesh.language.syntax.apps import TriggerDefinition as TriggerDefinition
from mesh.language.syntax.apps import WindowDefinition as WindowDefinition
from mesh.language.syntax.expressions import NOWHERE as NOWHERE
from mesh.language.syntax.expressions import UNIT_MS as UNIT_MS
from mesh.language.syntax.expressions import Annotation as Annotation
from mesh.language.syntax.expressions import Binary as Binary
from mesh.language.syntax.expressions import BinaryOperator as BinaryOperator
from mesh.language.syntax.expressions import Call as Call
from mesh.language.syntax.expressions import EventReference as EventReference
from mesh.language.syntax.expressions import Expression as Expression
from mesh.language.syntax.expressions import InTable as InTable
from mesh.language.syntax.expressions import Literal as Literal
from mesh.language.syntax.expressions import StreamKind as StreamKind
from mesh.language.syntax.expressions import StreamReference as StreamReference
from mesh.language.syntax.expressions import TimeUnit as TimeUnit
from mesh.language.syntax.expressions import Unary as Unary
from mesh.language.syntax.expressions import UnaryOperator as UnaryOperator
from mesh.language.syntax.expressions import Variable as Variable
from mesh.language.syntax.expressions import find as find
from mesh.language.syntax.inputs import AbsentElement as AbsentElement
from mesh.language.syntax.inputs import AnonymousInput as AnonymousInput
from mesh.language.syntax.inputs import CountElement as CountElement
from mesh.language.syntax.inputs import EventElement as EventElement
from mesh.language.syntax.inputs import EveryElement as EveryElement
from mesh.language.syntax.inputs import Filter as Filter
from mesh.language.syntax.inputs import Handler as Handler
from mesh.language.syntax.inputs import JoinInput as JoinInput
from mesh.language.syntax.inputs import JoinKind as JoinKind
from mesh.language.syntax.inputs import JoinSide as JoinSide
from mesh.language.syntax.inputs import LogicalElement as LogicalElement
from mesh.language.syntax.inputs import LogicalOperator as LogicalOperator
from mesh.language.syntax.inputs import NextElement as NextElement
from mesh.language.syntax.inputs import QueryInput as QueryInput
from mesh.language.syntax.inputs import StateElement as StateElement
from mesh.language.syntax.inputs import StateInput as StateInput
from mesh.language.syntax.inputs import StateKind as StateKind
from mesh.language.syntax.inputs import StreamFunction as StreamFunction
from mesh.language.syntax.inputs import StreamInput as StreamInput
from mesh.language.syntax.inputs import WindowHandler as WindowHandler
from mesh.language.syntax.inputs import WithinRange as WithinRange
from mesh.language.syntax.outputs import Direction as Direction
from mesh.language.syntax.outputs import EventKind as EventKind
from mesh.language.syntax.outputs import OrderBy as OrderBy
from mesh.language.syntax.outputs import OutputAttribute as OutputAttribute
from mesh.language.syntax.outputs import OutputRate as OutputRate
from mesh.language.syntax.outputs import RateKind as RateKind
from mesh.language.syntax.outputs import ReturnEvents as ReturnEvents
from mesh.language.syntax.outputs import SelectClause as SelectClause
from mesh.language.syntax.queries import DeleteFrom as DeleteFrom
from mesh.language.syntax.queries import InsertInto as InsertInto
from mesh.language.syntax.queries import OnDemandQuery as OnDemandQuery
from mesh.language.syntax.queries import Partition as Partition
from mesh.language.syntax.queries import PartitionKey as PartitionKey
from mesh.language.syntax.queries import PartitionRange as PartitionRange
from mesh.language.syntax.queries import Query as Query
from mesh.language.syntax.queries import QueryOutput as QueryOutput
from mesh.language.syntax.queries import RangePartition as RangePartition
from mesh.language.syntax.queries import SetAssignment as SetAssignment
from mesh.language.syntax.queries import StoreInput as StoreInput
from mesh.language.syntax.queries import UpdateTable as UpdateTable
from mesh.language.syntax.queries import ValuePartition as ValuePartition
