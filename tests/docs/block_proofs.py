"""Proofs of the blocks of the pages that ``test_blocks.py`` can't prove by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Around:
    """A part of an app, with the text around it."""

    text: str


@dataclass(frozen=True, slots=True)
class By:
    """Another test runs the block, or compares it with what it shows."""

    test: str


@dataclass(frozen=True, slots=True)
class Not:
    """A block that can't be run here; the arguments of its commands are parsed all the same."""

    reason: str


Proof = Around | By | Not

_ORDERS: Final = "define stream Orders (id string, item string, symbol string, price double); "
_PASSED: Final = "from Orders select item insert into Passed;"
_TRADES: Final = "define stream Trades (symbol string, trader string, quantity long); "
_TOTALS: Final = (
    "define aggregation Totals from Trades select symbol, sum(quantity) as total group by symbol "
    "aggregate every sec...year; "
)
_OF_OTHERS: Final = (
    "@App:name('A') define stream S (id string); {} "
    "from S join Orders on Orders.id == S.id select S.id insert into T;"
)
_METER: Final = (
    "define stream Clean (device string, watt double); {} "
    "from Clean select device, sum(watt) as total group by device insert into Totals;"
)
_CONTAINERS: Final = "tests/stack/test_stack.py::"
_COMPOSE: Final = By(
    f"{_CONTAINERS}test_it_is_used_from_the_host_and_exact_over_kills_and_over_down_and_up"
)
_SYSTEMD: Final = By("tests/stack/test_two_nodes.py::test_the_same_with_systemd_on_fresh_machines")
_ENGINE: Final = Not("an engine for containers and its registries")
_KUBERNETES: Final = Not("a Kubernetes cluster")
_HOSTS: Final = Not("machines of an installation")
_ONLY_SHOWN: Final = Not("a drawing, or the form of an output")

#: Of all blocks of a page that have no entry below.
WHOLE_PAGES: Final[dict[str, Proof]] = {
    "connectors/README.md": By(
        "tests/pyspark_nats/test_spark_pages.py::test_the_readme_is_pasted_whole"
    ),
    "docs/client.md": By("tests/client/test_page.py::test_the_page_is_pasted_whole"),
    "docs/compose.md": _COMPOSE,
    "docs/connector.md": By(
        "tests/pyspark_nats/test_spark_pages.py::test_the_first_page_is_pasted_whole"
    ),
    "docs/cookbook.md": By(
        "tests/testing/test_examples.py::test_the_cookbook_shows_lines_of_its_apps"
    ),
    "docs/editor.md": By(
        "tests/language_service/test_page.py::test_the_example_of_the_page_has_these_answers"
    ),
    "docs/kubernetes.md": _KUBERNETES,
    "docs/machines.md": _SYSTEMD,
    "docs/migrate.md": By("tests/cli/test_migrate.py::test_the_page_is_followed"),
    "docs/siddhiql.md": By(
        "tests/docs/test_documents.py::test_every_call_of_an_extension_is_parsed"
    ),
    "docs/spark-cluster.md": By(
        "tests/stack/test_spark_hosts.py::test_executors_of_other_hosts_run_the_packed_environment"
    ),
    "docs/tutorial.md": By("tests/cli/test_tutorial.py::test_the_tutorial_is_followed"),
    "docs/two-datacenters.md": By(
        "tests/stack/test_two_datacenters.py::"
        "test_the_page_is_followed_and_the_first_datacenter_is_lost"
    ),
    "docs/two-nodes.md": _SYSTEMD,
}

_MOVED: Final = By("tests/e2e/test_migration.py::test_three_apps_are_moved_as_the_page_says")

