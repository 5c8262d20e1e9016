# SPDX-License-Identifier: BSL-1.0
"""Compares loaders of samples from shards: penstock, PyTorch with tarfile, WebDataset, MosaicML
Streaming, Hugging Face datasets, Grain, SPDL.

    python3 shards.py --ours PROGRAM --python PYTHON [--samples N] [--rounds N] [--folder FOLDER]
                      [--json FILE] [--only ROW]...

PROGRAM is penstock_shards_peer. PYTHON is an interpreter with the peers' packages: numpy, torch,
webdataset, mosaicml-streaming, datasets, grain, spdl. Peers that cannot be imported are skipped,
and the output names them. Each side returns batches of 64 samples as an array of bytes and an array
of labels. The files are in the page cache.
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import side_by_side  # noqa: E402
from side_by_side import PER_CPU  # noqa: E402

PEERS = ("tarfile", "webdataset", "mosaic", "datasets", "grain", "spdl")


def show(ranked):
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
    parser = side_by_side.parser()
    parser.add_argument("--samples", type=int, default=20000)
    parser.add_argument("--folder", default=str(HERE.parent.parent.parent / "build" / "compare" / "shards"))
    chosen = parser.parse_args()
    maker = [chosen.python, str(HERE / "shard_folders.py"), chosen.folder, str(chosen.samples)]
    data = subprocess.run(maker, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1]

    compared = side_by_side.Comparison(chosen, {name: HERE / f"{name}_peer.py" for name in PEERS})
    compared.measure(chosen.folder)
    side_by_side.require_equal(compared.rows)
    compared.show_head(data)
    show(compared.ranked())
    compared.finish("compare_shards", data)


if __name__ == "__main__":
    main()
