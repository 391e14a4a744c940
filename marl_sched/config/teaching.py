"""What a learner's prior is corrected with before it learns: counterfactual distillation."""

from pydantic import Field

from marl_sched.config.base import Model, NonNegative, NonNegativeInt, Positive, PositiveInt


class Teacher(Model):
    """Decisions of the prior are compared with others on the same future; a network learns it."""

    samples: NonNegativeInt = 0
    """Decisions that are played out with all their branches, in each iteration; 0: no teacher."""
    iterations: PositiveInt = 1
    """Data sets, each played by what was learned from those before."""
    groups: PositiveInt = 8
    """Episodes that are played side by side, each with a replica for every branch."""
    branches: PositiveInt = 6
    """Other candidates that are tried at a decision: the best machines, a random one, the peers."""
    horizon_s: Positive = 15.0
    """How long they are played on; what remains is predicted."""
    value_horizon_s: Positive = 90.0
    """How much of the future after that is predicted."""
    value_episodes: PositiveInt = 40
    """Episodes that the prediction is learned from, in each iteration."""
    value_hidden: list[PositiveInt] = Field(default=[48, 48], min_length=1)
    """Units of the predicting network's layers."""
    gain_clip: Positive = 8.0
    """Gains are cut off here."""
    gain_margin: NonNegative = 0.2
    """Gain over the prior's choice, in the objective's units x instances, to deviate for."""
    held_out: float = Field(default=0.15, gt=0, lt=1)
    """Share of the episodes that say when to stop fitting."""
    epochs: PositiveInt = 30
    """Most passes over the data."""
    batch_size: PositiveInt = 1024
    """Decisions a step of fitting."""
    learning_rate: Positive = 2e-3
    """Adam's step at the start; it falls to 0 along half a cosine."""
    weight_decay: NonNegative = 0.1
    """AdamW's."""
