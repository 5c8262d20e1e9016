# SPDX-License-Identifier: BSL-1.0
"""Hugging Face datasets, Arrow files with random access, in DataLoader; called as peer.py says."""

import functools

import datasets
import torch
from torch.utils.data import DataLoader

import shard_peer
from shard_peer import peer


def load(workers, folder):
    def make():
        return DataLoader(
            datasets.load_from_disk(f"{folder}/hf"),
            batch_size=peer.BATCH,
            shuffle=True,
            num_workers=workers,
            persistent_workers=workers > 0,
            collate_fn=lambda rows: shard_peer.batch_of([(row["bin"], row["cls"]) for row in rows]),
        )

    return peer.load(make, shard_peer.consume)


ROWS = {f"HF_datasets/workers:{n}": functools.partial(load, n) for n in (0, 1, 2)}

if __name__ == "__main__":
    peer.main(ROWS, {"datasets": datasets.__version__, "torch": torch.__version__})
