"""What each member gets once all have posted: a frame of two messages, the first the same for all.

Bytes go on as they came, checked but not encoded anew.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from marl_sched.cluster.exchange import Outbox
from marl_sched.cluster.kernels.messages import TO
from zones.exchange_codec import ROWS
from zones.proto import exchange_pb2 as pb


@dataclass(frozen=True)
class Posted:
    """A checked outbox and the message it came in."""

    outbox: Outbox
    message: pb.Outbox


class Answers:
    """The answers to the posts of one exchange, by member."""

    def __init__(
        self, number: int, posts: Sequence[Posted], members: Sequence[str], zones: Sequence[str]
    ) -> None:
        """Put them together.

        Args:
            number: Of the exchange.
            posts: One a member, in the order of their names.
            members: Names of the members, sorted.
            zones: Names of all zones, sorted; rows are addressed to places among them.
        """
        self._common = _common(number, posts)
        self._rows = _by_address(posts)
        self._place_by_member = {name: zones.index(name) for name in members}

    def frame(self, member: str) -> bytes:
        """Return the answer for a member: of rows, those addressed to it."""
        mine = self._rows.get(self._place_by_member[member])
        if mine is None:
            return self._common
        collected = pb.Collected()
        for name, rows in mine.items():
            made: pb.Rows = getattr(collected, name)
            made.counts.extend(rows.counts)
            made.values = b"".join(rows.values)
        return self._common + pb.FromHub(collected=collected).SerializeToString()


@dataclass(frozen=True)
class _Rows:
    """Rows for one zone: how many of each member, and their bytes."""

    counts: list[int]
    values: list[bytes]


def _common(number: int, posts: Sequence[Posted]) -> bytes:
    messages = [posted.message for posted in posts]
    first = posts[0].outbox
    with_digests = [at for at, message in enumerate(messages) if message.HasField("digests")]
    collected = pb.Collected(
        number=number,
        step=first.step,
        moments=_together([message.moments for message in messages]),
        with_digests=with_digests,
        digests=_together([messages[at].digests for at in with_digests]) if with_digests else None,
        offloads=pb.Rows(n_columns=first.offloads.shape[1]),
        notices=pb.Rows(n_columns=first.notices.shape[1]),
        settlements=pb.Rows(n_columns=first.settlements.shape[1]),
    )
    return pb.FromHub(collected=collected).SerializeToString()


def _together(arrays: Sequence[pb.Array]) -> pb.Array:
    """Return arrays of one shape, one behind the other; the shape stays that of one."""
    return pb.Array(shape=arrays[0].shape, values=b"".join(array.values for array in arrays))


def _by_address(posts: Sequence[Posted]) -> Mapping[int, Mapping[str, _Rows]]:
    """Return the rows by the zone they are addressed to, and by their kind."""
    found: dict[int, dict[str, _Rows]] = {}
    for at, posted in enumerate(posts):
        for name in ROWS:
            rows = getattr(posted.outbox, name)
            if not len(rows):
                continue
            zones = set(rows[:, TO].tolist())
            for zone in zones:
                n, values = len(rows), getattr(posted.message, name).values
                if len(zones) > 1:
                    mine = rows[rows[:, TO] == zone]
                    n, values = len(mine), mine.tobytes()
                by_name = found.setdefault(int(zone), {})
                made = by_name.setdefault(name, _Rows([0] * len(posts), []))
                made.counts[at] = n
                made.values.append(values)
    return found
