"""Answers as clients read them have the fields of what managers answer with."""

from __future__ import annotations

from dataclasses import fields

import pytest

from mesh.control import journal, lifecycle
from mesh.manager import deployments, nodes
from mesh.model import answers, backup, cluster

PAIRS = [
    (answers.InstanceAnswer, lifecycle.InstanceView, set()),
    (answers.StatusAnswer, lifecycle.AppStatus, {"status"}),
    (answers.ConnectorAnswer, cluster.ConnectorStatus, set()),
    (answers.DeployAnswer, deployments.Deployed, {"type", "message"}),
    (answers.PlanAnswer, deployments.Preview, set()),
    (answers.NodeAnswer, nodes.NodeView, set()),
    (answers.StoryAnswer, journal.JournalEntry, set()),
    (answers.BackupAnswer, backup.BackupRecord, set()),
    (answers.RestoreAnswer, backup.RestoreResult, set()),
]


@pytest.mark.parametrize(
    ("answer", "answered", "more"), PAIRS, ids=[one[0].__name__ for one in PAIRS]
)
def test_an_answer_has_the_fields_of_what_a_manager_sends(
    answer: type, answered: type, more: set[str]
) -> None:
    assert set(answer.__annotations__) - more == {one.name for one in fields(answered)}
