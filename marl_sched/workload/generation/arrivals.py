"""When jobs arrive: batches at a rate that is modulated on several time scales.

In every second a Poisson number of batches arrives, each of a geometric number of jobs. The rate is
its mean times independent factors of mean 1, lognormal (rare bursts) or gamma (lulls). Factor i
holds its value for a geometric time of mean `scale_s`, then takes a new one: its autocorrelation is
exp(-t / scale_s). With batches of mean B and the relative rate's autocovariance C(t), the counts of
T seconds have the dispersion

    IDC(T) = variance / mean = b + r V(T),   b = 2 B - 1,   V(T) = sum over |t| < T (1 - |t|/T) C(t)

at a rate of r jobs/s, C(t) being the product of (1 + v_i exp(-t / scale_i)), minus 1 (Cox and
Isham, Point Processes, 1980). The parameters are fitted to the trace's IDC at several T and to the
gaps between its jobs.

At another rate both parts stay as they are in relative terms: batches are of the same size, and the
rate swings by the same factors, as users who submit twice as much do so at the same times. Hence
IDC - b grows with the rate: sparse means calmer counts, dense wilder ones. Thinning (every job kept
with probability p) gives 1 + p (IDC - 1): the same, but that it breaks batches up. Superposing k
independent clusters would leave IDC as it is; it is not what happens within one cluster, whose
busy minutes are the wilder ones: in the v2018 hour the ten busiest minutes have an IDC of 5.3 over
their seconds, the others 1.9 to 2.1.
"""

from dataclasses import dataclass
from itertools import combinations
from math import exp, prod
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, PositiveFloat

from marl_sched.errors import ConfigError
from marl_sched.workload.assembly import ranks
from marl_sched.workload.table import Float, Int

DAY_S = 86_400.0


class Modulation(BaseModel):
    """One factor of the rate."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    variance: PositiveFloat
    """Of the factor; its mean is 1."""
    scale_s: PositiveFloat
    """Mean time it holds a value."""


class ArrivalModel(BaseModel):
    """Arrivals of jobs, and how they were measured."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rate_per_s: PositiveFloat
    """Jobs per second of the trace."""
    batch_jobs: float
    """Mean number of jobs of a batch, >= 1."""
    modulations: tuple[Modulation, ...]
    factors: Literal["lognormal", "gamma"] = "lognormal"
    """Distribution of all factors."""
    modes: dict[str, PositiveFloat]
    """Rate of each mode over the trace's: `own` 1, `sparse` and `dense` the quietest and the
    busiest sixtieth of the trace, held for the whole horizon."""

    def dispersion(self, span_s: int, rate_per_s: float | None = None) -> float:
        """Return IDC(span_s) at a rate, the trace's own by default."""
        rate = self.rate_per_s if rate_per_s is None else rate_per_s
        return 2.0 * self.batch_jobs - 1.0 + rate * relative_variance(self.modulations, span_s)


@dataclass(frozen=True)
class DayCurve:
    """A daily swing of the rate that keeps its mean over every whole day.

    rate(t) = mean (1 + a cos(2 pi (t - peak_s) / 86400 s)), a = (swing - 1) / (swing + 1).

    Attributes:
        swing: Highest rate over the lowest, >= 1; 1 is no curve. Helios' GPU jobs have 9.
        peak_s: Time of the highest rate, seconds after the start.
    """

    swing: float = 1.0
    peak_s: float = DAY_S / 2.0

    def at(self, time_s: Float) -> Float:
        """Return the rate over its mean at some times, of any shape.

        Raises:
            ConfigError: The swing is below 1.
        """
        if not 1.0 <= self.swing < np.inf:
            raise ConfigError(f"swing = {self.swing}, expected a number >= 1")
        amplitude = (self.swing - 1.0) / (self.swing + 1.0)
        return 1.0 + amplitude * np.cos(2.0 * np.pi * (time_s - self.peak_s) / DAY_S)


def draw_arrivals(
    model: ArrivalModel,
    rate_per_s: float,
    horizon_s: int,
    day: DayCurve,
    generator: np.random.Generator,
) -> Int:
    """Draw the seconds (J,) of the arrivals in [0, horizon_s), ascending."""
    seconds = ranks(horizon_s)
    rate = rate_per_s * day.at(np.asarray(seconds + 0.5, np.float64))  # (S,)
    for modulation in model.modulations:
        rate *= _factor(model.factors, modulation, horizon_s, generator)
    n_batches = generator.poisson(rate / model.batch_jobs)
    n_jobs = n_batches.copy()
    busy = n_batches > 0
    if model.batch_jobs > 1.0:  # a geometric number is 1 + one of failures; their sum is this
        n_jobs[busy] += generator.negative_binomial(n_batches[busy], 1.0 / model.batch_jobs)
    return np.repeat(seconds, n_jobs)


def relative_variance(modulations: tuple[Modulation, ...], span_s: int) -> float:
    """Return V(T) in s: the sum of (1 - |t| / T) C(t) over whole seconds |t| < T."""
    total = 0.0
    for size in range(1, len(modulations) + 1):
        for chosen in combinations(modulations, size):
            decay = exp(-sum(1.0 / part.scale_s for part in chosen))
            later = decay / (1.0 - decay) - decay * (1.0 - decay**span_s) / (
                span_s * (1.0 - decay) ** 2
            )
            total += prod(part.variance for part in chosen) * (1.0 + 2.0 * later)
    return total


def _factor(
    kind: str, modulation: Modulation, horizon_s: int, generator: np.random.Generator
) -> Float:
    """Draw one factor (S,) of the rate of every second."""
    is_new = generator.random(horizon_s) >= exp(-1.0 / modulation.scale_s)
    values = np.cumsum(is_new)  # (S,) number of the value held; the first second has number 0 or 1
    n, variance = int(values[-1]) + 1, modulation.variance
    if kind == "gamma":
        drawn = generator.standard_gamma(1.0 / variance, n) * variance
    else:
        sigma2 = np.log1p(variance)
        drawn = np.exp(np.sqrt(sigma2) * generator.standard_normal(n) - sigma2 / 2.0)
    return np.asarray(drawn[values])
