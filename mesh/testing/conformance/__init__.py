"""Cases of whole apps, run here and compared with the answers of the reference engine.

A program of a checkout, ``python -m tools.conformance``, reads cases and writes answers.

A case
    name, app    the app is SiddhiQL text
    inputs       steps: {"stream", "data", "ts"?}, {"stream", "events": [[ts, data], ..]} (sent as
                 one array), {"sleep_ms"}, {"advance_ms"}, {"advance_to"}, {"align_ms"},
                 {"wait_events", "max_ms"}, {"query": text} (on-demand),
                 {"snapshot": name}, {"restore": name}, {"restart": name or null}
    outputs      streams to watch; default: every stream that the case does not feed
    queries      queries to watch; default: every query with a name in the text
    mode         auto, virtual or playback; auto is playback when a step has a ``ts`` or the app
                 has ``@app:playback``
    start_ts     start of the clock, milliseconds since 1970
    playback     false: auto is not playback, whatever the steps have

Times may be {"$t0": k}, k milliseconds after the start, or {"$now": k}.  Values have the type that
the stream declares; {"$t": type, "v": value} is a value with its type, for NaN and infinities.

In ``virtual`` mode only the steps that let time pass move the clock, and an event without ``ts``
has its present time.  In ``playback`` mode events move the clock.
"""
