"""Questions about many JSON texts at once, answered by their octets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from pyspark_nats.arrow import kernels

if TYPE_CHECKING:
    import numpy.typing as npt

    from pyspark_nats.arrow import Array
    from pyspark_nats.decode.result import Ints

    Flags = npt.NDArray[np.bool_]


def bounds_of(texts: Array) -> Ints:
    """Start of each text in the buffer, and the end of the last one."""
    ends = np.frombuffer(texts.buffers()[1], np.int32)
    return ends[texts.offset :][: len(texts) + 1].astype(np.int64)


def octets_of(texts: Array) -> npt.NDArray[np.uint8]:
    """The octets of the buffer that the texts are in."""
    buffer = texts.buffers()[2]
    return np.frombuffer(buffer, np.uint8) if buffer is not None else np.zeros(0, np.uint8)


def are_plain(texts: Array) -> Flags:
    """Mask of the texts that start with ``{`` and end with ``}``, or ``}`` and a CR."""
    if len(texts) == 0:
        return np.zeros(0, bool)
    octets, bounds = octets_of(texts), bounds_of(texts)
    long = np.diff(bounds) >= 2
    if not long.all():
        flags = np.zeros(len(texts), bool)
        if long.any():
            flags[long] = are_plain(texts.filter(pa.array(long)))
        return flags
    last: npt.NDArray[np.uint8] = octets[bounds[1:] - 1]
    is_cut = last == ord("\r")
    if is_cut.any():
        last = np.where(is_cut, octets[bounds[1:] - 2], last)
    flags = (octets[bounds[:-1]] == ord("{")) & (last == ord("}"))
    return np.asarray(flags, bool)


def has_line_feed(texts: Array) -> bool:
    """Whether a text holds a line feed."""
    bounds = bounds_of(texts)
    return bool((octets_of(texts)[bounds[0] : bounds[-1]] == ord("\n")).any())


def lines_of(texts: Array) -> tuple[Array, Ints]:
    """The lines that are not blank, and the text of each."""
    split = kernels.split_pattern(texts, b"\n")
    offsets = split.offsets.to_numpy()
    lines = split.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    parent = np.repeat(np.arange(len(texts)), np.diff(offsets))
    is_blank = kernels.match_substring_regex(lines, r"^[ \t\r]*$").to_numpy(zero_copy_only=False)
    if is_blank.any():
        lines, parent = lines.filter(pa.array(~is_blank)), parent[~is_blank]
    return lines, parent


def is_utf8(joined: Array) -> bool:
    """Whether all octets are text."""
    try:
        joined.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def may_hold_words(text: pa.Buffer) -> bool:
    """Whether NaN or Inf appears at the position of a value."""
    octets = np.frombuffer(memoryview(text), np.uint8)
    for first, second, third in (b"NaN", b"Inf"):
        at = np.flatnonzero(octets[:-2] == first)
        at = at[(octets[at + 1] == second) & (octets[at + 2] == third)]
        if np.isin(octets[at - 1], _BEFORE_VALUES).any():
            return True
    return False


#: Octets after which a value may start; a text starts with a brace.
_BEFORE_VALUES: Final = np.frombuffer(b":,[- \t\r\n", np.uint8)
