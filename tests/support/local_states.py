"""States on the local disk."""

from __future__ import annotations

from mesh.model.cluster import Assignment
from mesh.plan.build import plan
from mesh.spark.instance_io import InstanceIO

TWO_STREAMS = """@App:name('Rates')
define stream Rates (rate double);
define stream Trades (symbol string, price double);
@dist(execGroup='trades', parallel='2', partitions='4')
partition with (symbol of Trades) begin
  from Trades join Rates#window.length(1) select symbol, price * rate as cost insert into Costs;
end;
"""


def io(index: int) -> InstanceIO:
    group = plan(TWO_STREAMS).spec.group("trades")
    assert group is not None
    assignment = Assignment(
        group.instances[index - 1], "Rates", group.name, index, "w", "i", epoch=1, lease_revision=0
    )
    return InstanceIO(group, assignment)
