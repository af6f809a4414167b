"""Apps with every kind of operator that has a state, for ``tools.states``.

Their output is in streams with names that begin with ``O``.
"""

from __future__ import annotations

from typing import Final

DEFINITIONS: Final = """
define stream S (k string, i int, l long, f float, d double, b bool);
define stream Q (k string, i int, l long, d double);
"""


def _windows(output: str) -> str:
    """A query for each window; ``output``: which events go out."""
    windows = (
        "length(5)",
        "lengthBatch(4)",
        "time(1 sec)",
        "timeBatch(700 millisec)",
        "timeLength(1 sec, 4)",
        "externalTime(l, 1 sec)",
        "externalTimeBatch(l, 700 millisec)",
        "session(150 millisec, k)",
        "sort(3, d, 'desc')",
        "frequent(2, k)",
        "lossyFrequent(0.1, 0.01, k)",
        "delay(200 millisec)",
        "batch()",
        "cron('*/2 * * * * ?')",
    )
    plain = [
        f"from S#window.{window} select k, i, d insert {output} into O{number};"
        for number, window in enumerate(windows)
    ]
    summed = [
        f"from S[i > 1]#window.{window} select k, sum(d) as t, max(i) as h, count() as n "
        f"group by k insert {output} into O{number}s;"
        for number, window in enumerate(windows)
    ]
    return "\n".join([*plain, *summed])


