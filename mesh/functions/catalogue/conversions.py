"""Units of the functions ``unitconversion:``: their ratios are exact; a year has 365.2425 days.

Source: API documentation of siddhi-execution-unitconversion 2.0; the international yard and pound.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

_POUND: Final = Fraction("0.45359237")
#: Metres, kilograms, seconds or litres, by the name of a unit.
_LENGTHS: Final = {
    "Mm": Fraction(10**6), "km": Fraction(1000), "m": Fraction(1), "cm": Fraction(1, 100),
    "mm": Fraction(1, 1000), "um": Fraction(1, 10**6), "nm": Fraction(1, 10**9),
    "in": Fraction("0.0254"), "ft": Fraction("0.3048"), "yd": Fraction("0.9144"),
    "mi": Fraction("1609.344"),
}  # fmt: skip
_MASSES: Final = {
    "t": Fraction(1000), "kg": Fraction(1), "g": Fraction(1, 1000), "mg": Fraction(1, 10**6),
    "ug": Fraction(1, 10**9), "lb": _POUND, "oz": _POUND / 16, "st": 14 * _POUND,
    "ST": 2000 * _POUND, "LT": 2240 * _POUND,
}  # fmt: skip
_TIMES: Final = {
    "y": Fraction("365.2425") * 86400, "d": Fraction(86400), "h": Fraction(3600),
    "m": Fraction(60), "s": Fraction(1), "ms": Fraction(1, 1000), "us": Fraction(1, 10**6),
    "ns": Fraction(1, 10**9),
}  # fmt: skip
_VOLUMES: Final = {"m3": Fraction(1000), "l": Fraction(1), "ml": Fraction(1, 1000)}
#: The functions that the extension has.
_NAMES: Final = (
    (_LENGTHS, ("MmTokm cmToft cmToin cmTokm cmTom cmTomi cmTomm cmTonm cmToum cmToyd kmTocm kmToft"
     " kmToin kmTom kmTomi kmTomm kmTonm kmToum kmToyd mTocm mToft mTomm mToyd miTokm")),
    (_MASSES, "gTokg gTomg gToug kgToLT kgToST kgTog kgTolb kgTooz kgTost kgTot tTog tTokg"),
    (_TIMES, "dToh hTom hTos mTos sToms sTons sTous yTod"),
    (_VOLUMES, "lTom3 lToml m3Tol mlTol"),
)  # fmt: skip
_WORDS: Final = {
    "Mm": "megametres", "km": "kilometres", "m": "metres", "cm": "centimetres",
    "mm": "millimetres", "um": "micrometres", "nm": "nanometres", "in": "inches", "ft": "feet",
    "yd": "yards", "mi": "miles", "t": "tonnes", "kg": "kilograms", "g": "grams",
    "mg": "milligrams", "ug": "micrograms", "lb": "pounds", "oz": "ounces", "st": "stones",
    "ST": "US tons", "LT": "imperial tons", "y": "years", "d": "days", "h": "hours",
    "s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds",
    "m3": "cubic metres", "l": "litres", "ml": "millilitres",
}  # fmt: skip


def _ratios() -> dict[str, Fraction]:
    ratios = {}
    for units, names in _NAMES:
        for name in names.split():
            one, _, other = name.partition("To")
            ratios[name] = units[one] / units[other]
    return ratios


#: By name of a function without its namespace, the number of the second unit in the first.
UNIT_RATIOS: Final = _ratios()


def sentence_of(name: str) -> str:
    """The conversion in words, such as "Centimetres as feet"."""
    # Both a metre and a minute are m.
    words = {**_WORDS, "m": "minutes"} if name in _NAMES[2][1].split() else _WORDS
    one, _, other = name.partition("To")
    return f"{words[one].capitalize()} as {words[other]}."
