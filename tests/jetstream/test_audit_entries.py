"""Entries of the audit under requests of nobody: counted, and bounded."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from mesh.jetstream.audit_entries import ADDRESSES_MAX, MINUTE_MS, AuditEntry, Refused

NOBODY: Final = AuditEntry(1000, "eve", "", "192.0.2.1", "GET", "/nodes", 401)
ADA: Final = replace(NOBODY, user="ada", how="password", status=403)


def test_refusals_of_an_address_are_one_entry_a_minute_with_their_number() -> None:
    refused = Refused()
    assert refused.add(NOBODY) == [NOBODY]
    for n in range(1, 1000):
        assert refused.add(replace(NOBODY, at_ms=1000 + n, path=f"/{n}")) == []
    assert refused.due(1000 + MINUTE_MS - 1) == []
    (rest,) = refused.due(1000 + MINUTE_MS)
    assert (rest.count, rest.path, rest.at_ms) == (999, "/999", 1999)
    # The address goes on: one entry for the next minute, none at once.
    later = replace(NOBODY, at_ms=2000 + MINUTE_MS)
    assert [refused.add(later) for _ in range(5)] == [[]] * 5
    (rest,) = refused.add(replace(later, at_ms=9000 + 2 * MINUTE_MS))
    assert rest.count == 5
    assert [one.count for one in refused.rest()] == [1]
    assert refused.rest() == []


def test_an_address_that_was_quiet_for_a_minute_is_written_at_once_again() -> None:
    refused = Refused()
    later = replace(NOBODY, at_ms=NOBODY.at_ms + MINUTE_MS)
    assert [refused.add(NOBODY), refused.add(later)] == [[NOBODY], [later]]


def test_a_clock_that_was_set_back_holds_back_no_entry() -> None:
    refused = Refused()
    far = replace(NOBODY, at_ms=10**12)
    refused.add(far)
    refused.add(far)
    assert [one.count for one in refused.due(1000)] == [1]


def test_many_addresses_are_counted_together() -> None:
    refused = Refused()
    many = [replace(NOBODY, source=f"192.0.{n // 256}.{n % 256}") for n in range(5000)]
    written = [one for entry in many for one in refused.add(entry)]
    assert len(written) == ADDRESSES_MAX + 1
    (rest,) = refused.due(1000 + MINUTE_MS)
    assert (rest.source, rest.count) == ("", 5000 - ADDRESSES_MAX - 1)


def test_a_user_who_is_known_has_more_entries() -> None:
    refused = Refused()
    written = [one for _ in range(500) for one in refused.add(ADA)]
    assert 20 <= len(written) <= 100
    assert refused.add(NOBODY) == [NOBODY]
    (rest,) = refused.due(1000 + MINUTE_MS)
    assert rest.count == 500 - len(written)


def test_changes_and_failures_of_users_are_each_an_entry() -> None:
    counted = [
        replace(NOBODY, how=how, status=status).is_counted
        for how in ("", "password")
        for status in (200, 303, 401, 403, 404, 415, 429, 500)
    ]
    assert counted == [False] * 2 + [True] * 6 + [False] * 2 + [True] * 2 + [False] * 2 + [
        True,
        False,
    ]