#: By page and a part of the block's first line.
BLOCKS: Final[dict[tuple[str, str], Proof]] = {
    ("docs/migrate.md", "@App:name('Old')"): _MOVED,
    ("docs/migrate.md", "mesh compare"): _MOVED,
    ("docs/migrate.md", "mesh deploy"): _MOVED,
    ("docs/migrate.md", "sed '/^@sink/d'"): _MOVED,
    ("README.md", "make demo"): By(
        "tests/cli/test_wheel.py::test_the_demo_runs_without_a_checkout_and_loses_nothing"
    ),
    ("README.md", "make test"): Not("it is what runs this test"),
    ("README.md", "pip install"): By(
        "tests/cli/test_wheel.py::test_the_demo_runs_without_a_checkout_and_loses_nothing"
    ),
    ("README.md", "curl -d"): By(
        "tests/receiver/test_readme_app.py::test_the_app_takes_requests_and_writes_a_topic"
    ),
    ("README.md", "define table Prices"): Around(f"@App:name('A') {_ORDERS} {{}} {_PASSED}"),
    ("README.md", "from Orders select item, price update"): Around(
        f"@App:name('A') {_ORDERS} define table Prices (item string, price double); {{}}"
    ),
    ("README.md", "make images"): _COMPOSE,
    ("README.md", "make bench-connector"): Not("minutes of load"),
    ("docs/connector.md", "python -m zipfile"): By(
        "tests/pyspark_nats/test_wheel.py::test_an_archive_of_py_files_serves_after_register"
    ),
    ("connectors/README.md", "pip install"): By(
        "tests/pyspark_nats/test_wheel.py::test_spark_writes_and_reads_with_nothing_else_installed"
    ),
    ("docs/benchmarks.md", "make bench-flow"): Not("minutes of load"),
    ("docs/capacity.md", "mesh plan"): By(
        "tests/calibration/test_what_if.py::test_the_command_shows_them_and_takes_events_of_a_test"
    ),
    ("docs/capacity.md", "group "): _ONLY_SHOWN,
    ("docs/capacity.md", "50,000 events"): _ONLY_SHOWN,
    ("docs/cli.md", 'app "Shop" is starting'): _ONLY_SHOWN,
    ("docs/cli.md", "mesh preview shop.siddhi --events"): By(
        "tests/cli/test_preview.py::test_outputs_are_shown_with_their_causes_and_kept_as_a_test"
    ),
    ("docs/cli.md", "mesh preview shop.siddhi --from"): By(
        "tests/cli/test_preview.py::test_stored_events_are_compared_with_the_running_text"
    ),
    ("docs/cli.md", "1 2026-01-01"): _ONLY_SHOWN,
    ("docs/cli.md", "mesh install man"): By(
        "tests/cli/test_install.py::test_every_part_is_listed_and_written"
    ),
    ("docs/cli.md", "app: alarm.siddhi"): By(
        "tests/testing/test_payload_cases.py::test_the_example_of_the_page_passes"
    ),
    ("docs/cli.md", "from pathlib import Path"): By(
        "tests/testing/test_payload_cases.py::test_the_example_of_the_page_passes"
    ),
    ("docs/compose.md", "@source"): Around(
        "@App:name('N') {} from Numbers select n insert into M;"
    ),
    ("docs/compose.md", "make images BASE"): _ENGINE,
    ("docs/compose.md", "make up PROFILES=idp"): _ENGINE,
    ("docs/connectors.md", "dir.uri='/data/in', mode='text.full', action.after"): Around(
        "@App:name('A') {} define stream S (item string); from S select item insert into T;"
    ),
    ("docs/connectors.md", "@sink(type='file'"): Around(
        "@App:name('A') define stream S (region string, id string); "
        "{} define stream T (region string, id string); from S select region, id insert into T;"
    ),
    ("docs/connectors.md", "@sink(type='http', publisher.url"): Around(
        f"@App:name('A') {_ORDERS} {{}} from Orders select item, price insert into Out;"
    ),
    ("docs/connectors.md", "type='cdc'"): Around(
        "@App:name('A') {} from Orders select id insert into T;"
    ),
    ("docs/connectors.md", "alter table"): By(
        "tests/receiver/test_cdc_source.py::test_an_unchanged_large_value_is_that_of_the_row"
    ),
    ("docs/connectors.md", "select pg_drop_replication_slot"): By(
        "tests/receiver/test_cdc_source.py::test_an_app_that_is_removed_leaves_no_slot"
    ),
    ("docs/connectors.md", "@source(type='file', dir.uri='/data/in',"): Around(
        "@App:name('A') {} from Lines select item insert into T;"
    ),
    ("docs/connectors.md", "destination='orders.{{k}}.new'"): Around(
        "@App:name('A') define stream S (k string); {} define stream T (k string); "
        "from S select k insert into T;"
    ),
    ("docs/cookbook.md", "mesh fork"): By(
        "tests/manager/test_forks.py::"
        "test_a_fork_reads_the_input_from_its_beginning_and_leaves_it_as_it_is"
    ),
    ("docs/connectors.md", "mesh check"): Not("servers of others"),
    ("docs/connectors.md", "import socket"): By(
        "tests/receiver/test_tcp.py::test_the_client_of_the_page_writes_messages_of_the_protocol"
    ),
    ("docs/connectors.md", "type='tcp'"): Around(
        "@App:name('A') {} from Readings[value > 40.0] select sensor, value insert into Alarms;"
    ),
    ("docs/connectors.md", "type='grpc'"): Around(
        "@App:name('A') {} from Readings[value > 40.0] select sensor, value insert into Alarms;"
    ),
    ("docs/connectors.md", "message Event"): By(
        "tests/receiver/test_grpc_events.py::test_an_event_has_the_bytes_of_the_original"
    ),
    ("docs/connectors.md", "type='grpc-service'"): Around("@App:name('A') {}"),
    ("docs/connectors.md", "type='fileeventlistener'"): Around(
        "@App:name('A') {} from Changes[status == 'created'] select filepath insert into T;"
    ),
    ("docs/connectors.md", "type='prometheus'"): Around(
        "@App:name('A') {} from Free[value < 1.0e9] select mountpoint insert into T;"
    ),
    ("docs/connectors.md", "type='email'"): Around(
        "@App:name('A') {} from Readings select sensor insert into T;"
    ),
    ("docs/connectors.md", "type='kafka'"): Around(
        "@App:name('A') {} from Readings select sensor insert into T;"
    ),
    ("docs/connectors.md", "@OnError"): Around(
        f"@App:name('A') {_ORDERS} {{}} from Orders select item, price insert into Out;"
    ),
    ("docs/connectors.md", "billing:"): By(
        "tests/connect/test_references.py::test_references_are_read_from_the_nodes_file"
    ),
    ("docs/connectors.md", "import asyncio"): By(
        "tests/receiver/test_own_connector.py::test_the_page_shows_the_example"
    ),
    ("docs/connectors.md", "[project.entry-points"): By(
        "tests/receiver/test_own_connector.py::test_the_command_shows_it"
    ),
    ("docs/contributing.md", "make check"): Not("it is a part of what runs this test"),
    ("docs/contributing.md", "make test"): Not("it is what runs this test"),
    ("docs/dashboard.md", "mesh dev"): By(
        "tests/cli/test_dev.py::test_other_commands_find_it_and_an_app_goes_through_until_ctrl_c"
    ),
    ("docs/demo.md", "make demo"): By(
        "tests/cli/test_wheel.py::test_the_demo_runs_without_a_checkout_and_loses_nothing"
    ),
    ("docs/design/dataflow.md", "from S select a"): Around(
        "@App:name('A') define stream S (a int); define table T (a int); {}"
    ),
    ("docs/distribution.md", "@dist(execGroup='sums', parallel='4'"): Around(
        f"@App:name('A') {_METER}"
    ),
    ("docs/distribution.md", "@dist(execGroup='sums', min"): Around(f"@App:name('A') {_METER}"),
    ("docs/distribution.md", "@dist(execGroup='g'"): Around(
        f"@App:name('A') {_TRADES} {_ORDERS} {{}}"
    ),
    ("docs/distribution.md", "app Shop: 3 groups"): _ONLY_SHOWN,
    ("docs/distribution.md", 'app "Shop" runs'): _ONLY_SHOWN,
    ("docs/architecture.md", "real time"): _ONLY_SHOWN,
    ("docs/design/sink.md", "atomic batch"): _ONLY_SHOWN,
    ("docs/design/sink.md", "ingest batch"): _ONLY_SHOWN,
    ("docs/operations.md", "mesh user add alice"): _HOSTS,
    ("docs/operations.md", "server_name"): Not("a part of another configuration"),
    ("docs/operations.md", "mesh install"): _SYSTEMD,
    ("docs/operations.md", "mesh nats-config"): By(
        "tests/cli/test_nats_config.py::test_files_of_a_cluster_are_valid_and_name_each_other"
    ),
    ("docs/operations.md", "# managers"): Not("two files next to each other"),
    ("docs/operations.md", "$ mesh verify"): _ONLY_SHOWN,
    ("docs/operations.md", "mesh drain w1"): By(
        "tests/control/test_cluster.py::"
        "test_workers_restarted_one_after_the_other_keep_the_app_placed"
    ),
    ("docs/operations.md", "make chaos"): Not("minutes of load"),
    ("docs/operators.md", "define aggregation"): Around(
        "@App:name('A') define stream S (k string, v long); {}"
    ),
    ("docs/operators.md", "python -m tools.conformance"): Not(
        "files and a program of the developer's"
    ),
    ("docs/queries.md", "mesh query Shop \"select 'pen'"): By(
        "tests/manager/test_queries.py::test_a_client_of_nats_needs_the_subject_of_changes"
    ),
    ("docs/queries.md", "define "): Around(f"@App:name('A') {_ORDERS} {{}}"),
    ("docs/security.md", "MESH_TOKEN"): By(
        "tests/cli/test_first_user.py::test_the_token_of_the_log_makes_the_first_user"
    ),
    ("docs/security.md", "mesh login"): By(
        "tests/cli/test_signing_in.py::test_the_browser_of_this_machine_is_sent_there_and_back"
    ),
    ("docs/security.md", "PATCH"): By(
        "tests/api/test_scim.py::test_a_user_has_the_grants_of_its_groups_until_it_is_deactivated"
    ),
    ("docs/security.md", "@sink"): Around(
        "@App:name('A') {} define stream S (sensor string, value double); "
        "from S select sensor, value insert into Alarms;"
    ),
    ("docs/siddhiql.md", "define function"): Around(
        "@App:name('A') define stream S (a double); {} from S select a insert into T;"
    ),
    ("docs/stores.md", "pip install"): Not("a database server"),
    ("docs/stores.md", "jdbc:postgresql"): Around(f"@App:name('A') {_ORDERS} {{}} {_PASSED}"),
    ("docs/stores.md", "datasource='trades'"): Around(f"@App:name('A') {_ORDERS} {{}} {_PASSED}"),
    ("docs/stores.md", "select symbol, distinctCount"): Around(
        f"@App:name('A') {_TRADES} define aggregation Totals from Trades {{}};"
    ),
    ("docs/stores.md", 'select "symbol"'): By(
        "tests/store/test_distinct.py::test_the_statement_of_the_page_counts_them"
    ),
    ("docs/stores.md", "@store(type='rdbms', datasource='shop')"): Around(
        f"@App:name('A') {_TRADES} {_ORDERS} {{}}"
    ),
    ("docs/stores.md", "@store(type='rdbms', datasource='shop',"): Around(
        f"@App:name('A') {_ORDERS} {{}}"
    ),
    ("docs/stores.md", "@store(type='rdbms', datasource='shop', table.name='orders', kept"): Around(
        _OF_OTHERS
    ),
    ("docs/stores.md", "@store(type='rdbms', datasource='shop', kept='false', on.error"): Around(
        _OF_OTHERS
    ),
    ("docs/stores.md", "create table orders"): By(
        "tests/store/test_column_conversions.py::test_postgresql_is_as_the_table_says"
    ),
    ("docs/stores.md", "from Orders join Totals"): Around(
        f"@App:name('A') {_TRADES} {_ORDERS} {_TOTALS} {{}}"
    ),
    ("docs/stores.md", "define stream Orders (id long"): Around("@App:name('A') {}"),
    ("docs/stores.md", "@store(type='redis'"): Around(f"@App:name('A') {_ORDERS} {{}} {_PASSED}"),
    ("docs/stores.md", "redis> HGETALL"): By(
        "tests/store/test_redis_writer.py::test_a_row_is_a_hash_of_texts"
    ),
    ("docs/stores.md", "@dist(execGroup='totals'"): Around(f"@App:name('A') {_TRADES} {{}}"),
    ("docs/time.md", "mesh backfill"): By(
        "tests/cli/test_backfill.py::test_an_app_is_deployed_after_its_history"
    ),
    ("docs/time.md", "mesh deploy shop.siddhi --backfill"): By(
        "tests/cli/test_backfill.py::"
        "test_a_text_names_its_past_which_a_new_app_reads_and_an_edit_does_not"
    ),
    ("docs/time.md", "mesh why Shop"): _ONLY_SHOWN,
    ("docs/time.md", "Alarms 17"): _ONLY_SHOWN,
}
