"""Keep Flower from calling home. It reads these once, when it is imported: import this first."""

import os

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["FLWR_DISABLE_UPDATE_CHECK"] = "1"
