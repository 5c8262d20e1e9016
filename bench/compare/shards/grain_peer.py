# SPDX-License-Identifier: BSL-1.0
"""Grain on threads, with the random access of DataLoader_tarfile. ../peer.py describes the command
line."""

import functools

import grain

import shard_peer
from shard_peer import peer


class Epochs:
    """Iterators over the samples, one per epoch, each with a different order."""

    def __init__(self, folder, threads):
        self.source, self.threads, self.epoch = shard_peer.ByPlace(folder), threads, 0

    def __iter__(self):
        self.epoch += 1
        samples = grain.MapDataset.source(self.source).shuffle(seed=self.epoch)
        batches = samples.batch(peer.BATCH, batch_fn=shard_peer.batch_of)
        options = grain.ReadOptions(num_threads=self.threads, prefetch_buffer_size=4)
        return iter(batches.to_iter_dataset(options))


def load(threads, folder):
    return peer.load(lambda: Epochs(folder, threads), shard_peer.consume)


ROWS = {f"Grain/threads:{n}": functools.partial(load, n) for n in (1, 2)}

if __name__ == "__main__":
    peer.main(ROWS, {"grain": grain.__version__})
