import hashlib
from pathlib import Path

FROZEN = "282a3287a9018a1d3af47d9f22f213ebf6db0d98100b277de03548eb69b2c61f"


def test_base_regime_is_the_one_the_recorded_results_were_measured_in() -> None:
    # docs/results.md holds ratios to baselines of this very file: another regime is another file.
    text = Path(__file__).parents[2].joinpath("configs/base.yaml").read_bytes()
    assert hashlib.sha256(text).hexdigest() == FROZEN
