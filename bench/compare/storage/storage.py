# SPDX-License-Identifier: BSL-1.0
"""Whether an accelerator stays busy: rows of MLPerf Storage with a modelled accelerator, penstock beside
DLIO itself and beside PyTorch's DataLoader and numpy, on the same samples.

    python3 storage.py --ours PROGRAM --python PYTHON [--rounds N] [--folder FOLDER] [--only ROW]... [--cold]

PROGRAM is penstock_storage_peer; PYTHON an interpreter with numpy and torch, and with dlio-benchmark, which is
left out by name where it is missing. Utilisation is the time of all steps over that of the loop, without the
first step; DLIO's is its own. All sides have two workers; files come from the page cache as far as there is
memory. --cold: one epoch of penstock and of the DataLoader, for each of which the files were dropped from the
page cache.
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
from workloads import WORKLOADS, paths  # noqa: E402

WORKERS = 2
AIM = 0.99


def command(side, chosen, name):
    if side == "penstock":
        row = WORKLOADS[name]
        numbers = [row.sample, row.batch, row.step, 1 if chosen.cold else row.epochs, WORKERS]
        return [os.path.abspath(chosen.ours), *map(str, numbers), *map(str, paths(chosen.folder, name))]
    program = "dataloader_peer.py" if side == "DataLoader" else "dlio_peer.py"
    words = ["whole"] if side == "DLIO, whole" else ["1"] if chosen.cold else []
    return [chosen.python, str(HERE / program), chosen.folder, name, str(WORKERS), *words]


def drop(files):
    """Has the system give up what it holds of the files in memory."""
    for path in files:
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)  # what is not written yet stays
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(file)


def measured(side, chosen, name):
    """What a side has found; none where it is not installed."""
    if chosen.cold:
        drop(paths(chosen.folder, name))
    done = subprocess.run(command(side, chosen, name), stdout=subprocess.PIPE, text=True)
    if done.returncode == 77:
        return None
    done.check_returncode()
    run = json.loads(done.stdout.splitlines()[-1])
    run.setdefault("samples_per_second", run["samples"] / run.get("seconds", 1))
    return run


def seen_of(chosen, name, without):
    """What each side has found in each round. Leaves those out that are not installed, which it adds to `without`."""
    row = WORKLOADS[name]
    sides = ["penstock", "DataLoader"] + ([] if chosen.cold else ["DLIO"])
    if not chosen.cold and 0 < row.handed < row.sample:
        sides.append("DLIO, whole")
    seen = {side: [] for side in sides if side.partition(",")[0] not in without}
    for _ in range(chosen.rounds):
        for side in sides:
            if side not in seen:
                continue
            run = measured(side, chosen, name)
            if run is None:
                without.add(side.partition(",")[0])
                seen = {other: runs for other, runs in seen.items() if other.partition(",")[0] not in without}
                continue
            seen[side].append(run)
    samples = {run["samples"] for values in seen.values() for run in values}
    if len(samples) != 1:
        sys.exit(f"{name}: the sides have read {samples} samples")
    # The nominal steps over the loop's time, as DLIO has it, which counts what a sleep takes too long as waiting.
    nominal = [
        {**run, "utilisation": run["samples"] / row.batch * row.step / run["seconds"]} for run in seen["penstock"]
    ]
    return {"penstock": seen["penstock"], "penstock, nominal": nominal, **seen}


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--ours", required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", default=str(HERE.parent.parent.parent / "build" / "compare" / "storage"))
    parser.add_argument("--only", action="append", default=[], choices=WORKLOADS)
    parser.add_argument("--cold", action="store_true")
    chosen = parser.parse_args()
    where = rounds.machine()
    print(f"{where['cpu']}, {where['cores']} cores, load before {where['load_before']:.2f}; utilisation, medians of "
          f"{chosen.rounds} rounds (least), and samples a second; {WORKERS} workers each")
    without = set()
    for name in chosen.only or WORKLOADS:
        maker = [chosen.python, str(HERE / "workloads.py"), chosen.folder, name]
        subprocess.run(maker, check=True)
        for path in paths(chosen.folder, name):
            path.read_bytes()  # into the page cache
        seen = seen_of(chosen, name, without)
        print(f"\n{name}, asks for {WORKLOADS[name].demand:,.0f} MB/s")
        for side, runs in seen.items():
            shares = [run["utilisation"] for run in runs]
            speed = statistics.median(run["samples_per_second"] for run in runs)
            verdict = ""
            if side == "penstock":
                verdict = f"   aim {AIM}: " + ("met" if statistics.median(shares) >= AIM else "MISSED")
            print(f"  {side:18}{statistics.median(shares):7.3f} ({min(shares):.3f}){speed:12,.1f}{verdict}", flush=True)
    for side in sorted(without):
        print(f"\n{side}: left out, not installed")


if __name__ == "__main__":
    main()
