# SPDX-License-Identifier: BSL-1.0
"""Compares readers of four formats: TFRecord, JSON Lines, WAV and HDF5.

    python3 formats.py --ours PROGRAM --python PYTHON [--rounds N] [--folder FOLDER] [--json FILE]
                       [--only ROW]...

PROGRAM is penstock_formats_peer. PYTHON is an interpreter with the peers' packages: numpy,
tensorflow-cpu, datasets, soundfile, h5py. Peers that cannot be imported are skipped, and the output
names them. The files are in the page cache.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import side_by_side  # noqa: E402
from side_by_side import PER_CPU  # noqa: E402

PEERS = ("tensorflow", "datasets", "json", "soundfile", "h5py")
# penstock's row, the peer's row, and the minimum of the ratio.
AIMS = (
    ("tfrecord/penstock/sequential", "tfrecord/tf.data/sequential", 5),
    ("tfrecord/penstock/shuffled", "tfrecord/tf.data/buffer:1000", 5),
    ("jsonl/penstock/first_use", "jsonl/datasets/first_use", 10),
    ("jsonl/penstock/sequential", "jsonl/datasets/sequential", 10),
    ("jsonl/penstock/sequential", "jsonl/datasets_arrow/sequential", 10),
    ("jsonl/penstock/shuffled", "jsonl/datasets/shuffled", 10),
    ("jsonl/penstock/sequential", "jsonl/json.loads/sequential", 10),
    ("wav/penstock/shuffled", "wav/soundfile/shuffled", 2),
    ("wav/penstock/shuffled", "wav/soundfile_open_files/shuffled", 2),
    ("hdf5/penstock/sequential", "hdf5/h5py/sequential", 4),
    ("hdf5/penstock/shuffled", "hdf5/h5py/shuffled/cache:1MiB", 4),
    ("hdf5/penstock/shuffled", "hdf5/h5py/shuffled/cache:256MiB", 4),
)


def judge(ranked):
    """Prints the goals and returns them for the JSON file."""
    by_name, judged = {row.name: row for row in ranked}, []
    print()
    for ours, peer, least in AIMS:
        if ours not in by_name or peer not in by_name:
            print(f"{ours} over {peer}: not measured")
            continue
        ratio = by_name[ours].median(PER_CPU) / by_name[peer].median(PER_CPU)
        judged.append({"name": ours, "floor": peer, "ratio": ratio, "met": ratio >= least})
        print(f"{ours} over {peer}: {ratio:.2f}; at least {least}: {'met' if ratio >= least else 'MISSED'}")
    return judged


def main():
    parser = side_by_side.parser()
    parser.add_argument("--folder", default=str(HERE.parent.parent.parent / "build" / "compare" / "formats"))
    chosen = parser.parse_args()
    script = HERE / "format_peers.py"
    data = side_by_side.made(chosen, script, "write", chosen.folder)
    compared = side_by_side.Comparison(chosen, script, PEERS)
    compared.measure(chosen.folder)
    compared.show_head(data)
    for one in dict.fromkeys(row.name.partition("/")[0] for row in compared.rows):
        side_by_side.require_equal([row for row in compared.rows if row.name.startswith(one)])
        print(f"\n{one:38}{'a CPU second':>14}{'a second':>12}{'peak MiB':>10}")
        for row in compared.ranked():
            if row.name.startswith(one):
                speeds = f"{row.median(PER_CPU):14,.0f}{row.speed():12,.0f}"
                print(f"  {row.name.partition('/')[2]:36}{speeds}{row.median('peak_mib'):10,.0f}")
    compared.finish("compare_formats", data, goals=judge(compared.ranked()))


if __name__ == "__main__":
    main()
