# SPDX-License-Identifier: BSL-1.0
"""Samples out of shards, side by side: penstock, PyTorch with tarfile, WebDataset, MosaicML Streaming,
Hugging Face datasets, Grain, SPDL.

    python3 shards.py --ours PROGRAM --python PYTHON [--samples N] [--rounds N] [--folder FOLDER]
                      [--json FILE] [--only ROW]...

PROGRAM is penstock_shards_peer; PYTHON an interpreter that has the peers' packages: numpy, torch, webdataset,
mosaicml-streaming, datasets, grain, spdl. A peer that can't be imported is left out by name. Each side gives
batches of 64 samples as an array of bytes and one of labels; the files are in the page cache.
"""

import argparse
import json
import os
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import rounds  # noqa: E402

PEERS = ("tarfile", "webdataset", "mosaic", "datasets", "grain", "spdl")
PER_CPU = "items_per_cpu_second"


def check(rows):
    """All must have read the same samples."""
    reference = next((row.runs[0]["checked"] for row in rows if row.runs), None)
    for row in rows:
        for run in row.runs:
            if run["checked"] != reference:
                row.failed = f"failed: read {run['checked']}, others {reference}"


def show(rows):
    ranked = sorted((row for row in rows if row.runs and not row.failed), key=lambda r: -r.median(PER_CPU))
    best = ranked[0].median(PER_CPU) if ranked else 1
    print(
        f"\n{'':30}{'a CPU second':>14}{'share of best':>15}{'a second':>12}{'peak MiB':>10}"
        f"{'first batch, ms':>17}"
    )
    for row in ranked:
        print(
            f"{row.name:30}{row.median(PER_CPU):14,.0f}{row.median(PER_CPU) / best:15.3f}"
            f"{row.speed():12,.0f}{row.median('peak_mib'):10,.0f}{row.median('first_batch_cold_ms'):17,.1f}"
        )


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--ours", required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--samples", type=int, default=20000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", default=str(HERE.parent.parent.parent / "build" / "compare" / "shards"))
    parser.add_argument("--json")
    parser.add_argument("--only", action="append", default=[])
    chosen = parser.parse_args()
    maker = [chosen.python, str(HERE / "shard_folders.py"), chosen.folder, str(chosen.samples)]
    data = subprocess.run(maker, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1]

    where = rounds.machine()
    sides = {"penstock": [os.path.abspath(chosen.ours)]}
    sides.update((name, [chosen.python, str(HERE / f"{name}_peer.py")]) for name in PEERS)
    plan, absent = rounds.plan_of(sides)
    plan = [one for one in plan if not chosen.only or one[2] in chosen.only]
    by_name, versions = OrderedDict(), {}
    for number in range(1, chosen.rounds + 1):
        rounds.measure(plan, f"round {number} of {chosen.rounds}", chosen.folder, by_name, versions)
    rows = list(by_name.values())
    for row in rows:
        for run in row.runs:
            run[PER_CPU] = run["items_per_second"] * run["nanoseconds"] / 1e9 / run["cpu_seconds"]
    check(rows)

    print(
        f"{data}; {where['cpu']}, {where['cores']} cores, load before {where['load_before']:.2f}; "
        f"medians of {chosen.rounds} rounds\n"
        + ", ".join(f"{name} {version}" for name, version in versions.items())
    )
    show(rows)
    failed = [(row.name, row.failed) for row in rows if row.failed]
    for name, why in (*absent, *failed):
        print(f"left out: {name}: {why}")
    if chosen.json:
        result = {
            "program": "compare_shards",
            "machine": where,
            "data": data,
            "versions": versions,
            "rounds": chosen.rounds,
            "rows": [
                {**row.result(), **({PER_CPU: rounds.spread([run[PER_CPU] for run in row.runs])} if row.runs else {})}
                for row in rows
            ],
            "left_out": absent,
        }
        Path(chosen.json).write_text(json.dumps(result, indent=1) + "\n")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
