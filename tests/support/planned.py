"""A text to plan."""

from __future__ import annotations

TEXT = "@App:name('A') define stream S (a int); from S[a > 1] select a insert into T;"
