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

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import side_by_side  # noqa: E402

PEERS = ("tarfile_places", "webdataset", "mosaic", "huggingface", "grain", "spdl")


def main():
    parser = side_by_side.parser()
    parser.add_argument("--samples", type=int, default=20000)
    parser.add_argument("--folder", default=str(HERE.parent.parent.parent / "build" / "compare" / "shards"))
    chosen = parser.parse_args()
    data = side_by_side.made(chosen, HERE / "shard_folders.py", chosen.folder, chosen.samples)
    compared = side_by_side.Comparison(chosen, HERE / "shard_peers.py", PEERS)
    compared.measure(chosen.folder)
    side_by_side.require_equal(compared.rows)
    compared.show_head(data)
    side_by_side.show(compared.ranked())
    compared.finish("compare_shards", data)


if __name__ == "__main__":
    main()
