# SPDX-License-Identifier: BSL-1.0
"""SPDL's pipeline: a thread pool that demuxes, decodes with FFmpeg, and crops and scales with
FFmpeg's filters. peer.py describes the command line.

Scaling is bilinear. The crop is drawn as soon as the packet has reported the size of the image.
"""

import functools
from importlib.metadata import version

import numpy as np
import spdl.io
import spdl.io.utils
from spdl.pipeline import PipelineBuilder

import peer
import image_peer


class Indices:
    """A source for SPDL: yields one image at a time, in a different order each epoch."""

    def __init__(self, samples):
        self.samples, self.random = samples, np.random.default_rng(1)

    def __iter__(self):
        yield from self.random.permutation(self.samples)


def load(threads, folder):
    task = image_peer.Task(folder)

    def decode(index):
        packets = spdl.io.demux_image(task.paths[index])
        left, top, width, height = image_peer.crop_of(packets.codec.width, packets.codec.height)
        # Without `exact`, the crop would begin at even pixels, because the chroma resolution is
        # halved.
        crop = f"crop=w={width}:h={height}:x={left}:y={top}:exact=1"
        scale = f"scale={task.side}:{task.side}:flags=bilinear"
        frames = spdl.io.decode_packets(packets, filter_desc=f"{crop},{scale},format=rgb24")
        return frames, task.labels[index]

    def to_batch(decoded):
        frames, labels = zip(*decoded)
        return spdl.io.to_numpy(spdl.io.convert_frames(list(frames))), np.array(labels)

    def make():
        pipeline = (
            PipelineBuilder()
            .add_source(Indices(len(task.paths)), continuous=True)
            .pipe(decode, concurrency=threads)
            .aggregate(peer.BATCH)
            .pipe(to_batch)
            .add_sink(2)
            .build(num_threads=threads)
        )
        pipeline.start()
        running.append(pipeline)
        return pipeline

    running = []
    try:
        return peer.load(make, image_peer.consume)
    finally:
        for pipeline in running:
            pipeline.stop()


ROWS = {f"SPDL/threads:{threads}": functools.partial(load, threads) for threads in (1, 2)}

if __name__ == "__main__":
    # Fails if FFmpeg's libraries are missing. The error lists the libraries that were searched.
    found = spdl.io.utils.get_ffmpeg_versions()["libavcodec"]
    peer.main(ROWS, {"spdl": version("spdl"), "libavcodec": ".".join(map(str, found))})
