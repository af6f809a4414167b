"""Apps with sources and sinks of NATS."""

from __future__ import annotations

APP = """@App:name('Nats')
{}
define stream S (k string, n int, subject string, of string);
{}
define stream T (k string, n int);
from S select k, n insert into T;
"""
