"""Bound apps: the app as written, with every name resolved and every type known.

Frozen values, ready to be compiled to operators: they contain no names to resolve.
"""

from mesh.plan.bound.expressions import OUTPUT_STEP as OUTPUT_STEP
from mesh.plan.bound.expressions import TABLE_STEP as TABLE_STEP
from mesh.plan.bound.expressions import AggregateCall as AggregateCall
from mesh.plan.bound.expressions import BinaryExpression as BinaryExpression
from mesh.plan.bound.expressions import BoundExpression as BoundExpression
from mesh.plan.bound.expressions import Column as Column
from mesh.plan.bound.expressions import Constant as Constant
from mesh.plan.bound.expressions import EventIsNull as EventIsNull
from mesh.plan.bound.expressions import FunctionCall as FunctionCall
from mesh.plan.bound.expressions import TableCheck as TableCheck
from mesh.plan.bound.expressions import UnaryExpression as UnaryExpression
from mesh.plan.bound.expressions import conjuncts as conjuncts
from mesh.plan.bound.expressions import has_aggregate as has_aggregate
from mesh.plan.bound.expressions import operands as operands
from mesh.plan.bound.expressions import walk as walk
from mesh.plan.bound.inputs import BothEvents as BothEvents
from mesh.plan.bound.inputs import BoundElement as BoundElement
from mesh.plan.bound.inputs import BoundFilter as BoundFilter
from mesh.plan.bound.inputs import BoundHandler as BoundHandler
from mesh.plan.bound.inputs import BoundJoin as BoundJoin
from mesh.plan.bound.inputs import BoundPattern as BoundPattern
from mesh.plan.bound.inputs import BoundStep as BoundStep
from mesh.plan.bound.inputs import BoundStore as BoundStore
from mesh.plan.bound.inputs import BoundStream as BoundStream
from mesh.plan.bound.inputs import BoundStreamFunction as BoundStreamFunction
from mesh.plan.bound.inputs import BoundWithin as BoundWithin
from mesh.plan.bound.inputs import Every as Every
from mesh.plan.bound.inputs import Next as Next
from mesh.plan.bound.inputs import NoEvent as NoEvent
from mesh.plan.bound.inputs import OneEvent as OneEvent
from mesh.plan.bound.inputs import SomeEvents as SomeEvents
from mesh.plan.bound.inputs import SourceKind as SourceKind
from mesh.plan.bound.inputs import Window as Window
from mesh.plan.bound.queries import Action as Action
from mesh.plan.bound.queries import AnswerOutput as AnswerOutput
from mesh.plan.bound.queries import BoundAggregation as BoundAggregation
from mesh.plan.bound.queries import BoundApp as BoundApp
from mesh.plan.bound.queries import BoundKey as BoundKey
from mesh.plan.bound.queries import BoundNamedWindow as BoundNamedWindow
from mesh.plan.bound.queries import BoundOnDemandQuery as BoundOnDemandQuery
from mesh.plan.bound.queries import BoundOrder as BoundOrder
from mesh.plan.bound.queries import BoundOutput as BoundOutput
from mesh.plan.bound.queries import BoundPartition as BoundPartition
from mesh.plan.bound.queries import BoundQuery as BoundQuery
from mesh.plan.bound.queries import BoundRange as BoundRange
from mesh.plan.bound.queries import BoundRate as BoundRate
from mesh.plan.bound.queries import BoundScript as BoundScript
from mesh.plan.bound.queries import BoundTable as BoundTable
from mesh.plan.bound.queries import BoundTrigger as BoundTrigger
from mesh.plan.bound.queries import Delete as Delete
from mesh.plan.bound.queries import Insert as Insert
from mesh.plan.bound.queries import Update as Update
from mesh.plan.bound.queries import UpdateAssignment as UpdateAssignment
