"""What a zone shows of one of its replicas while it works: a record, checked strictly, as JSON.

A view is never read by training. Whoever reads one from another process calls `parse_view`: the
other side may be anybody.
"""

from collections.abc import Collection
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError, model_validator

from marl_sched.config.base import Model, Name, NonNegative, Share
from marl_sched.errors import MarlSchedError, printable

MAX_VIEW_BYTES = 256 << 10
MAX_ROWS = 1024
"""Most rows of machines; of a larger zone a row is the mean of several machines."""
MAX_CANDIDATES = 8
_MAX_NAMES = 4096
_MAX_QUANTILES = 4096
_LARGEST = 2**53
"""Counts beyond it are no exact numbers to a browser."""

Phase = Literal["training", "validation"]
_Count = Annotated[int, Field(ge=0, le=_LARGEST)]
_Number = Annotated[int, Field(ge=1, le=_LARGEST)]
_Shares = Annotated[list[Share], Field(min_length=1, max_length=64)]
_Rows = Annotated[list[_Shares], Field(min_length=1, max_length=MAX_ROWS)]
_Quantiles = Annotated[list[float], Field(min_length=1, max_length=_MAX_QUANTILES)]


class ViewError(MarlSchedError):
    """A view that makes no sense."""


class MachinesView(Model):
    """All machines of a zone, in the order of its configuration.

    Attributes:
        n: Machines.
        per_cell: Consecutive machines a row is the mean of; the last row may be of fewer.
        utilization: A row of R shares a cell: real use over capacity, capped at 1.
        allocation: The same of allocated over allocatable.
    """

    n: _Number
    per_cell: _Number
    utilization: _Rows
    allocation: _Rows

    @model_validator(mode="after")
    def _check_rows(self) -> Self:
        n_rows = -(-self.n // self.per_cell)
        if not len(self.utilization) == len(self.allocation) == n_rows:
            raise ValueError(f"rows of machines, expected {n_rows} each")
        return self


class CandidateView(Model):
    """A candidate of a decision and what the policy expected of it.

    Attributes:
        kind: A machine of the zone or a peer zone.
        index: Among the machines, or among the peers in the order of their names.
        name: The machine's number, or the peer's name.
        utilization: R shares as the policy saw them; of a peer its mean, by its digest.
        is_chosen: Whether it was taken.
        mean: Mean of the quantile values.
        quantiles: (N,) quantile values of the return.
    """

    kind: Literal["machine", "peer"]
    index: _Count
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]
    utilization: _Shares | None
    is_chosen: bool
    mean: float
    quantiles: _Quantiles


class DecisionView(Model):
    """A recent decision of the replica.

    Attributes:
        simulated_s: When it was taken.
        request: What the instance asked for, by resource.
        is_exploring: Whether it was drawn at random.
        taus: (N,) the quantiles' places.
        candidates: The chosen one first, then the best of the others that were not masked.
    """

    simulated_s: NonNegative
    request: Annotated[dict[Name, _Count], Field(max_length=64)]
    is_exploring: bool
    taus: Annotated[list[Share], Field(min_length=1, max_length=_MAX_QUANTILES)]
    candidates: Annotated[list[CandidateView], Field(min_length=1, max_length=MAX_CANDIDATES)]

    @model_validator(mode="after")
    def _check_candidates(self) -> Self:
        if [one.is_chosen for one in self.candidates] != [True] + [False] * (
            len(self.candidates) - 1
        ):
            raise ValueError("candidates, expected the chosen one first and no other")
        if any(len(one.quantiles) != len(self.taus) for one in self.candidates):
            raise ValueError(f"quantiles, expected as many as taus: {len(self.taus)}")
        return self


class ZoneView(Model):
    """One replica of a zone at one moment.

    Attributes:
        format: Version of this format.
        zone: The zone.
        time: Seconds of the clock (Unix time) when it was written.
        phase: What the zone is doing.
        round: The round that is trained, or whose weights are validated.
        attempt: The attempt at it.
        episode: Number of the shown episode within the phase, from 0.
        share: Share of the phase's windows that are over.
        simulated_s: Time since the episode's start.
        n_waiting: Instances that are ready and not placed.
        n_running: Instances on machines.
        n_decisions: Decisions of the episodes under way, all replicas together.
        resources: Names of the R resources.
        machines: All machines.
        offloads: Instances sent to each peer since the episode's start.
        decision: A recent decision; None before the first, and where none are shown.
    """

    format: Literal[1]
    zone: Name
    time: Annotated[float, Field(ge=0, le=1e11)]
    phase: Phase
    round: _Count
    attempt: _Number
    episode: _Count
    share: Share
    simulated_s: NonNegative
    n_waiting: _Count
    n_running: _Count
    n_decisions: _Count
    resources: Annotated[list[Name], Field(min_length=1, max_length=64)]
    machines: MachinesView
    offloads: Annotated[dict[Name, _Count], Field(max_length=_MAX_NAMES)]
    decision: DecisionView | None

    @model_validator(mode="after")
    def _check_whole(self) -> Self:
        rows = [*self.machines.utilization, *self.machines.allocation]
        if self.decision is not None:
            seen = [one.utilization for one in self.decision.candidates]
            rows += [row for row in seen if row is not None]
            if list(self.decision.request) != self.resources:
                raise ValueError("request, expected an amount of every resource")
        if any(len(row) != len(self.resources) for row in rows):
            raise ValueError(f"shares, expected {len(self.resources)} a row")
        return self

    def encoded(self) -> bytes:
        """Return the view as JSON; without its decision where it would be too large.

        Raises:
            ViewError: It is too large all the same.
        """
        data = self.model_dump_json().encode()
        if len(data) > MAX_VIEW_BYTES and self.decision is not None:
            return self.model_copy(update={"decision": None}).encoded()
        if len(data) > MAX_VIEW_BYTES:
            raise ViewError(f"a view of {len(data)} bytes, expected at most {MAX_VIEW_BYTES}")
        return data


def parse_view(data: bytes, zone: str, zone_names: Collection[str] | None = None) -> ZoneView:
    """Return the view that another process has made.

    Args:
        data: JSON.
        zone: The zone it has to be of.
        zone_names: All zones, if known: it may name no other.

    Raises:
        ViewError: It is too large, no JSON, of another zone, or not as ZoneView says.
    """
    if len(data) > MAX_VIEW_BYTES:
        raise ViewError(f"a view of {len(data)} bytes, expected at most {MAX_VIEW_BYTES}")
    try:
        view = ZoneView.model_validate_json(data)
    except ValidationError as error:
        raise ViewError(_first_problem(error)) from None
    if view.zone != zone:
        raise ViewError(f"zone = {view.zone!r}, expected {zone!r}")
    named = set(view.offloads)
    wrong = named & {zone} if zone_names is None else named - (set(zone_names) - {zone})
    if wrong:
        raise ViewError(f"offloads to {min(wrong)!r}, expected names of peers")
    return view


def _first_problem(error: ValidationError) -> str:
    """Return one line, of bounded length, whatever the text was."""
    problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(str(step)[:63] for step in problem["loc"][:8]) or "the text"
    return printable(f"{place}: {problem['msg'][:120]}")
