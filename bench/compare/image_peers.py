# SPDX-License-Identifier: BSL-1.0
"""The Python peers of images.py.

    python3 image_peers.py PEER --list | --data FOLDER --row NAME

PEER is a function below; peer.py describes the other arguments. FOLDER contains
`train/<class>/<file>` and the file `task` with two numbers: the side of a resized crop, and the
batch size. Each peer imports its own packages, because any of them may be missing.
"""

import functools
import math
import random
from pathlib import Path

import numpy as np

import peer

peer.LEAST_SECONDS = 1
# The consumer reads one value per cache line. Reading every value would cost some sides more than
# others.
STEP = 64
SCALE, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)


class Task:
    def __init__(self, folder):
        self.train = Path(folder, "train")
        self.side, peer.BATCH = map(int, Path(folder, "task").read_text().split())
        classes = sorted(path for path in self.train.iterdir() if path.is_dir())
        listed = [(path, label) for label, one in enumerate(classes) for path in sorted(one.iterdir())]
        self.paths = [str(path) for path, _ in listed]
        self.labels = [label for _, label in listed]


def crop_of(width, height, draw=random):
    """Returns a random (left, top, width, height), drawn as torchvision's RandomResizedCrop draws
    it."""
    low, high = map(math.log, RATIO)
    for _ in range(10):
        area = width * height * draw.uniform(*SCALE)
        ratio = math.exp(draw.uniform(low, high))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return draw.randint(0, width - w), draw.randint(0, height - h), w, h
    w = min(width, round(height * RATIO[1]))
    h = min(height, round(width / RATIO[0]))
    return (width - w) // 2, (height - h) // 2, w, h


def consume(batch):
    pixels, labels = map(np.asarray, batch)
    return int(pixels.reshape(-1)[::STEP].sum(dtype=np.int64)), int(labels.sum()), len(labels)


class Batches:
    """Epochs of batches that sample(path, out) fills on the caller's thread."""

    def __init__(self, task, sample):
        self.task, self.sample = task, sample
        self.random = np.random.default_rng(1)

    def __iter__(self):
        order = self.random.permutation(len(self.task.paths))
        for first in range(0, len(order), peer.BATCH):
            chosen = order[first : first + peer.BATCH]
            pixels = np.empty((len(chosen), self.task.side, self.task.side, 3), np.uint8)
            labels = np.array([self.task.labels[i] for i in chosen])
            for i, out in zip(chosen, pixels):
                self.sample(self.task.paths[i], out)
            yield pixels, labels


def loaded(make_sample):
    """Returns a row that measures the batches that make_sample(side) fills."""

    def load(folder):
        task = Task(folder)
        return peer.load(lambda: Batches(task, make_sample(task.side)), consume)

    return load


def pillow():
    """torchvision's default chain without its loader: open, RGB, crop, resize."""
    import PIL
    from PIL import Image, features

    def make_sample(side):
        def sample(path, out):
            with open(path, "rb") as file, Image.open(file) as image:
                image = image.convert("RGB")
            left, top, width, height = crop_of(*image.size)
            image = image.crop((left, top, left + width, top + height))
            out[:] = np.asarray(image.resize((side, side), Image.Resampling.BILINEAR))

        return sample

    versions = {"pillow": PIL.__version__, "numpy": np.__version__}
    versions["pillow's libjpeg-turbo"] = features.version("libjpeg_turbo")
    return {"Pillow/threads:1": loaded(make_sample)}, versions


def opencv():
    """FFCV's chain: decodes the whole image and resizes its crop by area interpolation."""
    import cv2

    def make_sample(side):
        cv2.setNumThreads(1)

        def sample(path, out):
            image = cv2.imdecode(np.fromfile(path, np.uint8), cv2.IMREAD_COLOR_RGB)
            left, top, width, height = crop_of(image.shape[1], image.shape[0])
            crop = image[top : top + height, left : left + width]
            cv2.resize(crop, (side, side), dst=out, interpolation=cv2.INTER_AREA)

        return sample

    return {"OpenCV_area/threads:1": loaded(make_sample)}, {"opencv": cv2.__version__}


