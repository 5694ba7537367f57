"""The order's verifier: runs in a fresh folder that holds the inputs and the outputs, and believes nobody.

The tests are those that were pinned with the plan. All that the agent could hand in is one file, which takes its place
beside them here and nowhere else.
"""

from __future__ import annotations

import shutil
import subprocess
import sys

shutil.copyfile("out/statistics_tool.py", "statistics_tool.py")
sys.exit(subprocess.run([sys.executable, "-m", "unittest", "-q", "test_statistics_tool"], check=False).returncode)
