"""References of a node: their file, the apps that may name them, and their types."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mesh.connect.references import open_references, references_of, types_of
from mesh.errors import MeshError
from tests.support.pages import every_passage

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.nats
def test_references_are_read_from_the_nodes_file(tmp_path: Path) -> None:
    path = tmp_path / "refs.yaml"
    path.write_text("vault:\n  basic.auth.password: 0123\n  ssl.verification.disabled: true\n")
    assert references_of(str(path)) == {
        "vault": {"basic.auth.password": "83", "ssl.verification.disabled": "true"}
    }
    (shown,) = (one for one in every_passage() if one.first == "billing:")
    path.write_text(shown.text)
    found = open_references(references_of(str(path)), "ShopNorth")
    assert found == {"billing": {"basic.auth.username": "mesh", "basic.auth.password": "0815"}}, (
        "as docs/connectors.md shows it"
    )
    path.write_text("vault: 'hunter2")
    with pytest.raises(MeshError) as raised:
        references_of(str(path))
    assert "hunter2" not in raised.value.render()


def test_types_are_read_from_the_file_of_references(tmp_path: Path) -> None:
    path = tmp_path / "refs.yaml"
    path.write_text("orders:\n  type: http\n  receiver.url: http://h:1/\nplain:\n  a: 1\n")
    assert types_of(str(path)) == {"orders": "http"}
    assert types_of("") == {}


def test_a_reference_is_for_apps_that_it_names(tmp_path: Path) -> None:
    file = tmp_path / "refs.yaml"
    file.write_text(
        "all: {a: 1}\nshop: {a: 1, apps: 'Shop*'}\ntwo: {a: 1, apps: [Shop, Till]}\n"
        "none: {a: 1, apps: []}\n"
    )
    every = references_of(str(file))
    found = {app: sorted(open_references(every, app)) for app in ("Shop", "Shop2", "Till", "Bank")}
    assert found == {
        "Shop": ["all", "shop", "two"], "Shop2": ["all", "shop"], "Till": ["all", "two"],
        "Bank": ["all"],
    }  # fmt: skip
    # It is no option of the connector.
    assert open_references(every, "Shop")["shop"] == {"a": "1"}
    file.write_text("x: {a: 1, apps: 'a b'}\n")
    assert open_references(references_of(str(file)), "Shop") == {}
