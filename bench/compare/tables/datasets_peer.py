# SPDX-License-Identifier: BSL-1.0
"""Hugging Face datasets with random rows of the table, which was converted to an Arrow file in
advance. ../peer.py describes the command line."""

import datasets
import numpy as np

from table_peer import BATCH, consume, peer


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


ROWS = {"HF_datasets": lambda folder: peer.load(lambda: RandomRows(folder), consume)}

if __name__ == "__main__":
    peer.main(ROWS, {"datasets": datasets.__version__})
