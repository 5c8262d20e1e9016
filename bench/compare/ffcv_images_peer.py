# SPDX-License-Identifier: BSL-1.0
"""FFCV with its own file format. peer.py describes the command line.

If the file does not exist, the script creates it from the folder and encodes the images again as
JPEG with quality 90."""

import functools
from importlib.metadata import version
from pathlib import Path

import numpy as np
from ffcv.fields import IntField, RGBImageField
from ffcv.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import Squeeze, ToTensor
from ffcv.writer import DatasetWriter
from PIL import Image

import peer
import image_peer


class Decoded:
    """A dataset of decoded images for FFCV's writer."""

    def __init__(self, task):
        self.task = task

    def __len__(self):
        return len(self.task.paths)

    def __getitem__(self, index):
        with Image.open(self.task.paths[index]) as image:
            return np.asarray(image.convert("RGB")), self.task.labels[index]


def load(workers, folder):
    task = image_peer.Task(folder)
    packed = Path(folder, "ffcv.beton")
    if not packed.exists():
        fields = {"image": RGBImageField(write_mode="jpg", jpeg_quality=90), "label": IntField()}
        DatasetWriter(str(packed), fields, num_workers=1).from_indexed_dataset(Decoded(task))
    crop = RandomResizedCropRGBImageDecoder((task.side, task.side))
    pipelines = {"image": [crop, ToTensor()], "label": [IntDecoder(), ToTensor(), Squeeze()]}
    return peer.load(
        lambda: Loader(
            str(packed),
            batch_size=peer.BATCH,
            num_workers=workers,
            order=OrderOption.RANDOM,
            os_cache=True,
            drop_last=False,
            pipelines=pipelines,
        ),
        image_peer.consume,
    )


ROWS = {f"FFCV/workers:{workers}": functools.partial(load, workers) for workers in (1, 2)}

if __name__ == "__main__":
    peer.main(ROWS, {"ffcv": version("ffcv")})
