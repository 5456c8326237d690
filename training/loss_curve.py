"""The record of a training run: its loss in a CSV file, and a drawing of it."""

from __future__ import annotations

import csv
import math
from pathlib import Path

WIDTH, HEIGHT, MARGIN = 640, 320, 48
AVERAGE_OVER = 25  # steps in each row of the file


class LossCurve:
    """Losses of a run, averaged over steps; goes on from the file where there is one."""

    def __init__(self, file: Path, step: int) -> None:
        self.file = file
        self.step = step
        self.mean = math.nan  # a running one, to show while training
        self.rows: list[tuple[int, float]] = []
        self._recent: list[float] = []
        if file.exists():
            with file.open(newline="") as lines:
                rows = [(int(row["step"]), float(row["loss"])) for row in csv.DictReader(lines)]
            self.rows = [row for row in rows if row[0] <= step]

    def add(self, loss: float) -> None:
        """Take in the loss of the next step."""
        self.step += 1
        self.mean = loss if math.isnan(self.mean) else 0.95 * self.mean + 0.05 * loss
        self._recent.append(loss)
        if self.step % AVERAGE_OVER == 0:
            self.rows.append((self.step, sum(self._recent) / len(self._recent)))
            self._recent.clear()

    def save(self) -> None:
        """Write the file."""
        with self.file.open("w", newline="") as lines:
            writer = csv.writer(lines)
            writer.writerow(("step", "loss"))
            writer.writerows((step, f"{loss:.5f}") for step, loss in self.rows)

    def draw(self, file: Path) -> None:
        """Draw the loss on a logarithmic scale as SVG."""
        if len(self.rows) < 2:
            return
        last = self.rows[-1][0]
        logs = [math.log10(loss) for _, loss in self.rows]
        low, high = math.floor(min(logs) * 4) / 4, math.ceil(max(logs) * 4) / 4

        def place(step: float, log: float) -> str:
            x = MARGIN + (WIDTH - 2 * MARGIN) * step / last
            y = MARGIN + (HEIGHT - 2 * MARGIN) * (high - log) / (high - low)
            return f"{x:.1f},{y:.1f}"

        line = " ".join(place(row[0], log) for row, log in zip(self.rows, logs, strict=True))
        marks = []
        for quarter in range(int((high - low) * 4) + 1):
            log = low + quarter / 4
            x, y = place(0, log).split(",")
            marks.append(f'<text x="{x}" y="{y}" text-anchor="end" dx="-6">{10**log:.3g}</text>')
        for part in range(5):
            step = last * part // 4
            x, y = place(step, low).split(",")
            marks.append(f'<text x="{x}" y="{y}" text-anchor="middle" dy="18">{step}</text>')
        file.write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            'font-family="sans-serif" font-size="12">\n'
            '<rect width="100%" height="100%" fill="white"/>\n'
            f'<text x="{WIDTH / 2}" y="24" text-anchor="middle">loss by step</text>\n'
            + "\n".join(marks)
            + f'\n<polyline points="{line}" fill="none" stroke="#2563eb"/>\n</svg>\n'
        )
