"""Groups of tests for parallel runs: the tests of one group run in one process, one by one.

A group is a file, or all tests that share an expensive fixture: the cluster of the end-to-end
tests, the connector's Spark session, a broker, and databases.  The scheduler is our own because
pytest-xdist 3.8 does not apply its ``xdist_group`` marks under pytest 9.2, where the id of a node
is read-only.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    import pytest
    from xdist.remote import Producer

#: Files by the start of their path, with the group whose fixture they share.
_SHARED: Final = {
    "tests/e2e/": "e2e",
    "tests/pyspark_nats/test_spark_": "spark",
    "tests/pyspark_nats/test_auth_spark": "spark",
    "tests/pyspark_nats/test_options": "spark",
    "tests/pyspark_nats/test_sql_types": "spark",
    "tests/pyspark_nats/test_typed_rows": "spark",
    "tests/pyspark_nats/test_standalone_cluster": "spark",
    "tests/receiver/test_databases": "databases",
    "tests/receiver/test_kafka": "kafka",
    "tests/receiver/test_pg_changes": "databases",
    "tests/receiver/test_polling": "databases",
    "tests/receiver/test_rabbitmq": "rabbitmq",
}
#: The slowest groups, the slowest first: so the processes end at about the same time.
_FIRST: Final = (
    "e2e",
    "spark",
    "tests/pyspark_nats/faults/test_drivers.py",
    "tests/pyspark_nats/faults/test_servers.py",
    "tests/spark/test_conformance_spark.py",
    "tests/spark/test_modes.py",
    "tests/spark/test_temporary_files.py",
    "tests/cli/test_dev.py",
    "tests/control/test_cluster.py",
    "tests/control/test_cluster_failover.py",
)
#: A group of tests that share nothing has at most so many, so that the processes stay even.
_GROUP_MAX: Final = 300


def group_of(nodeid: str) -> str:
    """The group of a test, by its file."""
    path = nodeid.partition("::")[0]
    return next((group for start, group in _SHARED.items() if path.startswith(start)), path)


def rank_of(nodeid: str) -> int:
    """The place of a test's group in the run; groups of one place keep their order."""
    group = group_of(nodeid)
    return _FIRST.index(group) if group in _FIRST else len(_FIRST)


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives each process whole groups, in the order in which the tests were collected."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        self._scopes: dict[str, str] = {}
        self._sizes: Counter[str] = Counter()

    def _split_scope(self, nodeid: str) -> str:
        if nodeid not in self._scopes:
            group = group_of(nodeid)
            part = 0 if group in _SHARED.values() else self._sizes[group] // _GROUP_MAX
            self._sizes[group] += 1
            self._scopes[nodeid] = f"{group}#{part}"
        return self._scopes[nodeid]
