# SPDX-License-Identifier: BSL-1.0
"""pyarrow with row groups in random order, either as they are decoded or with shuffled rows.
../peer.py describes the command line."""

import functools

import numpy as np
import pyarrow
import pyarrow.parquet

from table_peer import BATCH, COLUMNS, consume, peer


class RowGroups:
    """Epochs of all row groups in random order. `threads` threads decode a group, and `shuffle`
    also shuffles the rows within a group."""

    def __init__(self, folder, threads, shuffle):
        self.file = pyarrow.parquet.ParquetFile(f"{folder}/table.parquet")
        self.threads, self.shuffle = threads > 1, shuffle
        self.random = np.random.default_rng(1)
        pyarrow.set_cpu_count(threads)

    def __iter__(self):
        for group in self.random.permutation(self.file.num_row_groups):
            rows = self.file.read_row_group(
                int(group), columns=[*COLUMNS, "label"], use_threads=self.threads
            )
            if self.shuffle:
                rows = rows.take(self.random.permutation(rows.num_rows))
            for batch in rows.to_batches(max_chunksize=BATCH):
                yield {name: batch.column(name).to_numpy() for name in (*COLUMNS, "label")}


def load(threads, shuffle, folder):
    return peer.load(lambda: RowGroups(folder, threads, shuffle), consume)


ROWS = {
    f"pyarrow_{name}/threads:{threads}": functools.partial(load, threads, shuffle)
    for name, shuffle in (("scan", False), ("shuffled", True))
    for threads in (1, 2)
}

if __name__ == "__main__":
    peer.main(ROWS, {"pyarrow": pyarrow.__version__})
