# SPDX-License-Identifier: BSL-1.0
"""SPDL's pipeline. peer.py describes the command line.

Each step processes a whole batch with NumPy, which releases the GIL. One pipeline serves all
epochs, with the output queue for low latency and without statistics.
"""

import functools
from importlib.metadata import version

import numpy as np
from spdl.pipeline import PipelineBuilder

import peer


class Batches:
    """A source for SPDL: yields the batch indices of an epoch, in a different order each time."""

    def __init__(self, samples):
        self.samples, self.random = samples, np.random.default_rng(1)

    def __iter__(self):
        order = self.random.permutation(self.samples)
        for first in range(0, self.samples, peer.BATCH):
            yield order[first : first + peer.BATCH]


def load(concurrency, folder):
    images, labels = (np.frombuffer(part, dtype=np.uint8) for part in peer.idx_files(folder, "train"))
    images = images.reshape(-1, peer.PIXELS)
    labels = labels.astype(np.int64)
    scale, shift = np.float32(peer.SCALE), np.float32(peer.SHIFT)

    def gather(indices):
        batch = np.multiply(images[indices], scale, dtype=np.float32)
        batch += shift
        return batch, labels[indices]

    def make():
        pipeline = (
            PipelineBuilder()
            .add_source(Batches(len(labels)), continuous=True)
            .pipe(gather, concurrency=concurrency, output_order="input")
            .add_sink(2 * concurrency)
            .build(
                num_threads=concurrency,
                use_thread_output_queue=True,
                task_hook_factory=lambda *_: [],
            )
        )
        pipeline.start()
        running.append(pipeline)
        return pipeline

    def consume(batch):
        return float(batch[0].sum()), int(batch[1].sum()), len(batch[1])

    running = []
    try:
        return peer.load(make, consume)
    finally:
        for pipeline in running:
            pipeline.stop()


ROWS = {
    f"SPDL/concurrency:{concurrency}": functools.partial(load, concurrency) for concurrency in (1, 2)
}

if __name__ == "__main__":
    peer.main(ROWS, {"spdl": version("spdl"), "numpy": np.__version__})