def pytorch():
    """torchvision in PyTorch's DataLoader. `DataLoader_Pillow` is torchvision's default:
    ImageFolder with RandomResizedCrop of a PIL image. `DataLoader_tensor` uses torchvision's own
    decoder and crops the tensor, which is faster."""
    import torch
    import torchvision
    from torch.utils.data import DataLoader
    from torchvision.datasets import ImageFolder
    from torchvision.io import ImageReadMode, decode_image, read_file
    from torchvision.transforms import v2

    def decoded(path):
        return decode_image(read_file(path), mode=ImageReadMode.RGB)

    def load(form, workers, folder):
        torch.set_num_threads(1)
        task = Task(folder)
        crop = v2.RandomResizedCrop(task.side, antialias=True)
        if form == "tensor":
            dataset = ImageFolder(task.train, crop, loader=decoded)
        else:
            dataset = ImageFolder(task.train, v2.Compose([crop, v2.PILToTensor()]))
        options = {"num_workers": workers, "persistent_workers": workers > 0}
        return peer.load(
            lambda: DataLoader(dataset, batch_size=peer.BATCH, shuffle=True, **options), consume
        )

    rows = {
        f"DataLoader_{form}/workers:{workers}": functools.partial(load, form, workers)
        for form, workers in (("Pillow", 1), ("Pillow", 2), ("tensor", 1))
    }
    return rows, {"torch": torch.__version__, "torchvision": torchvision.__version__}


def dali():
    """NVIDIA DALI's CPU pipeline, which decodes only the crop and then resizes it."""
    import nvidia.dali
    from nvidia.dali import fn, types

    class Epochs:
        """Splits DALI's endless reader into epochs that cover all images."""

        def __init__(self, pipeline, batches):
            self.pipeline, self.batches = pipeline, batches

        def __iter__(self):
            for _ in range(self.batches):
                yield self.pipeline.run()

    def load(folder):
        task = Task(folder)

        def make():
            pipeline = nvidia.dali.Pipeline(
                batch_size=peer.BATCH, num_threads=1, device_id=None, prefetch_queue_depth=2
            )
            with pipeline:
                encoded, label = fn.readers.file(
                    file_root=str(task.train), shuffle_after_epoch=True, name="reader"
                )
                pixels = fn.decoders.image_random_crop(
                    encoded,
                    device="cpu",
                    output_type=types.RGB,
                    random_area=list(SCALE),
                    random_aspect_ratio=list(RATIO),
                )
                pixels = fn.resize(
                    pixels,
                    resize_x=task.side,
                    resize_y=task.side,
                    interp_type=types.INTERP_LINEAR,
                    antialias=True,
                )
                pipeline.set_outputs(pixels, label)
            pipeline.build()
            return Epochs(pipeline, math.ceil(len(task.paths) / peer.BATCH))

        return peer.load(make, lambda batch: consume([x.as_tensor() for x in batch]))

    return {"DALI_cpu/threads:1": load}, {"dali": nvidia.dali.__version__}


def spdl():
    """SPDL's pipeline: a thread that demuxes, decodes with FFmpeg, and crops and scales with
    FFmpeg's filters. Scaling is bilinear."""
    from importlib.metadata import version

    import spdl.io
    import spdl.io.utils

    class Indices:
        """Yields one image at a time, in a different order each epoch."""

        def __init__(self, samples):
            self.samples, self.random = samples, np.random.default_rng(1)

        def __iter__(self):
            yield from self.random.permutation(self.samples)

    def load(folder):
        task = Task(folder)

        def decode(index):
            packets = spdl.io.demux_image(task.paths[index])
            # The packet has reported the size of the image.
            left, top, width, height = crop_of(packets.codec.width, packets.codec.height)
            # Without `exact`, the crop would begin at even pixels, because the chroma resolution
            # is halved.
            crop = f"crop=w={width}:h={height}:x={left}:y={top}:exact=1"
            scale = f"scale={task.side}:{task.side}:flags=bilinear"
            frames = spdl.io.decode_packets(packets, filter_desc=f"{crop},{scale},format=rgb24")
            return frames, task.labels[index]

        def to_batch(decoded):
            frames, labels = zip(*decoded)
            return spdl.io.to_numpy(spdl.io.convert_frames(list(frames))), np.array(labels)

        return peer.load_spdl(
            Indices(len(task.paths)),
            lambda builder: builder.pipe(decode).aggregate(peer.BATCH).pipe(to_batch),
            2,
            1,
            consume,
        )

    # Fails if FFmpeg's libraries are missing. The error lists the libraries that were searched.
    found = spdl.io.utils.get_ffmpeg_versions()["libavcodec"]
    versions = {"spdl": version("spdl"), "libavcodec": ".".join(map(str, found))}
    return {"SPDL/threads:1": load}, versions


PEERS = (pillow, opencv, pytorch, dali, spdl)

if __name__ == "__main__":
    peer.main_of(PEERS)
