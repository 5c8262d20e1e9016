# SPDX-License-Identifier: BSL-1.0
"""Measures whether storage keeps an accelerator busy, for rows of MLPerf Storage v3.0 with a
simulated accelerator.

    python3 storage.py --ours PROGRAM --python PYTHON [--rounds N] [--workers N] [--folder FOLDER]
        [--only ROW]... [--cold]

Compares penstock with DLIO, which decodes nothing, and with PyTorch's DataLoader (numpy, Pillow,
pyarrow) on the same samples. PROGRAM is penstock_storage_peer. PYTHON is an interpreter with numpy,
Pillow and pyarrow, and with torch and mlcommons' DLIO, which are skipped if they are missing.

The utilization is the planned time of all steps divided by the time of the loop, without the first
epoch. DLIO runs a single epoch of the same total length, without the first step. All sides have N
workers (default 2). Files come from the page cache as far as there is memory. With --cold, each run
is a single epoch whose files are first dropped from the page cache; penstock bypasses the page
cache for whole files and columns.

"no step" is penstock without an accelerator. Its processor time gives the fraction of an
accelerator that one core can feed, and the number of cores that one accelerator needs. unet3d also
has floors: the same number of threads that only read the files, from the disk also without the page
cache, and a row of penstock without a step.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import rounds  # noqa: E402
from workloads import WORKLOADS, drop, paths  # noqa: E402

AIM = 0.99
FLOOR_AIM = 0.95
# The kinds that penstock reads from the disk without the page cache.
PAST_THE_CACHE = ("files", "columns")
FLOORS = {"read loop": "loop", "direct loop": "direct_loop"}  # the floors and their kinds
WITHOUT_STEP = {"no step": None, **FLOORS}


def command(side, chosen, name):
    row = WORKLOADS[name]
    epochs = [0, 1] if chosen.cold else [1, row.epochs]
    if side == "penstock" or side in WITHOUT_STEP:
        kind = WITHOUT_STEP.get(side) or ("direct_" if chosen.cold and row.kind in PAST_THE_CACHE else "") + row.kind
        files = paths(chosen.folder, name, chosen.cold)
        numbers = [row.batch, 0 if side in WITHOUT_STEP else row.step, *epochs, chosen.workers]
        return [os.path.abspath(chosen.ours), kind, *map(str, [*numbers, *files])]
    program = "dataloader_peer.py" if side == "DataLoader" else "dlio_peer.py"
    return [chosen.python, str(HERE / program), chosen.folder, name, *map(str, [chosen.workers, *epochs])]


def sides_of(name, is_cold):
    row = WORKLOADS[name]
    ours = ["penstock"] if is_cold else ["penstock", "no step"]
    if name == "unet3d":
        ours += list(FLOORS) if is_cold else ["read loop"]
    return ours + ["DataLoader"] + ([] if row.kind == "images" else ["DLIO"])


def measured(side, chosen, name):
    """Returns the result of a side, or None if the side is not installed."""
    if chosen.cold:
        files = paths(chosen.folder, name, is_cold=True)
        for path in files:
            path.read_bytes()  # reading gives each side the same free memory in a virtual machine
        drop(files)
    done = subprocess.run(command(side, chosen, name), stdout=subprocess.PIPE, text=True)
    if done.returncode == 77:
        return None
    done.check_returncode()
    run = json.loads(done.stdout.splitlines()[-1])
    run.setdefault("samples_per_second", run["samples"] / run.get("seconds", 1))
    return run


def seen_of(chosen, name, without):
    """Returns the results of each side in each round. Adds sides that are not installed to
    `without` and omits them."""
    seen = {side: [] for side in sides_of(name, chosen.cold) if side not in without}
    for _ in range(chosen.rounds):
        for side in list(seen):
            run = measured(side, chosen, name)
            if run is None:
                without.add(side)
                del seen[side]
            else:
                seen[side].append(run)
    return seen


def carried(row, run):
    """Returns the fraction of an accelerator that one core can feed, from the processor time per
    batch."""
    return row.step / (run["cpu_seconds"] / run["samples"] * row.batch)


def lines(name, seen, workers=2):
    """Yields the output lines of a row for this number of workers."""
    row = WORKLOADS[name]
    yield f"{name}, asks for {row.samples_per_second:,.1f} samples a second, {row.demand:,.0f} MB/s, {row.passes:.0%}"
    for side, runs in seen.items():
        speeds = [run["samples_per_second"] for run in runs]
        shares = [run["utilisation"] for run in runs]
        use = f"{statistics.median(shares):7.3f} ({min(shares):.3f})"
        if side in WITHOUT_STEP:
            use = 15 * " "
        yield f"  {side:12}{use}{statistics.median(speeds):14,.1f}"
        if side == "penstock" and statistics.median(shares) < AIM:
            yield f"    {runs[-1]['verdict']}"
        elif side == "no step":
            share = statistics.median(carried(row, run) for run in runs)
            yield f"    a core carries {share:.3g} of one accelerator, which takes {1 / share:.3g} cores"
        elif side in FLOORS:
            pairs = zip(seen.get("no step", seen["penstock"]), runs)
            ratio = statistics.median(a["samples_per_second"] / b["samples_per_second"] for a, b in pairs)
            yield f"    penstock over it {ratio:.2f}, aim {FLOOR_AIM}: " + ("met" if ratio >= FLOOR_AIM else "MISSED")
    if "no step" in seen:  # with a step, the disk may be the bottleneck
        share = statistics.median(run["utilisation"] for run in seen["penstock"])
        cores = statistics.median(1 / carried(row, run) for run in seen["no step"])
        lacking = "1 core does not suffice" if workers == 1 else f"{workers} cores do not suffice"
        aim = "met" if share >= AIM else lacking if cores > 0.9 * workers else "MISSED"
        yield f"  aim {AIM}: {aim}"


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--ours", required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", default=str(HERE.parent.parent.parent / "build" / "compare" / "storage"))
    parser.add_argument("--only", action="append", default=[], choices=WORKLOADS)
    parser.add_argument("--cold", action="store_true")
    chosen = parser.parse_args()
    where = rounds.machine()
    print(f"{where['cpu']}, {where['cores']} cores, load before {where['load_before']:.2f}; utilisation, medians of "
          f"{chosen.rounds} rounds (least), and samples a second; {chosen.workers} workers each; "
          + ("from the disk" if chosen.cold else "from the page cache"))
    without = set()
    for name in chosen.only or WORKLOADS:
        maker = [chosen.python, str(HERE / "workloads.py"), chosen.folder, name]
        subprocess.run(maker + ["cold"] * chosen.cold, check=True)
        if not chosen.cold:
            for path in paths(chosen.folder, name):
                path.read_bytes()  # reads the file into the page cache
        print("\n" + "\n".join(lines(name, seen_of(chosen, name, without), chosen.workers)), flush=True)
    for side in sorted(without):
        print(f"\n{side}: left out, not installed")


if __name__ == "__main__":
    main()
