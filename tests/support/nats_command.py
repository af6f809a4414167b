"""The parts of the ``nats`` command line tool that the pages use, for machines without it."""

from __future__ import annotations

import argparse
import asyncio
import os

from mesh.jetstream.connection import TlsClient

_WAIT_S = 30


async def run(arguments: argparse.Namespace) -> None:
    # Its flush waits for what was sent before, which nats-py's own does not.
    client = TlsClient()
    await client.connect(arguments.server, connect_timeout=_WAIT_S)
    match arguments.what:
        case "pub":
            await client.publish(arguments.subject, arguments.body.encode())
            await client.flush()
        case "request":
            said = await client.request(arguments.subject, arguments.body.encode(), _WAIT_S)
            print(said.data.decode())  # noqa: T201 - a command
        case _:
            subscription = await client.subscribe(arguments.subject)
            await client.flush()
            print("Subscribing on", arguments.subject, flush=True)  # noqa: T201 - a command
            # The tool goes on until Ctrl-C.
            print((await subscription.next_msg(_WAIT_S)).data.decode())  # noqa: T201 - a command
    await client.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", default=os.environ.get("NATS_URL"))
    parser.add_argument("what", choices=("pub", "sub", "request"))
    parser.add_argument("subject")
    parser.add_argument("body", nargs="?", default="")
    asyncio.run(run(parser.parse_args()))
