"""Kinds of elements that extensions add, by the names of the original."""

from __future__ import annotations

import pytest

from mesh.functions.catalogue import (
    EXTENSIONS,
    CallRefusal,
    EntryOrigin,
    Extension,
    ExtensionRole,
    find_extension,
)
from tests.support.signature_cases import KINDS
from tests.support.together import together
from tools.signatures import RecordedCall, judge_kind


@together("case", KINDS, ids=[case.call for case in KINDS])
def test_a_kind_has_the_engines_verdict(case: RecordedCall) -> None:
    found = judge_kind(case.call)
    # Names of the extensions are known here, to distinguish them from a typing error.
    is_the_engines = isinstance(found, Extension) and found.origin is EntryOrigin.ENGINE
    assert is_the_engines == case.is_accepted, found


@pytest.mark.parametrize("role", ExtensionRole)
def test_every_kind_is_found_by_its_name(role: ExtensionRole) -> None:
    for name, extension in EXTENSIONS[role].items():
        assert find_extension(role, name) is extension


@pytest.mark.parametrize("role", ExtensionRole)
def test_a_kind_like_no_other_is_led_to_what_serves(role: ExtensionRole) -> None:
    # The nearest name, "hbase", doesn't run.
    found = find_extension(role, "couchbase")
    assert isinstance(found, CallRefusal)
    assert found.hint is not None
    assert "Did you mean" not in found.hint


def test_a_script_language_is_found_in_any_case() -> None:
    found = find_extension(ExtensionRole.SCRIPT, "JavaScript")
    assert isinstance(found, Extension)
    assert found.name == "javascript"
