"""Apps whose streams others listen to."""

from __future__ import annotations

APP = """@App:name('{app}')
SOURCE define stream S (k string, n int);
SINK define stream T (k string, n int);
from S select k, n insert into T;
"""


def app(name: str, *, source: str = "", sink: str = "") -> str:
    found = APP.replace("SOURCE", source).replace("SINK", sink)
    return found.replace("{app}", name) if name else found
