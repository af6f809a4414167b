#!/usr/bin/env bash
# Guess: a Python int that is an argument of a JavaScript function is a number there, exact up to 2^53 as all numbers of
# JavaScript are, or is refused.
#
# What happens: the bindings quickjs-ng 0.17.0.2 (as quickjs 1.19.4, which they continue) hand an int over as one of 32
# bits, and take what does not fit modulo 2^32: 2^31 arrives as -2^31, 2^40 as 0, without an error.  A result of the
# same size comes back right, as a float.  A text that a function returns ends at its first NUL, while one that it is
# given arrives whole.  Values as JSON, parsed in JavaScript, have neither loss.
#
# Why it matters here: attributes of type long (times in milliseconds among them) are arguments of functions in
# JavaScript.  The mesh hands all arguments and results over as JSON.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check quickjs-ng==0.17.0.2 2>/dev/null
"$work/venv/bin/python" - <<'PY'
import importlib.metadata

import quickjs

print("quickjs-ng", importlib.metadata.version("quickjs-ng"))
context = quickjs.Context()
same = context.eval("(value) => value")
given = [2**31 - 1, 2**31, 2**40]
received = [same(value) for value in given]
print("given:   ", given)
print("received:", received)
whole = context.eval("(text) => text.length")("a\0b"), context.eval("'a\\0b'")
print(f"a text with NUL: {whole[0]} characters in JavaScript; returned: {whole[1]!r}")
print("2^40 in JSON:", context.eval("JSON.stringify(JSON.parse('1099511627776'))"))
assert received == [2**31 - 1, -(2**31), 0], received
assert context.eval("2 ** 31") == 2**31
assert whole == (3, "a"), whole
PY
