"""Kinds of joins."""

from __future__ import annotations

KINDS = ("join", "left outer join", "right outer join", "full outer join")
