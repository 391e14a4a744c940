"""Rewards, learning, the averaging of zones, and how policies are compared."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from marl_sched.config.base import (
    Model,
    NonNegative,
    NonNegativeInt,
    Positive,
    PositiveInt,
    PositiveIntOrAuto,
    Share,
)
from marl_sched.errors import ConfigError


class Objective(Model):
    """Weights of the one number policies are compared by; lower is better (docs/metrics.md)."""

    late: NonNegative = 1.0
    """Weight of late_start_rate."""
    finish_violation: NonNegative = 2.0
    """Weight of finish_violation_rate."""
    slowdown: NonNegative = 0.5
    """Weight of (mean_slowdown - 1)."""
    imbalance: NonNegative = 1.0
    """Weight of zone_imbalance of every resource in `imbalance_resources`."""
    imbalance_resources: list[str] = Field(default=["cpu_milli", "memory_mib"])
    """Resources whose imbalance counts."""
    cost: NonNegative = 0.5
    """Weight of the mean cost of an instance."""
    offload: NonNegative = 0.05
    """Weight of offload_rate."""
    completion: NonNegative = 0.0
    """Weight of mean_completion_s, per minute: the slowdown counts a minute of a short task for
    more than one of a long task, this counts them alike."""


class Reward(Model):
    """The reward of an instance, settled when it starts (envs/reward.py has the formulas)."""

    name: Literal["outcome", "balance", "composite"] = "outcome"
    """The formula; the fields below belong to the one they name."""
    late: NonNegative = 1.0
    """outcome: penalty of a late start."""
    finish_violation: NonNegative = 2.0
    """outcome: penalty of a finish violation, less the one its own work made unavoidable."""
    slowdown: NonNegative = 0.5
    """outcome: penalty per unit of slowdown, less that of its own work."""
    cost: NonNegative = 0.5
    """outcome: penalty per unit of cost."""
    offload: NonNegative = 1.0
    """outcome: penalty of an offload, charged to the zone that sent it. It stands for the room the
    instance takes from the peer's own: with 0.4 agents learn to export load until all are late.
    Default for an agent with a prior, whose gate holds it back: 0.5."""
    imbalance: NonNegative = 1.0
    """outcome: penalty of the change in the zone's standard deviations x reference duration x
    imbalance_rate; default for an agent with a prior: 0.5, since later decisions undo a part."""
    imbalance_rate: Positive | None = None
    """outcome: instances per second of a zone, which turns a change held for a while into its
    part of the objective; default: measured on the zone's tune episodes."""
    externality: NonNegative = 0.0
    """outcome: penalty per instance-minute of waiting imposed on the queue behind; default for an
    agent with a prior: 0.25."""
    completion: NonNegative = 0.0
    """outcome: penalty per minute of waiting and of a longer run than its own work takes."""
    failed_creation: NonNegative = 2.0
    """outcome: penalty of a pick that did not fit (unmasked placement)."""
    alpha: NonNegative = 0.5
    """composite: weight of utilization."""
    beta: NonNegative = 0.3
    """composite: weight of quality of service."""
    gamma: NonNegative = 0.1
    """composite: weight of cost."""
    delta: NonNegative = 0.1
    """composite: weight of moving work between zones."""
    resource_weights: dict[str, NonNegative] = Field(default={})
    """composite: weight of each resource's utilization. outcome: of each resource's part of the
    imbalance. Only their ratios count; a resource that is not named has 1; default: equal."""
    resource_weighting: Literal["fixed", "adaptive", "adaptive-inverse"] = "fixed"
    """outcome: fixed: resource_weights. adaptive: in proportion to each resource's running standard
    deviation between the zone's machines; adaptive-inverse: to its inverse (policies.md)."""


AGENT_WITH_PRIOR = {"epsilon": 0.08, "final_epsilon": 0.08, "n_step": 4, "discount": 0.5}
"""Defaults of an agent that corrects a prior; docs/policies.md says how they were found."""
REWARD_WITH_PRIOR = {"offload": 0.5, "imbalance": 0.5, "externality": 0.25}
"""Defaults of the outcome reward of such an agent."""


def asks_for_prior(agent: Mapping[str, Any]) -> bool:
    """Return whether the settings of an agent, as given, are those of one with a prior."""
    return (agent.get("algorithm", "qrdqn"), agent.get("prior", "tuned")) == ("qrdqn", "tuned")


