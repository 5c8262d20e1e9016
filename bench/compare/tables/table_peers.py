# SPDX-License-Identifier: BSL-1.0
"""The Python peers of tables.py.

    python3 table_peers.py PEER --list | --data FOLDER --row NAME

PEER is a function below; ../peer.py describes the other arguments. FOLDER is the folder of
table_files.py.
"""

import functools
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import peer  # noqa: E402
from table_files import COLUMNS  # noqa: E402

peer.LEAST_SECONDS = 1
BATCH = 1024


def consume(batch):
    """Reads every value of a batch, column by column. `batch` maps names to arrays."""
    values = sum(float(np.asarray(batch[name]).sum(dtype=np.float64)) for name in COLUMNS)
    labels = np.asarray(batch["label"])
    return values, int(labels.sum()), len(labels)


def pyarrow():
    """Row groups in random order, either as they are decoded or with shuffled rows."""
    import pyarrow.parquet

    class RowGroups:
        """Epochs of all row groups. `threads` threads decode a group."""

        def __init__(self, folder, threads, shuffle):
            self.file = pyarrow.parquet.ParquetFile(f"{folder}/table.parquet")
            self.threads, self.shuffle = threads > 1, shuffle
            self.random = np.random.default_rng(1)
            pyarrow.set_cpu_count(threads)

        def __iter__(self):
            names = [*COLUMNS, "label"]
            for group in self.random.permutation(self.file.num_row_groups):
                rows = self.file.read_row_group(int(group), columns=names, use_threads=self.threads)
                if self.shuffle:
                    rows = rows.take(self.random.permutation(rows.num_rows))
                for batch in rows.to_batches(max_chunksize=BATCH):
                    yield {name: batch.column(name).to_numpy() for name in names}

    def load(threads, shuffle, folder):
        return peer.load(lambda: RowGroups(folder, threads, shuffle), consume)

    rows = {
        f"pyarrow_{name}/threads:{threads}": functools.partial(load, threads, shuffle)
        for name, shuffle in (("scan", False), ("shuffled", True))
        for threads in (1, 2)
    }
    return rows, {"pyarrow": pyarrow.__version__}


def huggingface():
    """Random rows of the Arrow file to which the table was converted in advance."""
    import datasets

    class RandomRows:
        """Epochs of all rows in random order, one batch of indices at a time."""

        def __init__(self, folder):
            self.rows = datasets.Dataset.from_parquet(
                f"{folder}/table.parquet", cache_dir=f"{folder}/hf"
            ).with_format("numpy")
            self.random = np.random.default_rng(1)

        def __iter__(self):
            order = self.random.permutation(len(self.rows))
            for begin in range(0, len(order), BATCH):
                yield self.rows[order[begin : begin + BATCH]]

    rows = {"HF_datasets": lambda folder: peer.load(lambda: RandomRows(folder), consume)}
    return rows, {"datasets": datasets.__version__}


PEERS = (pyarrow, huggingface)

if __name__ == "__main__":
    peer.main_of(PEERS)
