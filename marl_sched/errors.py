"""Everything that can go wrong for a user, in one tree.

    MarlSchedError
      ConfigError         a configuration file or an override
      TraceError          a trace or instance table that cannot be read
      PlacementError      an action the cluster cannot carry out
      ExchangeError       the exchange between zones broke
        ExchangeAborted   a member left, the attempt is void
      CheckpointError     a checkpoint that is not ours, half-written or of another architecture
      AggregationError    a reply that must not be averaged
      RunError            a run folder or a run that cannot go on
      SecurityError       a key, certificate or token that must not be used

A message says what, the value got, what is allowed, and where. The command line prints it as one
line and exits with `exit_code`.
"""


class MarlSchedError(Exception):
    """Base of every error raised on purpose by this project."""

    exit_code = 1


class ConfigError(MarlSchedError):
    """A configuration file or an override that is not valid."""

    exit_code = 2


class TraceError(MarlSchedError):
    """A trace or instance table that cannot be read."""


class PlacementError(MarlSchedError):
    """An action that the cluster cannot carry out."""


class ExchangeError(MarlSchedError):
    """The exchange between zones broke."""


class ExchangeAborted(ExchangeError):
    """A zone left the exchange: this attempt of the round is void."""


class CheckpointError(MarlSchedError):
    """A checkpoint that is not ours, half-written, or of another architecture."""


class AggregationError(MarlSchedError):
    """A reply of a zone that must not be averaged."""


class RunError(MarlSchedError):
    """A run folder, or a run, that cannot go on."""


class SecurityError(MarlSchedError):
    """A key, a certificate or a join token that must not be used."""


def printable(text: str) -> str:
    """Return a text of a foreign file as a message may show it: on one line, without control signs.

    A header can hold whatever bytes there are, among them those that a terminal obeys.
    """
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)
