# SPDX-License-Identifier: BSL-1.0
"""SPDL's pipeline with the random access of DataLoader_tarfile. ../peer.py describes the command
line."""

import functools
import random

import spdl
from spdl.pipeline import PipelineBuilder

import shard_peer
from shard_peer import peer


class Epochs:
    def __init__(self, folder, threads):
        self.source, self.threads = shard_peer.ByPlace(folder), threads
        self.random = random.Random(1)

    def __iter__(self):
        order = list(range(len(self.source)))
        self.random.shuffle(order)
        batches = [order[i : i + peer.BATCH] for i in range(0, len(order), peer.BATCH)]

        def read(indices):
            return shard_peer.batch_of([self.source[i] for i in indices])

        pipeline = (
            PipelineBuilder()
            .add_source(batches)
            .pipe(read, concurrency=self.threads)
            .add_sink(4)
            .build(num_threads=self.threads)
        )
        with pipeline.auto_stop():
            yield from pipeline.get_iterator(timeout=60)


def load(threads, folder):
    return peer.load(lambda: Epochs(folder, threads), shard_peer.consume)


ROWS = {f"SPDL/threads:{n}": functools.partial(load, n) for n in (1, 2)}

if __name__ == "__main__":
    peer.main(ROWS, {"spdl": spdl.__version__})
