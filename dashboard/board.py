"""What there is to show, as encoded sections with a sequence number each.

A watcher remembers the number it has seen and is given the sections that are newer: one that is
slow gets fewer updates, never a queue of old ones, and the memory for it does not grow.
"""

import json
import time
from collections.abc import Mapping
from typing import Any

Changes = Mapping[str, bytes | None]
"""Section -> its new JSON text, or None if it is gone."""


def encode(content: Any) -> bytes:
    """Return content as compact JSON.

    Raises:
        ValueError: A number is not finite.
    """
    return json.dumps(content, separators=(",", ":"), allow_nan=False).encode()


class Board:
    """The newest sections.

    Attributes:
        sequence: Grows with every change.
        last_change: When the run's files last changed, in seconds since 1970; None: never yet.
    """

    def __init__(self) -> None:
        """Start empty."""
        self.sequence = 0
        self.last_change: float | None = None
        self._sections: dict[str, tuple[int, bytes | None]] = {}

    def apply(self, changes: Changes, last_change: float | None) -> bool:
        """Take changes over; return whether there were any."""
        self.last_change = last_change
        if not changes:
            return False
        self.sequence += 1
        for name, text in changes.items():
            self._sections[name] = (self.sequence, text)
        return True

    def message(self, since: int) -> bytes:
        """Return a JSON text with all sections newer than `since`; 0: everything there is.

        `sections` maps names to content, null for a section that is gone.
        """
        parts = [
            json.dumps(name).encode() + b":" + (b"null" if text is None else text)
            for name, (sequence, text) in self._sections.items()
            if sequence > since and (text is not None or since > 0)
        ]
        head = {"full": since == 0, "now": round(time.time(), 3), "last_change": self.last_change}
        return encode(head)[:-1] + b',"sections":{' + b",".join(parts) + b"}}"
