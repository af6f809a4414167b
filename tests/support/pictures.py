"""Plans and graphs that are drawn."""

from __future__ import annotations

LOOP = """
@App:name('Loop') define stream S (k string, a int); define stream M (k string, a int);
@dist(execGroup='first') from S[a < 5] select k, a insert into M;
@dist(execGroup='sums', parallel='2') from M select k, sum(a) as a group by k insert into N;
@dist(execGroup='many', parallel='3') from N[a > 1] select k insert into Out;
@dist(execGroup='back', node='gpu=true') from N select k, convert(a, 'int') as a insert into S;
"""
NODES = [f"n{n}" for n in range(9)]