class Agent(Model):
    """How a zone learns: QR-DQN on a network that scores candidates, or one of its rivals."""

    algorithm: Literal["qrdqn", "double-dqn", "dueling-dqn", "reinforce", "ppo", "ppo-scorer"] = (
        "qrdqn"
    )
    """What learns. All but ppo-scorer, which weighs resources, share the network's body."""
    prior: Literal["tuned", "none"] = "tuned"
    """qrdqn: tuned: the network corrects a weighted score; none: it starts from nothing."""
    prior_weights: dict[str, float] | None = None
    """qrdqn: weights of that score by name; null: the commands take those that `tune` has written
    beside the configuration, and without them the hand-set ones."""
    prior_scale: NonNegative = 0.5
    """qrdqn: share of the prior's score in a candidate's value."""
    gate_margin: NonNegative = 0.4
    """qrdqn: gain over the prior's choice, in reward, that another candidate must promise."""
    training_gate_margin: NonNegative = 0.5
    """qrdqn: the same while it learns."""
    value_hidden: PositiveInt = 64
    """qrdqn: hidden units of the value of the context, which a network with a prior has apart."""
    hidden: list[PositiveInt] = Field(default=[64, 64], min_length=1)
    """Units of the hidden layers."""
    n_quantiles: PositiveIntOrAuto = 32
    """N: quantiles of the return per candidate. auto: `train` and `federate` find the smallest
    that is enough by short trainings before the run (docs/distribution.md)."""
    quantiles_tolerance: NonNegative = 0.01
    """n_quantiles auto: share of the validation objective that fewer quantiles may cost."""
    pilot_rounds: PositiveInt = 4
    """n_quantiles auto: rounds of a short training, at most those of the run."""
    pilot_seeds: PositiveInt = 2
    """n_quantiles auto: short trainings of every number, with the run's seed and those after it."""
    kappa: NonNegative = 1.0
    """Threshold of the quantile Huber loss; 0 gives the plain quantile loss."""
    cvar_alpha: float = Field(default=1.0, gt=0, le=1)
    """Choose by the mean of the worst share of the return; 1 = the plain mean."""
    target: Literal["sarsa", "double", "max"] = "sarsa"
    """Bootstrap from the action taken next, the online network's best, or the target's best."""
    n_step: PositiveInt = 8
    """Rewards summed before bootstrapping; default with a prior: 4."""
    discount: float = Field(default=0.9, ge=0, lt=1)
    """gamma, per decision; default with a prior: 0.5."""
    batch_size: PositiveInt = 512
    """Transitions an update."""
    learning_rate: Positive = 1e-3
    """Adam's step at the start."""
    final_learning_rate: NonNegative = 1e-5
    """Adam's step at the end; in between it falls along half a cosine over the run's rounds."""
    max_gradient_norm: Positive = 10.0
    """Gradients are scaled down to this norm."""
    polyak: float = Field(default=0.01, gt=0, le=1)
    """Share of the online network that the target takes over per update."""
    ema: float = Field(default=0.002, gt=0, le=1)
    """Share of the online network that the averaged network (the one that is evaluated) takes."""
    epsilon: Share = 0.3
    """Share of random decisions at the start; default with a prior: 0.08."""
    final_epsilon: Share = 0.03
    """Share of random decisions once exploration has settled; default with a prior: 0.08."""
    epsilon_share: float = Field(default=0.3, gt=0, le=1)
    """Share of the run's rounds over which epsilon falls linearly."""
    explore_machines: NonNegativeInt = 6
    """Random decisions fall evenly on this many best machines and the peers; 0: on everything."""
    replay_mib: PositiveInt = 64
    """Largest replay of a zone."""
    warmup_decisions: NonNegativeInt = 2_000
    """Decisions a zone takes before its first update."""
    decisions_per_update: PositiveInt = 64
    """Decisions of a zone (all replicas) between two updates."""
    rollout_decisions: PositiveInt = 4_096
    """reinforce, ppo, ppo-scorer: settled decisions of a zone that are learnt from at once."""
    gae_lambda: Share = 0.95
    """ppo, ppo-scorer: lambda of the generalised advantage estimates."""
    ppo_clip: Positive = 0.2
    """ppo, ppo-scorer: change of a decision's probability, as a share, that still pays."""
    entropy: NonNegative = 0.01
    """reinforce, ppo, ppo-scorer: weight of the policy's entropy at the start; it falls to 0."""
    personal_head: bool = False
    """Keep the last layer out of the average: it stays with its zone."""

    @model_validator(mode="before")
    @classmethod
    def _defaults_with_prior(cls, data: Any) -> Any:
        return AGENT_WITH_PRIOR | data if isinstance(data, dict) and asks_for_prior(data) else data

    @property
    def has_prior(self) -> bool:
        """Whether the network corrects a rule."""
        return self.algorithm == "qrdqn" and self.prior == "tuned"

    @property
    def finds_quantiles(self) -> bool:
        """Whether the number of quantiles is still to be found; other algorithms have none."""
        return self.algorithm == "qrdqn" and self.n_quantiles == "auto"

    @property
    def quantile_count(self) -> int:
        """N, once it is known.

        Raises:
            ConfigError: It is still to be found.
        """
        if self.n_quantiles == "auto":
            raise ConfigError(
                "agent.n_quantiles = auto, expected an integer > 0 here: only `train`, `federate` "
                "and what starts them find it"
            )
        return self.n_quantiles


