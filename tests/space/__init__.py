"""Tests of the Space, which import its modules by their own names, as on a Space."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "space_app"))
