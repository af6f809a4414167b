"""Each connector that promises something has a test that kills its host at each step."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

import pytest

from mesh.connect import registry
from mesh.connect.spec import Guarantee

EXACT: Final = {
    "source file": "test_conformance.py::test_a_file_is_read_exactly_once",
    "source email": "test_email_source.py::test_a_folder_is_read_exactly_once",
    "source sse": "test_sse_source.py::test_a_stream_with_ids_is_read_exactly_once",
    "source fileeventlistener": "test_file_events.py::test_differences_are_reported_exactly_once",
    "source nats": "test_conformance.py::test_a_jetstream_stream_of_others_is_read_exactly_once",
    "source inMemory": "test_conformance.py::test_a_topic_is_read_exactly_once",
    "source kafka": "test_kafka_source.py::test_a_topic_is_read_exactly_once",
    "source cdc": "test_polling.py::test_rows_of_a_table_are_polled_exactly_once",
    "sink file": "test_conformance.py::test_a_file_is_written_exactly_once",
    "sink kafka": "test_kafka_sink.py::test_a_topic_is_written_exactly_once",
    "sink prometheus": "test_prometheus.py::test_totals_are_exact",
    "sink s3": "test_s3_sink.py::test_objects_are_stored_exactly_once",
    "sink rdbms": "test_databases.py::test_rows_are_inserted_exactly_once",
}
#: The same connectors in another use.
MORE: Final = (
    "test_pg_changes.py::test_changes_from_the_log_are_exact",
    "test_mysql_changes.py::test_changes_from_the_binary_log_are_exact",
    "test_file_ftp.py::test_files_are_read_exactly_once",
    "test_file_remote.py::test_files_are_written_exactly_once",
    "test_file_sftp.py::test_files_are_read_exactly_once",
    "test_file_sftp.py::test_files_are_written_exactly_once",
    "test_grouping.py::test_a_repeat_has_the_same_groups_and_keys",
)
KEYED: Final = {
    "source http": "test_conformance.py::test_requests_with_a_key_are_stored_once",
    "sink http": "test_conformance.py::test_requests_of_a_sink_are_repeated_with_their_key_only",
    "source grpc": "test_grpc_source.py::test_calls_with_a_key_are_stored_once",
    "sink grpc": "test_grpc_sink.py::test_calls_of_a_sink_are_repeated_with_their_key_only",
    "sink grpc-call": "test_grpc_sink.py::test_answers_of_repeated_calls_are_stored_once",
    "source grpc-call-response": (
        "test_grpc_sink.py::test_answers_of_repeated_calls_are_stored_once"
    ),
    "source rabbitmq": "test_rabbitmq_source.py::test_messages_with_an_id_are_stored_once",
    "sink rabbitmq": ("test_rabbitmq.py::test_repeats_of_a_sink_have_the_message_id_of_the_first"),
    "sink nats": "test_repeats.py::test_a_stream_of_others_gets_each_event_once",
    "sink inMemory": "test_repeats.py::test_a_topic_gets_each_event_once",
    "sink mqtt": "test_repeats.py::test_repeats_over_mqtt_have_the_key_of_the_first",
    "sink email": "test_repeats.py::test_repeats_of_a_mail_have_its_message_id",
    "sink http-call": "test_repeats.py::test_answers_of_repeated_calls_are_stored_once",
    "source rdbms-call-response": "test_rdbms_call.py::test_a_call_is_whole_whenever_its_host_ends",
    "source http-call-response": "test_repeats.py::test_answers_of_repeated_calls_are_stored_once",
}
#: Tests of what those that promise less guarantee nevertheless.
WEAK: Final = {
    "source http-service": (
        "test_answered.py::test_requests_of_a_service_are_answered_whenever_its_source_ends"
    ),
    "sink http-service-response": (
        "test_answered.py::test_requests_of_a_service_are_answered_once_whenever_its_sink_ends"
    ),
    "source grpc-service": (
        "test_answered.py::test_calls_of_a_service_are_answered_whenever_its_source_ends"
    ),
    "sink grpc-service-response": (
        "test_answered.py::test_calls_of_a_service_are_answered_once_whenever_its_sink_ends"
    ),
    "source websocket": (
        "test_unacknowledged.py::test_messages_of_a_websocket_server_are_stored_at_most_once"
    ),
    "source websocket-server": (
        "test_unacknowledged.py::test_messages_to_a_websocket_server_are_stored_at_most_once"
    ),
    "source syslog": "test_unacknowledged.py::test_messages_of_syslog_are_stored_at_most_once",
    "sink sse-server": (
        "test_unacknowledged.py::test_a_listener_that_names_its_last_event_gets_none_twice"
    ),
    "sink websocket-server": (
        "test_unacknowledged.py::test_a_listener_of_a_websocket_gets_no_event_twice_in_a_connection"
    ),
    "sink log": "test_unacknowledged.py::test_each_event_is_logged",
    "source tcp": "test_unacknowledged.py::test_events_over_tcp_are_stored_at_most_once",
    "source prometheus": "test_unacknowledged.py::test_each_scrape_is_stored_at_most_once",
    "source mqtt": (
        "test_unacknowledged.py::test_messages_of_a_session_over_mqtt_are_stored_at_least_once"
    ),
    "sink tcp": "test_unacknowledged.py::test_a_tcp_server_that_stays_gets_each_event",
    "sink websocket": "test_unacknowledged.py::test_a_websocket_server_that_stays_gets_each_event",
    "sink rdbms-call": "test_rdbms_call.py::test_a_call_is_whole_whenever_its_host_ends",
}
#: Older names: the same code.
ALIASES: Final = {"sink http-request", "source http-response"}
WEAK_ALIASES: Final = {"source http-request", "sink http-response"}


def named(guarantee: Guarantee) -> set[str]:
    """The connectors with this guarantee; distribution and mappers have no code of their own."""
    return {
        f"{spec.role} {spec.name}"
        for spec in registry.builtin_specs()
        if spec.guarantee is guarantee and spec.implementation and "mapper" not in spec.role
    }


def test_every_connector_that_promises_something_has_a_test() -> None:
    assert named(Guarantee.EXACTLY_ONCE) == EXACT.keys()
    assert named(Guarantee.AT_LEAST_ONCE_WITH_KEY) == KEYED.keys() | ALIASES
    weak = (Guarantee.AT_LEAST_ONCE, Guarantee.AT_MOST_ONCE, Guarantee.BEST_EFFORT)
    assert set().union(*map(named, weak)) == WEAK.keys() | WEAK_ALIASES


@pytest.mark.parametrize("test", sorted({*EXACT.values(), *MORE, *KEYED.values(), *WEAK.values()}))
def test_it_uses_the_kit(test: str) -> None:
    file, _, name = test.partition("::")
    tree = ast.parse((Path(__file__).parent / file).read_text("utf-8"))
    kinds = ast.FunctionDef, ast.AsyncFunctionDef
    (found,) = (node for node in tree.body if isinstance(node, kinds) and node.name == name)
    called = {node.id for node in ast.walk(found) if isinstance(node, ast.Name)}
    # By itself, or by a function of its file.
    functions = {node.name: node for node in tree.body if isinstance(node, kinds)}
    for other in called & functions.keys():
        called |= {node.id for node in ast.walk(functions[other]) if isinstance(node, ast.Name)}
    assert "conform" in called