class Training(Model):
    """How long and on how much the zones learn."""

    replicas: PositiveInt = 16
    """E: episodes a zone plays at once. Part of the result: never derived from cores."""
    rounds: PositiveInt = 8
    """Rounds of training and averaging."""
    episodes_per_round: PositiveInt = 1
    """Whole episodes each replica plays a round."""
    validation_episodes: NonNegativeInt = 40
    """Episodes of the validation split that choose the checkpoint; 0: the last one is kept."""
    validate_every: PositiveInt = 1
    """Rounds between two validations; the last round is always validated."""


CENTRAL = "centralised"
"""The strategy that is none: one learner for all zones."""


class Federation(Model):
    """How the zones' weights become one policy."""

    strategy: Literal[
        "fedavg",
        "fedavgm",
        "fedprox",
        "fedadam",
        "fedmedian",
        "fedtrimmedavg",
        "krum",
        "multikrum",
        "bulyan",
        "none",
        "centralised",
    ] = "fedavg"
    """fedavg: weights averaged by decision count. none: zones learn alone. centralised: one learner
    on all zones' decisions, `train` only. Others: policies.md."""
    server_learning_rate: Positive | None = None
    """fedavgm, fedadam: step of the coordinator; null: 1.0 for fedavgm, 0.01 for fedadam."""
    server_momentum: float = Field(default=0.9, ge=0, lt=1)
    """fedavgm, fedadam: share of its last step that the coordinator keeps."""
    proximal_mu: Positive = 0.01
    """fedprox: pull of every update of a zone towards the weights that its round began with."""
    trim_share: float = Field(default=0.34, gt=0, lt=0.5)
    """fedtrimmedavg: share of the zones cut off at either end, value by value."""
    hostile_zones: NonNegativeInt = 1
    """krum, multikrum, bulyan: f, the zones whose updates may be anything."""
    quorum: PositiveInt = 1
    """Fewest zones a round may end with."""
    deadline_s: Positive = 3600.0
    """Longest a round may take."""
    grace_s: Positive = 300.0
    """Longest wait for the others once the quorum has answered, and in a step of the exchange
    between zones once the first is through with it; there at most 600 s."""
    wait_s: Positive = 120.0
    """`federate`: longest wait for zones that are not there, at the start all, later a quorum."""
    norm_bound: Positive = 100.0
    """Largest allowed norm of a zone's change over the norm of the global weights."""


class Evaluation(Model):
    """How policies are compared."""

    episodes: PositiveInt = 100
    """Held-out episodes of the test split."""
    replicas: PositiveInt = 20
    """Episodes simulated at once; has no influence on rules, a tiny one on networks."""
    policies: list[str] = Field(
        default=["kube-default", "tuned", "learned"],
        min_length=1,
    )
    """Policies that `evaluate` compares when none are named."""
    bootstrap_samples: PositiveInt = 2_000
    """Resamples behind every confidence interval."""


class Tuning(Model):
    """How hard the rival rule is tuned."""

    episodes: PositiveInt = 40
    """Episodes of the tune split every candidate is scored on."""
    evaluations: PositiveInt = 250
    """Candidates scored: random search, then local steps around the best."""
    random_share: Share = 0.4
    """Share of the evaluations that are random search."""
