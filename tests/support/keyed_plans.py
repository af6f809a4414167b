"""An app whose channels are divided by key."""

from __future__ import annotations

KEYED = """
@App:name('Keyed') define stream S (k string, a int);
@dist(execGroup='sums', parallel='2') from S select k, sum(a) as t group by k insert into M;
@dist(execGroup='last') from M[t > 5] select k insert into N;
@dist(execGroup='last') from N select k insert into T;
"""
