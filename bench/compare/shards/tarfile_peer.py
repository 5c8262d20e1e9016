# SPDX-License-Identifier: BSL-1.0
"""Python's tarfile in PyTorch's DataLoader, with a true shuffle over all shards. ../peer.py
describes the command line."""

import functools

import torch
from torch.utils.data import DataLoader

import shard_peer
from shard_peer import peer


def load(workers, folder):
    def make():
        return DataLoader(
            shard_peer.ByPlace(folder),
            batch_size=peer.BATCH,
            shuffle=True,
            num_workers=workers,
            persistent_workers=workers > 0,
            collate_fn=shard_peer.batch_of,
        )

    return peer.load(make, shard_peer.consume)


ROWS = {f"DataLoader_tarfile/workers:{n}": functools.partial(load, n) for n in (0, 1, 2)}

if __name__ == "__main__":
    peer.main(ROWS, {"torch": torch.__version__})
