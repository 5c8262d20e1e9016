# SPDX-License-Identifier: BSL-1.0
"""Pictures out of a folder, side by side: penstock, Pillow, torchvision, DALI, OpenCV, SPDL.

    python3 images.py --ours PROGRAM --python PYTHON [--kind photos|large|small] [--rounds N]
                      [--folder FOLDER] [--json FILE] [--only ROW]...

PROGRAM is penstock_images_peer; PYTHON an interpreter that has the peers' packages: pillow, numpy, torch,
torchvision, nvidia-dali-cuda130, opencv-python-headless, spdl (which needs FFmpeg's libraries). A peer that
can't be imported is left out by name. README.md says what the rows are and what is measured.
"""

import argparse
import json
import math
import os
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path

import rounds

HERE = Path(__file__).resolve().parent
PEERS = ("pillow", "pytorch", "dali", "opencv", "spdl")
PER_CPU = "items_per_cpu_second"
STEP = 64  # pictures.py's: the consumer reads one value of so many
# What is beside ours, and how many times as many pictures a second of processor time are wanted.
GOALS = {
    "photos": {
        "Pillow/threads:1": 3.5,
        "DataLoader_Pillow/workers:1": 3.5,
        "DataLoader_tensor/workers:1": None,
        "DALI_cpu/threads:1": 2.2,
        "DALI_cpu_aliased/threads:1": None,
        "OpenCV_area/threads:1": 1.8,
        "SPDL/threads:1": 1.5,
    }
}
GOALS["large"] = GOALS["small"] = dict.fromkeys(GOALS["photos"])


def check(rows, side):
    """All must have read the same labels, and pixels of the same mean: crops differ, means hardly do."""
    loads = [row for row in rows if not row.name.startswith("resize")]
    reference = next((row.runs[0]["checked"] for row in loads if row.runs), None)
    for row in loads:
        for run in row.runs:
            found = run["checked"]
            looked_at = found["samples"] * math.ceil(side * side * 3 / STEP)
            far = abs(found["values"] - reference["values"]) / looked_at
            # Of few crops the mean differs more: 24 levels at 4 pictures, 6 at 512.
            most = 4 + 40 / math.sqrt(found["samples"])
            if any(found[key] != reference[key] for key in ("samples", "labels")) or far > most:
                row.failed = f"failed: read {found}, others {reference}"


def judge(rows, kind):
    judged = rounds.Judge(rows)
    named = {row.name: row for row in rows if row.runs and not row.failed}
    ours = named.get("penstock/workers:1")
    for name, bound in GOALS[kind].items():
        judged.add(ours, named.get(name), "speed", bound, PER_CPU, "a second of processor time")
    two = named.get("penstock/workers:2")
    judged.add(two, ours, "speed", 1.9, label="a second")
    for name in ("DataLoader_Pillow", "DataLoader_tensor", "DALI_cpu", "OpenCV_area", "SPDL"):
        own = "workers" if "DataLoader" in name else "threads"
        bound = 3 if name == "DataLoader_Pillow" and kind == "photos" else None
        judged.add(two, named.get(f"{name}/{own}:2"), "speed", bound, label="a second, two each")
    for name, bound in (("resize_Pillow", 3.5), ("resize_OpenCV_area", None)):
        judged.add(named.get("resize_penstock"), named.get(name), "speed", bound, PER_CPU)
    return judged.goals


def cells(found, width):
    values = [found[part] for part in ("median", "min", "max")]
    texts = [f"{value:,.1f}" if value < 1000 else f"{value:,.0f}" for value in values]
    return f"{texts[0]:>{width}}{texts[1]:>9}{texts[2]:>9}"


def show(rows, goals):
    print(f"\n{'':32}{'a CPU second':>14}{'min':>9}{'max':>9}{'a second':>11}{'min':>9}{'max':>9}")
    ranked = [row for row in rows if row.runs and not row.failed]
    for row in sorted(ranked, key=lambda row: -row.median(PER_CPU)):
        found = [rounds.spread([run[key] for run in row.runs]) for key in (PER_CPU, "items_per_second")]
        print(f"{row.name:32}{cells(found[0], 14)}{cells(found[1], 11)}")
    print(f"\n{'ours':24}{'beside':32}{'ratio':>7}  aim")
    for goal in goals:
        aim = f">= {goal['at_least']:g}" if "at_least" in goal else "-"
        verdict = {True: "met", False: "MISSED", None: ""}[goal.get("met")]
        noisy = "noisy: the other side moved by more than 20 %" if goal["noisy"] else ""
        print(
            f"{goal['name']:24}{goal['floor']:32}{goal['ratio']:7.2f}  {aim:8}{verdict:8}"
            f"{goal.get('label', '')} {noisy}".rstrip()
        )


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--ours", required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--kind", choices=GOALS, default="photos")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder")
    parser.add_argument("--json")
    parser.add_argument("--only", action="append", default=[])
    chosen = parser.parse_args()
    folder = chosen.folder or str(HERE.parent.parent / "build" / "compare" / chosen.kind)
    maker = [chosen.python, str(HERE / "picture_folders.py"), chosen.kind, folder]
    data = subprocess.run(maker, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    side = int(Path(folder, "task").read_text().split()[0])

    where = rounds.machine()
    sides = {"penstock": [os.path.abspath(chosen.ours)]}
    sides.update((name, [chosen.python, str(HERE / f"{name}_images_peer.py")]) for name in PEERS)
    plan, absent = rounds.plan_of(sides)
    plan = [
        one
        for one in plan
        if (one[2] in chosen.only if chosen.only else chosen.kind == "photos" or "resize" not in one[2])
    ]
    by_name, versions = OrderedDict(), {}
    for number in range(1, chosen.rounds + 1):
        rounds.measure(plan, f"round {number} of {chosen.rounds}", folder, by_name, versions)
    rows = list(by_name.values())
    for row in rows:
        for run in row.runs:
            samples = run["items_per_second"] * run["nanoseconds"] / 1e9
            run[PER_CPU] = samples / run["cpu_seconds"]
    check(rows, side)
    goals = judge(rows, chosen.kind)

    print(
        f"{data}; {where['cpu']}, {where['cores']} cores, load before {where['load_before']:.2f}; "
        f"medians of {chosen.rounds} rounds\n"
        + ", ".join(f"{name} {version}" for name, version in versions.items())
    )
    show(rows, goals)
    failed = [(row.name, row.failed) for row in rows if row.failed]
    for name, why in (*absent, *failed):
        print(f"left out: {name}: {why}")
    if chosen.json:
        result = {
            "program": "compare_images",
            "machine": where,
            "data": data,
            "versions": versions,
            "rounds": chosen.rounds,
            "rows": [
                {**row.result(), PER_CPU: rounds.spread([run[PER_CPU] for run in row.runs])}
                if row.runs
                else row.result()
                for row in rows
            ],
            "left_out": absent,
            "goals": goals,
        }
        Path(chosen.json).write_text(json.dumps(result, indent=1) + "\n")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
