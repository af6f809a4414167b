"""A state as an instance stores it, and the records by which a manager finds it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mesh.control.snapshot import ClusterSnapshot, Revisioned
from mesh.model.cluster import AppRecord, Assignment
from mesh.operators.executor import Executor, InputRun
from mesh.operators.failures import FAILED
from mesh.plan.bind.apps import bind_group
from mesh.plan.build import plan
from mesh.spark.instance_io import InputPosition, LocalState

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.model.app import GroupSpec

#: A table that queries use, one that they don't, a named window and a function.
APP = """
@App:name('Shop')
define stream Orders (item string, price double, n int);
define function twice[python] return int { return data[0] * 2 };
@PrimaryKey('item') define table Prices (item string, price double, n int);
define table Unused (item string);
define window Recent (item string, n int) length(3);
from Orders select item, price, n update or insert into Prices on Prices.item == item;
from Orders select item, n insert into Recent;
from Recent select item insert into Seen;
"""
INSTANCE = "Shop-default-1"
STREAM = "mesh-Shop-Orders"


@dataclass
class StoredShop:
    """The instance of ``APP`` in one epoch: ``order`` processes events, ``store`` stores."""

    directory: Path
    epoch: int = 7
    text: str = APP
    name: str = INSTANCE
    count: int = 0
    executor: Executor = field(init=False)
    group: GroupSpec = field(init=False)

    def __post_init__(self) -> None:
        self.spec = plan(self.text).spec
        (self.group,) = self.spec.groups
        outputs = dict.fromkeys(c.stream.name for c in self.group.outputs)
        self.executor = Executor(bind_group(self.group), [*outputs, FAILED])
        self.local = LocalState(self.directory / self.name / f"{self.epoch}-1" / "0")

    def order(self, *orders: tuple[str, float, int]) -> None:
        items, prices, numbers = zip(*orders, strict=True)
        rows = pa.RecordBatch.from_arrays(
            [pa.array(items), pa.array(prices), pa.array(numbers, pa.int32())],
            schema=self.executor.input_schemas["Orders"],
        )
        sequence = np.arange(len(orders)) + self.count + 1
        self.count += len(orders)
        run = InputRun("Orders", sequence, sequence * 10, rows)
        self.executor.run([run], {"Orders": self.count * 10})

    def store(self) -> None:
        at = {STREAM: {"sequence": self.count, "time_ms": self.count * 10}}
        self.local.save(InputPosition.of(at, [STREAM]), {}, self.executor.snapshot())

    @property
    def assignment(self) -> Assignment:
        return Assignment(self.name, "Shop", "default", 1, "inc", "w1", self.epoch, 1)


@dataclass
class Records:
    """A view of the cluster that holds one app on one worker."""

    shop: StoredShop
    assignments: tuple[Assignment, ...] = ()
    #: Records that can't be read: none.
    unreadable: dict[tuple[str, str], str] = field(default_factory=dict)

    def snapshot(self) -> ClusterSnapshot:
        def seen(value: Any) -> Revisioned[Any]:
            return Revisioned(value, 1, 0.0)

        return ClusterSnapshot(
            0.0,
            apps=(seen(AppRecord(self.shop.spec, "inc", 0)),),
            assignments=tuple(map(seen, self.assignments)),
        )

    def moved(self, epoch: int) -> None:
        self.assignments = tuple(replace(a, epoch=epoch) for a in self.assignments)
