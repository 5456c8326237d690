"""Fifty users, five more each second, thirty seconds: `make stress`.

Starts a server of a decoder and an encoder-decoder, lets locust loose on both at the same time, by
chat and by the routes for a prompt, prints a table, and draws docs/stress.svg. Ends with 1 if a
single request failed.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.report import machine, print_machine
from bench.stress.graph import draw, panels
from training.server_process import Target, running

ROOT = Path(__file__).parents[2]
USERS = Path(__file__).with_name("users.py")
COLUMNS = ("Request Count", "Failure Count", "Requests/s", "50%", "95%", "99%", "Max Response Time")


def locust(program: Path, url: str, out: Path, options: argparse.Namespace) -> int:
    """Run the users; returns locust's exit status, which is 1 if a request failed."""
    command = [str(program), "-f", str(USERS), "--headless", "--host", url, "--only-summary"]
    command += ["-u", str(options.users), "-r", str(options.rate), "-t", f"{options.seconds}s"]
    command += ["--csv", str(out / "stress"), "--csv-full-history", "--exit-code-on-error", "1"]
    command += ["--stop-timeout", "120"]  # those under way may end
    return subprocess.run(command, check=False).returncode


def print_table(stats: Path) -> None:
    with stats.open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    print("| |", " | ".join(COLUMNS), "|")
    print("|---" * (1 + len(COLUMNS)), "|", sep="")
    for row in rows[:-1]:  # the last one adds up what is not the same
        values = (f"{float(row[column]):.4g}" for column in COLUMNS)
        print("|", row["Name"], "|", " | ".join(values), "|")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.stress", description=__doc__)
    parser.add_argument("--locust", type=Path, default=ROOT / ".venv-stress" / "bin" / "locust")
    parser.add_argument("--users", type=int, default=50)
    parser.add_argument("--rate", type=float, default=5, help="users that come per second")
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--graph", type=Path, default=ROOT / "docs" / "stress.svg")
    options = parser.parse_args()
    print_machine(machine())
    with tempfile.TemporaryDirectory() as name:
        out = Path(name)
        serve = (sys.executable, "-m", "streamwell", "serve", "brooklet", "brooklet-t5")
        target = Target("streamwell", (*serve, "--data-dir", str(out / "data")))
        with running(target, out / "server.log") as url:
            status = locust(options.locust, url, out, options)
        print_table(out / "stress_stats.csv")
        options.graph.write_text(draw(panels(out / "stress_stats_history.csv")), "utf-8")
    return status


if __name__ == "__main__":
    raise SystemExit(main())
