"""Verification and audit of guarantees of the service in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mesh.control.verification import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class FakeChecks:
    """One risk, and an audit without rows, of each app."""

    #: Raises MESH-A404 for an app that is not there.
    text_of: Callable[[str], str]

    async def verify(self, app: str) -> list[Finding]:
        self.text_of(app)
        found = "copies-few", app, f"mesh-{app}-Orders", "it has 1 copies", "add some"
        return [Finding(Severity.RISK, *found)]

    async def of_app(self, app: str) -> dict[str, Any]:
        self.text_of(app)
        return {"app": app, "rows": []}
