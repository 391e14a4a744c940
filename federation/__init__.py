"""Rounds of federated learning: the only package that imports Flower."""

import os

# Nothing calls home. Flower reads these when it is imported, so they are set before.
os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["FLWR_DISABLE_UPDATE_CHECK"] = "1"
