"""Tables of a changed app: those without a state begin with the rows of their database."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import sqlalchemy as sa

from mesh.language.parser import parse
from mesh.operators.executor import Executor, InputRun
from mesh.operators.state_migration import remap
from mesh.plan.bind import bind
from mesh.spark.store_output import StoreOutput
from mesh.store.engine import engine_of
from tests.support.databases import new_database
from tests.support.recorder import stored

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.plan.bound import BoundApp
    from tests.support.databases import TestDatabase

BEFORE = """
define stream S (k string, n int);
{store} @PrimaryKey('k') define table Kept (k string, n int);
from S select k, n update or insert into Kept on Kept.k == k;
"""
OTHER = "{store} @PrimaryKey('k') define table Other (k string, n int);\nfrom S select"
JOIN = "from S join Other on Other.k == S.k select S.k, Other.n insert into Out;"
AFTER = BEFORE.replace("from S select", OTHER) + JOIN


class Life:
    """An executor of a text, and its writers."""

    def __init__(self, text: str, store: TestDatabase) -> None:
        self.app: BoundApp = bind(parse(text.replace("{store}", store.store())))
        self.executor = Executor(self.app, ("Out",), salt="p")
        output = StoreOutput.of(self.executor, 1)
        assert output is not None
        self.output = output

    def send(self, number: int) -> list[dict[str, object]]:
        """The output for one event."""
        rows = pa.RecordBatch.from_arrays(
            [pa.array(["a"]), pa.array([number], pa.int32())], names=["k", "n"]
        )
        at = np.array([number])
        self.output.prepare()
        made = self.executor.run([InputRun("S", at, at * 10, rows)], {"S": number * 10})
        found = [row for run in self.output.take(made) for row in run.rows.to_pylist()]
        self.output.commit()
        return found


def test_a_table_that_an_edit_adds_has_the_rows_of_its_database(tmp_path: Path) -> None:
    store = new_database(None, tmp_path, "edited")
    with engine_of(store.database).begin() as connection:
        connection.execute(sa.text('CREATE TABLE "Other" (k TEXT PRIMARY KEY, n INTEGER)'))
        connection.execute(sa.text("INSERT INTO \"Other\" VALUES ('a', 7)"))
    before = Life(BEFORE, store)
    try:
        before.output.begin(before.executor)
        before.send(1)
        state = stored(before.executor.snapshot())
    finally:
        before.output.close()
    after = Life(AFTER, store)
    try:
        after.executor.restore(remap(state, before.app, after.app))
        after.output.continue_from(after.executor)
        assert after.send(2) == [{"k": "a", "n": 7}]
        # The other table has the rows of its state, not each twice.
        assert after.executor.tables["Kept"].rows().to_pylist() == [{"k": "a", "n": 2}]
    finally:
        after.output.close()
