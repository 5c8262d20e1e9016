# SPDX-License-Identifier: BSL-1.0
"""NVIDIA DALI's CPU pipeline, which decodes only the crop and then resizes it. peer.py describes
the command line."""

import functools
import math

import numpy as np
import nvidia.dali as dali
from nvidia.dali import fn, types

import peer
import image_peer


class Epochs:
    """Splits DALI's endless reader into epochs that cover all images."""

    def __init__(self, pipeline, batches):
        self.pipeline, self.batches = pipeline, batches

    def __iter__(self):
        for _ in range(self.batches):
            yield self.pipeline.run()


def load(threads, folder, antialias=True):
    task = image_peer.Task(folder)

    def make():
        pipeline = dali.Pipeline(
            batch_size=peer.BATCH, num_threads=threads, device_id=None, prefetch_queue_depth=2
        )
        with pipeline:
            encoded, label = fn.readers.file(
                file_root=str(task.train), shuffle_after_epoch=True, name="reader"
            )
            pixels = fn.decoders.image_random_crop(
                encoded,
                device="cpu",
                output_type=types.RGB,
                random_area=list(image_peer.SCALE),
                random_aspect_ratio=list(image_peer.RATIO),
            )
            pixels = fn.resize(
                pixels,
                resize_x=task.side,
                resize_y=task.side,
                interp_type=types.INTERP_LINEAR,
                antialias=antialias,
            )
            pipeline.set_outputs(pixels, label)
        pipeline.build()
        return Epochs(pipeline, math.ceil(len(task.paths) / peer.BATCH))

    def consume(batch):
        return image_peer.consume([np.asarray(x.as_tensor()) for x in batch])

    return peer.load(make, consume)


ROWS = {f"DALI_cpu/threads:{threads}": functools.partial(load, threads) for threads in (1, 2)}
ROWS["DALI_cpu_aliased/threads:1"] = functools.partial(load, 1, antialias=False)

if __name__ == "__main__":
    peer.main(ROWS, {"dali": dali.__version__})
