"""A connector of another package: source ``words`` reads a text word by word, sink ``words`` adds.

Declare it in the package's ``pyproject.toml``::

    [project.entry-points."mesh.connectors"]
    words = "mesh_words"
"""

import asyncio
from pathlib import Path

from mesh.connect.contract import Batch, UnavailableError
from mesh.connect.spec import Guarantee, Option, Role, Spec

PATH = Option("path", is_required=True, doc="Path of the text.")

SPECS = (
    Spec(
        "words", Role.SOURCE, "Reads a text word by word.", (PATH, Option("ref")),
        "mesh_words:WordSource", Guarantee.EXACTLY_ONCE, "The text grows at its end only.",
    ),
    Spec(
        "words", Role.SINK, "Adds each payload to a text.", (PATH, Option("ref")),
        "mesh_words:WordSink", Guarantee.AT_LEAST_ONCE,
    ),
)  # fmt: skip


class WordSource:
    async def open(self, context, position):
        self.path = Path(context.options["path"])
        self.at = (position or {"word": 0})["word"]

    async def read(self):
        try:
            words = self.path.read_text().split()[self.at :]
        except OSError as error:
            # The host waits with a growing delay, shows the reason, and opens the source again.
            raise UnavailableError(f"{self.path} can't be read") from error
        if not words:
            await asyncio.sleep(0.05)
            return None
        self.at += len(words)
        return Batch([word.encode() for word in words], {"word": self.at})

    async def committed(self, position):
        """The words are stored; a queue would be acknowledged here."""

    async def close(self):
        """Nothing to release."""


class WordSink:
    state = None

    async def open(self, context, state):
        self.path = Path(context.options["path"])

    async def write(self, records):
        with self.path.open("a") as file:
            file.writelines(f"{record.payload.decode()} " for record in records)
        return [None if record.payload else "an empty word" for record in records]

    async def close(self):
        """Nothing to release."""
