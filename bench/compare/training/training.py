# SPDX-License-Identifier: BSL-1.0
"""Compares images per second of a whole training loop: penstock and torchvision's recipe in
PyTorch's DataLoader, with the same number of workers and the same step.

    python3 training.py --ours PROGRAM [--network PROGRAM] --python PYTHON [--rounds N] [--folder FOLDER]
                        [--only STEP]... [--json FILE]

PROGRAM is penstock_training_peer and, for --network, penstock_torch_training_peer. PYTHON is an
interpreter with torch, torchvision and pillow. README.md describes the steps and the rows.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import rounds  # noqa: E402

LINKS, EPOCHS = 4, 1
AIM = 3  # goal for the ratio to DataLoader's images per second
# Seconds for 64 images. `h100_storage`: MLPerf Storage's ResNet-50, 0.224 s for 400 images.
# `h100_training`: MLPerf Training 3.0-2053, 13.466 minutes on eight GPUs; assuming 35 epochs of
# 1,281,167 images, that is 6,940 per second.
STEPS = {"h100_storage": 0.03584, "h100_training": 0.00923, "network": None}
WORKERS = 2
ROW_SECONDS = 300
# A run counts as disturbed if other programs use more than this fraction of a core.
ELSEWHERE = 0.1


def linked(photos, folder):
    """Fills a folder with LINKS links to each image of `photos`, which makes an epoch longer by
    this factor. Returns the number of links."""
    for path in Path(photos, "train").glob("*/*"):
        for number in range(LINKS):
            link = Path(folder, "train", path.parent.name, f"{path.stem}_{number}{path.suffix}")
            if not link.exists():
                link.parent.mkdir(parents=True, exist_ok=True)
                os.link(path, link)
    return sum(1 for _ in Path(folder, "train").glob("*/*"))


def plan_of(chosen, folder):
    """Returns {step: {row: command}}."""
    plan = {}
    for step, seconds in STEPS.items():
        if (chosen.only and step not in chosen.only) or (seconds is None and not chosen.network):
            continue
        rows = plan.setdefault(step, {})
        task = [folder, str(WORKERS), str(EPOCHS)]
        if seconds is None:
            rows["penstock"] = [os.path.abspath(chosen.network), *task]
        else:
            rows["penstock"] = [os.path.abspath(chosen.ours), *task, str(seconds)]
        command = [chosen.python, str(HERE / "dataloader_training_peer.py"), *task]
        rows["DataLoader"] = [*command, str(seconds or "network")]
    return plan


def busy_seconds():
    """Returns the busy time of all cores since the start of the machine, without idle time and
    waits for a disk."""
    fields = [int(field) for field in rounds.first_line("/proc/stat").split()[1:]]
    return (sum(fields[:8]) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def own_seconds():
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def measured(command):
    before, own, start = busy_seconds(), own_seconds(), time.perf_counter()
    run = json.loads(rounds.output_of(command, ROW_SECONDS).splitlines()[-1])
    seconds = time.perf_counter() - start
    run["elsewhere"] = max(0.0, busy_seconds() - before - (own_seconds() - own)) / seconds
    run["images_per_second"] = run["images"] / run["seconds"]
    run["images_per_cpu_second"] = run["images"] / run["cpu_seconds"]
    run["utilisation"] = run["busy"] / run["seconds"]
    return run


def check(name, run, reference):
    """Checks that a run has the same labels as the reference. The means of normalized crops may
    differ slightly."""
    far = abs(run["mean"] - reference["mean"])
    if run["labels"] != reference["labels"] or far > 0.05:
        sys.exit(f"{name}: read {run}, another side {reference}")


def shown(step, rows):
    print(f"\n{step}: {'the network' if STEPS[step] is None else f'{STEPS[step] * 1e3:.2f} ms a batch'}")
    print(
        f"{'':24}{'a second':>10}{'min':>9}{'max':>9}{'a CPU second':>14}{'min':>9}{'max':>9}"
        f"{'step':>8}{'elsewhere':>11}"
    )
    for name, runs in rows.items():
        cells = ""
        for key, width in (("images_per_second", 10), ("images_per_cpu_second", 14)):
            found = rounds.spread([run[key] for run in runs])
            cells += f"{found['median']:{width},.0f}{found['min']:9,.0f}{found['max']:9,.0f}"
        share = median(runs, "utilisation")
        elsewhere = max(run["elsewhere"] for run in runs)
        print(f"{name:24}{cells}{share:8.1%}{elsewhere:11.2f}")


def median(runs, key):
    return rounds.spread([run[key] for run in runs])["median"]


def judged(step, rows):
    """Returns the ratios of penstock to DataLoader, by medians."""
    goals = []
    for key in ("images_per_second", "images_per_cpu_second"):
        ratio = median(rows["penstock"], key) / median(rows["DataLoader"], key)
        goal = {"step": step, "name": "penstock", "floor": "DataLoader", "measure": key, "ratio": ratio}
        if key == "images_per_second":
            goal.update(at_least=AIM, met=ratio >= AIM)
        goals.append(goal)
    return goals


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--ours", required=True)
    parser.add_argument("--network")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tries", type=int, default=1, help="of a run that other programs disturb")
    parser.add_argument("--folder", default=str(HERE.parent.parent.parent / "build" / "compare"))
    parser.add_argument("--only", action="append", default=[], choices=STEPS)
    parser.add_argument("--json")
    chosen = parser.parse_args()
    photos, folder = str(Path(chosen.folder, "photos")), str(Path(chosen.folder, "training"))
    maker = [chosen.python, str(HERE.parent / "image_folders.py"), "photos", photos]
    data = subprocess.run(maker, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    images = linked(photos, folder)

    where = rounds.machine()
    plan = plan_of(chosen, folder)
    found = {step: {name: [] for name in rows} for step, rows in plan.items()}
    repeated, versions, reference = 0, {}, None
    for number in range(1, chosen.rounds + 1):
        for step, rows in plan.items():
            for name, command in rows.items():
                title = f"round {number} of {chosen.rounds}: {step} {name}"
                print(f"\r{title:72}", end="", file=sys.stderr, flush=True)
                tries = [measured(command)]
                while tries[-1]["elsewhere"] > ELSEWHERE and len(tries) < chosen.tries:
                    tries.append(measured(command))
                    repeated += 1
                run = min(tries, key=lambda one: one["elsewhere"])
                reference = reference or run
                check(name, run, reference)
                versions[run["version"]] = True
                found[step][name].append(run)
    print("\r" + " " * 72 + "\r", end="", file=sys.stderr)

    print(
        f"{data}, each under {LINKS} names: {images} in an epoch; {where['cpu']}, {where['cores']} cores, load "
        f"before {where['load_before']:.2f}; medians of {chosen.rounds} rounds\n"
        f"{'; '.join(versions)}; {repeated} runs repeated"
    )
    goals = []
    for step, rows in found.items():
        shown(step, rows)
        goals += judged(step, rows)
    print(f"\n{'step':16}{'penstock over DataLoader':24}{'ratio':>6}  aim")
    for goal in goals:
        aim = f">= {AIM} {'met' if goal['met'] else 'MISSED'}" if "met" in goal else "-"
        print(
            f"{goal['step']:16}{goal['measure']:24}{goal['ratio']:6.2f}  {aim}"
        )
    if chosen.json:
        result = {
            "program": "compare_training",
            "machine": where,
            "data": data,
            "versions": list(versions),
            "rounds": chosen.rounds,
            "steps": {step: {"seconds": STEPS[step], "rows": rows} for step, rows in found.items()},
            "goals": goals,
        }
        Path(chosen.json).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
