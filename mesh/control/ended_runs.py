"""Runs up to a position that have ended, as the session itself has reported them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.control.worker_reconcile import has_ended

if TYPE_CHECKING:
    from mesh.model.cluster import Assignment, InstanceStatus


class EndedRuns:
    """The last run of each instance, if it ran up to a position and has ended.

    Such an instance has one run in an epoch.  The view alone does not show its end: a report may be
    lost, and a report that was written earlier may be stored later.
    """

    def __init__(self) -> None:
        self._reports: dict[str, InstanceStatus] = {}

    def note(self, status: InstanceStatus, assignment: Assignment | None) -> None:
        """Record a session's report of an instance that it ran for ``assignment``."""
        if assignment is None or not has_ended(status, assignment):
            return
        previous = self._reports.get(status.instance)
        # A second STOP has a second answer, which lacks the position.
        if previous is None or previous.epoch != status.epoch or not previous.settled:
            self._reports[status.instance] = status

    def report_of(self, assignment: Assignment) -> InstanceStatus | None:
        """The report of the run's end; None if the assignment had no run yet."""
        report = self._reports.get(assignment.instance)
        return report if report is not None and report.epoch == assignment.epoch else None
