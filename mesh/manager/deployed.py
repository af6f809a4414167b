"""Answers of a manager to a deploy, and to the question what it would change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mesh.model.history import Backfilled


@dataclass(frozen=True, slots=True)
class Deployed:
    """The answer to a deploy."""

    app: str
    #: False if an app of this name was deployed already.
    is_new: bool
    #: Whether another app was removed for it.
    replaced: bool = False
    #: Whether a running app continues with another plan.
    edited: bool = False
    #: The changes of an edit, as ``mesh diff --output json`` prints them.
    changes: dict[str, Any] | None = None
    #: The history after which a new app begins; None without one.
    past: Backfilled | None = None


@dataclass(frozen=True, slots=True)
class Preview:
    """The effect of a text, as it would be if it were deployed now."""

    app: str
    #: Whether no app of this name is deployed.
    is_new: bool
    #: As ``mesh plan --output json`` prints it.
    plan: dict[str, Any]
    #: As ``mesh diff --output json`` prints them; None for a new app.
    changes: dict[str, Any] | None
    #: The error with which the deploy would be refused; None if it would not be.
    refused: dict[str, Any] | None
