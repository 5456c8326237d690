"""What `streamwell serve` imports before its page answers."""

from __future__ import annotations

import json
import subprocess
import sys

#: Each takes the better part of a second, or is a way to one that does.
LATER = ["torch", "transformers", "fastapi", "pydantic", "sqlalchemy", "alembic", "jinja2", "rich"]
CODE = f"""
import json, sys
import streamwell.cli
import streamwell.cli.serving
print(json.dumps([name for name in {LATER} if name in sys.modules]))
"""


def test_the_page_waits_for_no_long_import() -> None:
    """The application's imports come after the port answers."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, check=True, timeout=60)

    assert [] == json.loads(done.stdout)
