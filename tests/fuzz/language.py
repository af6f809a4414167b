"""A coverage-guided fuzzer for the parser, the printer, the formatter and the binder.

It needs Atheris, which is no dependency of this project: ``pip install atheris``.  Then

    python -m tests.fuzz.language tests/fuzz/corpus -max_total_time=600 -dict=tests/fuzz/words.dict

continues from the texts of the corpus and adds each that reaches new code.  Further options are
libFuzzer's; ``-merge=1 NEW OLD`` keeps the fewest texts that reach as much.  Every text of the
corpus is read again by the tests.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["mesh.language", "mesh.plan"]):
    from tests.fuzz.targets import read


def one_text(data: bytes) -> None:
    """Read one text that the fuzzer made."""
    read(data.decode("utf-8", errors="replace"))


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_text)
    atheris.Fuzz()
