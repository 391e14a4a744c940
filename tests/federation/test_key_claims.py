"""Whose key a node must have to be a zone by name."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from flwr.serverapp import Grid

from federation.key_claims import KeyClaims
from federation.zone_keys import ZoneKeys
from zones.keys import new_key, public_to_pem

NAMES = ("a", "b")


def test_zone_with_a_key_is_for_the_node_with_that_key(tmp_path: Path) -> None:
    own, other = new_key().public_key(), new_key().public_key()
    keys = ZoneKeys(tmp_path)
    keys.assign(own, "a", NAMES)
    keys.assign(other, "", NAMES)
    shown: Any = [SimpleNamespace(node_id=1, public_key=public_to_pem(own))]
    shown.append(SimpleNamespace(node_id=2, public_key=public_to_pem(other)))
    grid = cast(Grid, SimpleNamespace(get_nodes=lambda: shown))
    claims = KeyClaims(tmp_path)
    assert claims(grid, 1, "a") == ""
    assert claims(grid, 2, "a").startswith("zone a has a key of its own, and this is another")
    assert claims(grid, 3, "a").startswith("zone a has a key of its own")
    assert claims(grid, 2, "b") == ""
    keys.revoke("a")
    assert claims(grid, 2, "a") == ""
