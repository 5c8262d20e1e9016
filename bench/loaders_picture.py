#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Draws the README's picture, six loaders as bars, from a result of bench/run.sh --compare.

  python3 bench/loaders_picture.py bench/results/FILE.json docs/images/loaders.svg

Of each loader the fastest of its measured settings is drawn: workers, threads, concurrency.
"""

import json
import sys
from pathlib import Path

from reporting.drawing import Drawing
from reporting.results import median_of

# The function that a row's name begins with, and what the picture calls it.
BARS = (
    ("plain_loop", "plain C++ loop, no loader"),
    ("penstock", "penstock"),
    ("libtorch_batched", "libtorch, batched"),
    ("DataLoader_batched", "PyTorch DataLoader, batched"),
    ("DALI_cpu", "NVIDIA DALI, CPU pipeline"),
    ("DataLoader", "PyTorch DataLoader, per sample"),
)


def fastest(rows, function):
    """The samples a second of the fastest setting."""
    speeds = [
        median_of(row, "items_per_second") for row in rows if row["name"].split("/")[0] == function
    ]
    if not any(speeds):
        raise ValueError(f"no row {function} was measured: is it a result of --compare?")
    return max(speed for speed in speeds if speed)


def in_millions(speed):
    """Three digits, two below a million: 13.7 M, 3.8 M, 0.81 M."""
    millions = speed / 1e6
    return f"{millions:.1f} M" if millions >= 1 else f"{millions:.2f} M"


def drawing(report):
    rows = report["programs"]["compare"]["rows"]
    cores = report["machine"]["cores"]
    out = Drawing(
        "Samples per second",
        f"MNIST to normalised float32 in shuffled batches of 64; {cores} CPU cores, no GPU. "
        "Each loader with its fastest number of workers. Longer is better.",
    )
    speeds = [(name, fastest(rows, function), function) for function, name in BARS]
    most = max(speed for _, speed, _ in speeds)
    left, right, y = 270, 790, out.top + 8
    for name, speed, function in speeds:
        ours = function == "penstock"
        strong = " strong" if ours else ""
        out.text(left - 14, y + 19, name, f"ink{strong}", "end")
        length = max((right - left) * speed / most, 2.0)
        out.rect(left, y + 3, length, 22, "s0" if ours else "s7", 3)
        out.text(left + length + 8, y + 19, in_millions(speed), f"ink{strong}")
        y += 32
    out.footer(
        f"{report['machine']['cpu']}, {report['date'][:10]}, commit {report['commit']}: "
        "bench/run.sh --compare"
    )
    return out


def main(arguments):
    if len(arguments) != 2:
        print(__doc__.strip())
        return 2
    report = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    Path(arguments[1]).write_text(drawing(report).svg(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