APPS: Final[dict[str, str]] = {
    "collections": """
from S#window.length(7) select k, str:groupConcat(i, '-', true, 'desc') as a,
  math:percentile(d, 60.0) as b, json:group(str:concat('[', i, ']')) as c,
  json:toString(list:collect(d)) as e, map:toJSON(map:collect(i, d)) as f group by k
  insert all events into O1;
""",
    "windows-extrema": """
from S#window.extrema:maxByLength(d, 4) select k, sum(d) as t insert all events into O1;
from S#window.extrema:minByTime(k, 300 millisec) select k, sum(d) as t insert all events into O2;
from S#window.extrema:minByLengthBatch(k, 4) select k, sum(d) as t insert all events into O3;
from S#window.extrema:maxByTimeBatch(d, 300 millisec) select k, d insert all events into O4;
from S#extrema:topKLengthBatch(i, 7, 2) select k, Top1Element as a, Top2Frequency as b
  insert into O5;
from S#extrema:bottomKTimeBatch(d, 300 millisec, 1) select k, Bottom1Element as a insert into O6;
""",
    "reordering": """
from S#reorder:kslack(l, 2 sec) select k, l insert into O1;
from Q#reorder:kslack(l, -1L, 100L, true) select k, l insert into O2;
""",
    "event-functions": """
from S#window.length(9)#approximate:distinctCount(i)#approximate:count(k, 0.05) select k,
  distinctCount as a, count as b insert all events into O1;
from S#approximate:distinctCountEver(d, 0.1) select k, distinctCountEver as a insert into O2;
from S#window.length(9)#extrema:topK(i, 2) select k, Top1Element as a, Top2Frequency as b
  insert into O6;
from S#timeseries:lengthTimeForecast(2 sec, 9, 20, d, i) select k, forecastY as a insert into O7;
from S#markov:markovChain(k, 'x', 1 sec, 0.4, 3) select k, transitionProbability as a
  insert into O8;
from S select kf:kalmanFilter(d) as a, kf:kalmanFilter(d, 0.1, 0.2, l) as b insert into O9;
from S#window.unique:timeLengthBatch(k, 300 millisec, 2) select k, d insert all events into O10;
from S#window.unique:externalTimeBatch(k, l, 300 millisec, 0, 1 sec) select k, d
  insert all events into O11;
from S#approximate:count(k)#window.length(3) as a join Q as b on a.k == b.k
  select a.k as k, count as a insert into O12;
from S#reorder:akslack(l, d, 20L, 2000L) select k, l insert into O16;
from S#priority:time(k, i, 300 millisec) select priorityKey as k, currentPriority as a
  insert into O13;
from S#extrema:kernelMinMax(d, 2, 7, 'minmax') select k, d, extremaType as a insert into O14;
from S#timeseries:kalmanMinMax(d, 0.1, 0.2, 25, 'max') select k, d, extremaType as a
  insert into O15;
from S#streamingml:kMeansMiniBatch(3, 0.2, 5, 9, i, d) select k,
  euclideanDistanceToClosestCentroid as a insert into O3;
from S#streamingml:updatePerceptronClassifier('m', b, i, d) select k insert into M;
from Q#streamingml:perceptronClassifier('m', i, d) select k, confidenceLevel as a insert into O4;
from S#streamingml:updateBayesianRegression('m', d, i) select k, loss as a insert into O5;
""",
    "windows-unique": """
from S#window.unique:ever(k) select k, i, d insert all events into O1;
from S#window.unique:first(k, i) select k, i, d insert all events into O2;
from S#window.unique:length(k, 3) select k, sum(d) as t insert all events into O3;
from S#window.unique:time(k, 300 millisec) select k, sum(d) as t insert all events into O4;
from S#window.unique:lengthBatch(i, 4) select k, sum(d) as t insert all events into O5;
from S#window.unique:timeBatch(i, 300 millisec) select k, sum(d) as t insert all events into O6;
from S#window.unique:firstLengthBatch(i, 4) select k, d insert all events into O7;
from S#window.unique:firstTimeBatch(k, 300 millisec, 7) select k, d insert all events into O8;
from S#unique:deduplicate(i, 500 millisec)#window.length(4) select k, sum(d) as t insert into O9;
""",
    "windows-hopping": """
from S#window.hopping(900 millisec, 300 millisec) select k, sum(d) as t insert all events into O1;
from S#window.hopping(300 millisec, 400 millisec) as x join Q as y on x.k == y.k
  select x.i as a, y.i as c insert into O2;
partition with (k of S) begin
  from S#window.hopping(1 sec, 600 millisec) select k, count() as n insert into O3;
end;
""",
    "windows-current": _windows(""),
    "windows-all": _windows("all events"),
    "aggregators": """
from S select k, sum(i) as a, sum(d) as c, avg(f) as e, count() as g, min(l) as h, max(d) as j,
  minForever(d) as m, maxForever(i) as n, stdDev(d) as o, and(b) as p, or(b) as q,
  distinctCount(i) as r group by k insert into Oforever;
from S#window.length(7) select k, sum(i) as a, sum(d) as c, avg(f) as e, count() as g,
  min(l) as h, max(d) as j, minForever(d) as m, maxForever(i) as n, stdDev(d) as o, and(b) as p,
  or(b) as q, distinctCount(i) as r group by k insert all events into Oheld;
from S select k, sizeOfSet(unionSet(createSet(i))) as n group by k insert into Osets;
from S select k, sum(d) as t group by k having t > 100.0 order by t desc limit 2 insert into Omost;
""",
    "rates": """
from S select k, i output every 4 events insert into O1;
from S select k, i output first every 4 events insert into O2;
from S select k, sum(i) as t group by k output last every 5 events insert into O3;
from S select k, i output every 600 millisec insert into O4;
from S select k, i group by k output first every 600 millisec insert into O5;
from S select k, sum(i) as t group by k output last every 600 millisec insert into O6;
from S#window.length(3) select k, i output snapshot every 500 millisec insert into O7;
from S#window.time(1 sec) select k, sum(d) as t group by k output snapshot every 500 millisec
  insert into O8;
""",
    "patterns": """
from every e1=S -> e2=S[k == e1.k and d > e1.d] within 3 sec
  select e1.i as x, e2.i as y insert into Ochain;
from every e1=S[i > 5] -> e2=Q[d > e1.d] -> e3=S[k == e1.k]
  select e1.i as x, e2.i as y, e3.i as z insert into Olong;
from every e1=S[i > 2] -> e2=Q[d > e1.d]<2:4> -> e3=S[k == e1.k]
  select e1.i as x, e2[0].i as y, e2[last].i as w, e3.i as z insert into Ocount;
from every (e1=S[i > 5] and e2=Q[i > 3]) -> e3=S[b == true]
  select e1.k as x, e2.k as y, e3.k as z insert into Oand;
from every (e1=S[i > 6] or e2=Q[i > 6]) -> e3=S[d > 90.0]
  select e1.k as x, e2.k as y, e3.k as z insert into Oor;
from e1=S[i == 8] -> not Q[k == e1.k] for 300 millisec select e1.i as x insert into Oonce;
from every e1=S[k == 'k1'] -> not Q[k == 'k2'] for 300 millisec select e1.i as x insert into Oquiet;
from every not Q[k == 'k3'] for 1 sec -> e1=S[i > 4] select e1.i as x insert into Oafter;
from every not S[k == 'k2'] and e1=Q[i > 5] select e1.i as x insert into Owithout;
""",
    "single-events": """
from every e1=S -> e2=S[k == e1.k and d > e1.d] within 3 sec
  select e1.i as x, e2.i as y insert into Ochain;
from every e1=S[i > 5] -> e2=Q[d > e1.d] -> e3=S[k == e1.k]
  select e1.k as x, e2.i as y, e3.i as z insert into Olong;
partition with (k of S, k of Q) begin
  from every e1=S -> e2=Q[d > e1.d] -> e3=S select e1.k as x, e2.i as y, e3.d as z insert into Ocut;
end;
""",
    "sequences": """
from every e1=S, e2=S[d > e1.d]+, e3=S[d < e2[last].d]
  select e1.i as x, e2[last].i as y, e3.i as z insert into Opeaks;
from every e1=S[i > 3], e2=S[i > 4]*, e3=S[i < 4] select e1.i as x, e3.i as z insert into Ostar;
from every e1=S, e2=Q[d > e1.d]?, e3=S select e1.i as x, e2.i as y, e3.i as z insert into Omaybe;
""",
    "joins": """
from S#window.length(4) as x join Q#window.length(3) as y on x.k == y.k
  select x.i as a, y.i as c insert into Oinner;
from S#window.time(1 sec) as x full outer join Q#window.time(800 millisec) as y
  on x.k == y.k and x.d > y.d select x.i as a, y.i as c insert all events into Oouter;
from S#window.length(3) as x left outer join Q as y on x.k == y.k
  select x.k as k, count() as n group by x.k insert into Oleft;
from S as x unidirectional join Q#window.lengthBatch(3) as y on x.k == y.k
  select x.i as a, y.i as c insert into Oone;
from S#window.sort(3, d) as x join Q#window.session(200 millisec) as y
  select x.i as a, y.i as c insert into Oodd;
""",
    "partitions": """
@purge(enable='true', interval='500 millisec', idle.period='1 sec')
partition with (k of S, k of Q) begin
  from S#window.length(3) select k, i, avg(d) as m insert into #M;
  from #M#window.lengthBatch(2) select k, sum(i) as t insert into Oinner;
  from every e1=S -> e2=Q[d > e1.d] select e1.i as a, e2.i as c insert into Omatched;
  from S#window.time(600 millisec) select k, sum(d) as t, count() as n insert all events into Oheld;
  from S select k, i output last every 2 events insert into Ocalm;
end;
partition with (i < 3 as 'low' or i >= 3 as 'high' of S) begin
  from S select i, count() as n insert into Oranged;
  from S#window.time(700 millisec) as x join S#window.length(2) as y on x.k == y.k
    select x.i as a, y.i as c insert into Opaired;
end;
""",
    "tables": """
@PrimaryKey('k') @Index('i') define table T (k string, i int, d double);
define table L (k string, n int);
from S select k, i, d update or insert into T set T.i = i, T.d = d on T.k == k;
from Q[i > 2] select k, i as n insert into L;
from Q[i == 1] select k delete L on L.k == k;
from S join T as t on S.i == t.i select S.k as k, t.k as other, t.d as d insert into Ofound;
from S[(L.k == k) in L] select k, i insert into Oknown;
from Q left outer join L as l on Q.k == l.k select Q.k as k, l.n as n insert into Oall;
""",
    "named-windows": """
define window W (k string, d double) length(4) output all events;
define window V (k string, i int) timeBatch(600 millisec) output current events;
from S select k, d insert into W;
from Q select k, i insert into V;
from W select k, sum(d) as t group by k insert all events into Osums;
from V select k, count() as n group by k insert into Obatches;
from S join W as w on S.k == w.k select S.i as i, w.d as d insert into Opairs;
""",
    "aggregations": """
@purge(interval='700 millisec') define aggregation A from S[i > 1]
  select k, sum(i) as a, avg(d) as c, count() as e, min(l) as g, max(f) as h, distinctCount(i) as j,
  b as m, k as n group by k aggregate every sec...year;
define aggregation B from S select sum(d) as a, d as c, distinctCount(k) as e
  aggregate by l every sec, hour;
from Q join A on Q.k == A.k within 0L, 9999999999999L per 'sec'
  select Q.i as i, AGG_TIMESTAMP as t, a, c, e, g, h, j, m, n insert into Oclosed;
from Q join A within 0L, 9999999999999L per 'years'
  select Q.i as i, A.k as k, a, c, e, g, h, j, m, n insert into Ofound;
from S join B within 0L, 9999999999999L per 'hours'
  select S.i as i, a, c, e insert into Oself;
""",
    "triggers": """
define trigger Often at every 400 millisec;
define trigger Once at 'start';
define trigger Clock at '*/3 * * * * ?';
from Often select triggered_time as t, count() as n insert into Ooften;
from Once select triggered_time as t insert into Oonce;
from Clock select triggered_time as t, count() as n insert into Oclock;
from S#window.length(2) select i insert into Oplain;
""",
    "held-back": """
from S#window.length(3) select k, sum(d) as t insert into O1;
from Q#window.lengthBatch(3) select k, sum(d) as t insert into O2;
""",
}
