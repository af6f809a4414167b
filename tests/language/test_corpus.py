"""Texts that the fuzzer kept, because each reaches code that the others don't."""

from __future__ import annotations

import pytest

from tests.fuzz.targets import read
from tests.support.paths import ROOT

CORPUS = ROOT / "tests" / "fuzz" / "corpus"


@pytest.mark.parametrize("first", "0123456789abcdef")
def test_every_kept_text_is_read_or_refused(first: str) -> None:
    for path in sorted(CORPUS.glob(f"{first}*")):
        read(path.read_bytes().decode("utf-8", errors="replace"))


def test_there_are_texts() -> None:
    assert len(list(CORPUS.iterdir())) > 100
