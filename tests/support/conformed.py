"""An app that is asked."""

from __future__ import annotations

APP = (
    "define stream S (a int, f float, d double); "
    "@info(name='q') from S[a > 1] select a, f, d insert into Out;"
)
