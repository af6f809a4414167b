"""Cases of whole apps, run here and compared with what the reference engine made of them.

    python -m mesh.testing.conformance CASES.jsonl OUT.jsonl [--engine direct] [--jobs N]

reads cases and writes answers, JSON lines both, in the format of the program that asks the engine,
so that the two answers can be held side by side.

A case
    name, app    the app is SiddhiQL text
    inputs       steps: {"stream", "data", "ts"?}, {"stream", "events": [[ts, data], ..]} (sent as
                 one array), {"sleep_ms"}, {"advance_ms"}, {"advance_to"}, {"align_ms"},
                 {"wait_events", "max_ms"}, {"snapshot": name}, {"restore": name},
                 {"restart": name or null}
    outputs      streams to watch; without it every stream that the case does not feed
    queries      queries to watch; without it every one whose name the text gives
    mode         auto, virtual or playback; auto is playback when a step has a ``ts`` or the app
                 says ``@app:playback``
    start_ts     where the clock starts, milliseconds since 1970
    playback     false: auto is not playback, whatever the steps have

Times may be {"$t0": k}, k milliseconds after the start, or {"$now": k}.  Values have the type that
the stream declares; {"$t": type, "v": value} writes one out, for NaN and infinities.

In ``virtual`` mode only the steps that let time pass move the clock, and an event without ``ts``
happens now.  In ``playback`` mode events move it.
"""
