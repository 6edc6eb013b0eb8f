"""What every test of the repository stands on."""

from __future__ import annotations

import os

# Before anything reads the settings, and for the processes that tests start: plans of tests, some
# of them made up, stay out of the user's store, and none of an earlier run is found. Tests of the
# store make one of their own.
os.environ["SDPA_PLAN_STORE"] = "off"
