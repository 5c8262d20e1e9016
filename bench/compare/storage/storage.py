# SPDX-License-Identifier: BSL-1.0
"""Whether an accelerator stays busy: rows of MLPerf Storage with a modelled accelerator, penstock beside
DLIO's own way, PyTorch's DataLoader and numpy, on the same files.

    python3 storage.py --ours PROGRAM --python PYTHON [--rounds N] [--folder FOLDER] [--only ROW]...

PROGRAM is penstock_storage_peer; PYTHON an interpreter with numpy and torch. Utilisation is the time of all
steps over that of the loop, without the first step. Both sides have two workers; files come from the page
cache as far as there is memory.
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
    if side == "DataLoader":
        return [chosen.python, str(HERE / "dataloader_peer.py"), chosen.folder, name, str(WORKERS)]
    row = WORKLOADS[name]
    numbers = [row.sample, row.batch, row.step, row.epochs, WORKERS]
    return [os.path.abspath(chosen.ours), *map(str, numbers), *map(str, paths(chosen.folder, name))]


def measured(side, chosen, name):
    done = subprocess.run(command(side, chosen, name), check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--ours", required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", default=str(HERE.parent.parent.parent / "build" / "compare" / "storage"))
    parser.add_argument("--only", action="append", default=[], choices=WORKLOADS)
    chosen = parser.parse_args()
    where = rounds.machine()
    print(f"{where['cpu']}, {where['cores']} cores, load before {where['load_before']:.2f}; "
          f"utilisation, medians of {chosen.rounds} rounds (least); {WORKERS} workers each\n")
    print(f"{'':16}{'asks for, MB/s':>16}{'penstock':>20}{'DataLoader, numpy':>20}   aim {AIM}")
    for name in chosen.only or WORKLOADS:
        maker = [chosen.python, str(HERE / "workloads.py"), chosen.folder, name]
        subprocess.run(maker, check=True)
        for path in paths(chosen.folder, name):
            path.read_bytes()  # into the page cache
        seen = {"penstock": [], "DataLoader": []}
        for _ in range(chosen.rounds):
            for side, values in seen.items():
                values.append(measured(side, chosen, name))
        samples = {run["samples"] for values in seen.values() for run in values}
        if len(samples) != 1:
            sys.exit(f"{name}: the sides have read {samples} samples")
        texts, ours = [], 0.0
        for side, values in seen.items():
            shares = [run["utilisation"] for run in values]
            if side == "penstock":
                ours = statistics.median(shares)
            texts.append(f"{statistics.median(shares):12.3f} ({min(shares):.3f})")
        met = "met" if ours >= AIM else "MISSED"
        print(f"{name:16}{WORKLOADS[name].demand:16,.0f}" + "".join(f"{one:>20}" for one in texts) + f"   {met}")


if __name__ == "__main__":
    main()
