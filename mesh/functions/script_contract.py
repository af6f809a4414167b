"""A function as an app defines it, and its body once it is compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from mesh.errors import Position
    from mesh.model.types import AttributeType


class Script(Protocol):
    """A function as the app defines it."""

    @property
    def name(self) -> str:
        """The name in calls."""
        ...

    @property
    def language(self) -> str:
        """``python`` or ``javascript``."""
        ...

    @property
    def type(self) -> AttributeType:
        """The declared result type."""
        ...

    @property
    def body(self) -> str:
        """The text between its brackets."""
        ...

    @property
    def position(self) -> Position:
        """The position of its name in the definition."""
        ...


class Body(Protocol):
    """A compiled body that is called for one event after the other."""

    def call(self, data: list[object]) -> Any:
        """Its result, a value of Python; raises if the body does."""
        ...

    def reason(self, error: Exception) -> str:
        """The message of a failure of ``call``, with the line of the body."""
        ...
