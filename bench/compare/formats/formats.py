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
import rounds  # noqa: E402

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
    ("hdf5/penstock/sequential/opened:once", "hdf5/h5py/sequential/opened:once", 4),
    ("hdf5/penstock/shuffled", "hdf5/h5py/shuffled/cache:1MiB", 4),
    ("hdf5/penstock/shuffled", "hdf5/h5py/shuffled/cache:256MiB", 4),
)


def require_equal(rows):
    """Marks each row as failed that has not read the same data as the first row."""
    reference = next((row.runs[0]["checked"] for row in rows if row.runs), None)
    for row in rows:
        for run in row.runs:
            if run["checked"] != reference:
                row.failed = f"failed: read {run['checked']}, others {reference}"


def main():
    chosen = rounds.Peers.parser().parse_args()
    folder = chosen.folder or str(HERE.parent.parent.parent / "build" / "compare" / "formats")
    script = HERE / "format_peers.py"
    compared = rounds.Peers(chosen, script, PEERS, [script, "write"], folder)
    print(compared.head(compared.data))
    for one in dict.fromkeys(row.name.partition("/")[0] + "/" for row in compared.rows):
        require_equal([row for row in compared.rows if row.name.startswith(one)])
        rounds.print_rows([row for row in compared.ranked() if row.name.startswith(one)], one)
    judged = rounds.Judge(compared.rows)
    named = {row.name: row for row in compared.ranked()}
    for ours, peer, least in AIMS:
        judged.add(named.get(ours), named.get(peer), "speed", least, rounds.PER_CPU)
    compared.end("compare_formats", judged.goals)


if __name__ == "__main__":
    main()
