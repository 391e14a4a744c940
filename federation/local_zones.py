"""The zones' processes on the supervisor's host, as the configuration has them."""

from collections.abc import Callable, Iterable, Mapping

from federation.kept_up import KeptUp
from federation.processes import Child

Make = Callable[[str], KeptUp]
Environment = Callable[[str], Mapping[str, str]]


class LocalZones:
    """One process a zone; none where others start them."""

    def __init__(self, zones: Iterable[str] | None, make: Make) -> None:
        """Describe them; nothing is started.

        Args:
            zones: Names of the zones; None: zones are started elsewhere.
            make: Describes the process of a zone.
        """
        self._is_here = zones is not None
        self._make = make
        self._zones = {zone: make(zone) for zone in sorted(zones or ())}
        self._leaving: list[Child] = []

    @property
    def watched(self) -> list[KeptUp]:
        """The processes that are to be there."""
        return list(self._zones.values())

    @property
    def children(self) -> list[Child]:
        """All processes, those that leave among them."""
        return [*(watched.child for watched in self._zones.values()), *self._leaving]

    def start(self, environment: Environment) -> None:
        """Start those that were not started yet.

        Args:
            environment: What a zone needs in its environment beside what all need.

        Raises:
            RunError: One cannot be started.
        """
        for zone, watched in self._zones.items():
            if not watched.is_started:
                watched.child.env |= environment(zone)
                watched.start()

    def change(
        self, added: Iterable[str], removed: Iterable[str], environment: Environment
    ) -> None:
        """Start the processes of new zones, and let those of others end.

        Raises:
            RunError: One cannot be started.
        """
        if not self._is_here:
            return
        for zone in removed:
            if zone in self._zones:
                child = self._zones.pop(zone).child
                child.ask_to_end()
                self._leaving.append(child)
        for zone in added:
            if zone not in self._zones:
                self._zones[zone] = self._make(zone)
        self.start(environment)

    def sweep(self) -> None:
        """Forget those that have ended, and what they have started."""
        for child in [child for child in self._leaving if not child.is_running]:
            child.sweep()
            self._leaving.remove(child)
