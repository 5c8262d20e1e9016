# SPDX-License-Identifier: BSL-1.0
"""Compares the time to the first batch of a folder of many images: penstock and PyTorch's
DataLoader.

    python3 start.py --ours PROGRAM --python PYTHON [--files N] [--rounds N] [--folder FOLDER] [--json FILE]

PROGRAM is penstock_start_peer. PYTHON is an interpreter with pillow, torch and torchvision. Each
start is a separate process, with all rows in turn. The folder is in the system's cache, as after a
first listing. The clock starts after libraries are loaded and before the folder is opened.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import rounds

HERE = Path(__file__).resolve().parent
CLASSES = 1000
MAKE = """
import io, os, sys
from PIL import Image
folder, count, classes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
encoded = io.BytesIO()
Image.radial_gradient("L").resize((16, 16)).convert("RGB").save(encoded, "JPEG")
for number in range(count):
    path = f"{folder}/train/class{number % classes:04}"
    if number < classes:
        os.makedirs(path, exist_ok=True)
    with open(f"{path}/{number:08}.jpg", "wb") as file:
        file.write(encoded.getvalue())
"""
# (penstock's row, peer's row, quantity, required speedup)
GOALS = (
    ("penstock", "DataLoader/workers:2", "listed_ms", 4),
    ("penstock", "DataLoader/workers:2", "first_batch_ms", None),
)


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--ours", required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder")
    parser.add_argument("--json")
    chosen = parser.parse_args()
    folder = Path(chosen.folder or HERE.parent.parent / "build" / "compare" / "start").resolve()
    complete = folder / f"complete-{chosen.files}"
    if not complete.exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([chosen.python, "-c", MAKE, folder, str(chosen.files), str(CLASSES)], check=True)
        complete.touch()
    photos = str(folder / "train")
    peer = [chosen.python, str(HERE / "pytorch_start_peer.py"), photos]
    ours = os.path.abspath(chosen.ours)
    plan = {
        "penstock": [ours, photos],
        "DataLoader/workers:0": [*peer, "0"],
        "DataLoader/workers:2": [*peer, "2"],
    }
    where = rounds.machine()
    # Lists the folder, so that it is in the page cache.
    rounds.output_of(plan["penstock"], rounds.ROW_SECONDS)
    found = {name: [] for name in plan}
    for _ in range(chosen.rounds):
        for name, command in plan.items():
            run = json.loads(rounds.output_of(command, rounds.ROW_SECONDS))
            expected = {"files": chosen.files, "samples": 64}
            if any(run[key] != value for key, value in expected.items()):
                sys.exit(f"{name}: found {run}, expected {expected}")
            found[name].append(run)

    keys = ("listed_ms", "first_batch_ms")
    spreads = {
        name: {key: rounds.spread([run[key] for run in runs]) for key in keys}
        for name, runs in found.items()
    }
    print(
        f"{chosen.files} files in {CLASSES} folders; {where['cpu']}, {where['cores']} cores, load before "
        f"{where['load_before']:.2f}; medians of {chosen.rounds} rounds\n\n"
        f"{'':24}{'listed, ms':>12}{'min':>9}{'max':>9}{'first batch, ms':>18}{'min':>9}{'max':>9}"
    )
    for name, spread in spreads.items():
        cells = [[f"{spread[key][part]:,.1f}" for part in ("median", "min", "max")] for key in keys]
        (a, b, c), (d, e, f) = cells
        print(f"{name:24}{a:>12}{b:>9}{c:>9}{d:>18}{e:>9}{f:>9}")
    print()
    goals = []
    for name, beside, key, bound in GOALS:
        ratio = spreads[beside][key]["median"] / spreads[name][key]["median"]
        met = None if bound is None else ratio >= bound
        goals.append({"name": name, "floor": beside, "measure": key, "ratio": ratio, "met": met})
        aim = "-" if bound is None else f">= {bound}"
        verdict = {True: "met", False: "MISSED", None: ""}[met]
        print(f"{name:16}{beside:24}{key:16}{ratio:8.1f}  {aim:8}{verdict}".rstrip())
    if chosen.json:
        result = {
            "program": "compare_start",
            "machine": where,
            "data": f"{chosen.files} files of 16 x 16 in {CLASSES} folders",
            "rounds": chosen.rounds,
            "rows": [{"name": name, **spread} for name, spread in spreads.items()],
            "goals": goals,
        }
        Path(chosen.json).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
