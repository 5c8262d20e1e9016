# SPDX-License-Identifier: BSL-1.0
"""pyarrow: row groups in a random order, as they are decoded, and with their rows shuffled; called as
peer.py says."""

import functools

import numpy as np
import pyarrow
import pyarrow.parquet

from table_peer import BATCH, COLUMNS, consume, peer


class RowGroups:
    """An epoch is all row groups in a random order, `threads` decode one; with `shuffle` their rows are
    too."""

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
