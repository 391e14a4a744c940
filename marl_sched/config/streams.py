"""Random streams: one seed, one independent stream per split, episode, zone and purpose."""

from zlib import crc32

import numpy as np

SPLITS = ("tune", "train", "validation", "test")
"""Splits of the episodes; their numbers are part of every result."""


def stream(
    seed: int, split: str, episode: int, zone: str, purpose: str = "workload"
) -> np.random.Generator:
    """Return the generator of one purpose in one zone of one episode.

    Zones are keyed by name, so that adding a zone changes no other zone's stream.
    """
    key = (SPLITS.index(split), episode, crc32(zone.encode()), crc32(purpose.encode()))
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def named_stream(seed: int, *names: str) -> np.random.Generator:
    """Return a generator that belongs to no episode: weights, exploration, a zone's machines."""
    key = tuple(crc32(name.encode()) for name in names)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
