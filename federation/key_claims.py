"""Who may be a zone that has a key of its own: the node with that key, nobody that only says so."""

from collections.abc import Callable
from pathlib import Path

from flwr.serverapp import Grid

from federation.zone_keys import ZoneKeys
from zones.keys import public_to_pem

Objection = Callable[[Grid, int, str], str]
"""Returns why a node, given by its id, may not have the zone it names; empty: it may."""


def no_objection(grid: Grid, node_id: int, zone: str) -> str:
    """Let every node have the zone it names: nodes have no keys that are known."""
    return ""


class KeyClaims:
    """Looks claims up in the keys that are in, as the SuperLink knows the nodes by theirs."""

    def __init__(self, folder: Path) -> None:
        """Use the keys of a CA's folder."""
        self._keys = ZoneKeys(folder)

    def __call__(self, grid: Grid, node_id: int, zone: str) -> str:
        """Return why a node may not have the zone it names; empty: it may.

        A zone without a key of its own is open to free keys.
        """
        bound = next((known for known in self._keys.all() if known.zone == zone), None)
        if bound is None:
            return ""
        shown = next((n.public_key for n in grid.get_nodes() if n.node_id == node_id), b"")
        if shown.strip() == public_to_pem(bound.public_key).strip():
            return ""
        return (
            f"zone {zone} has a key of its own, and this is another; expected that key, or "
            "no --zone"
        )
