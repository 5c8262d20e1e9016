# SPDX-License-Identifier: BSL-1.0
"""Pillow's processing chain, which is torchvision's default: open, RGB, crop, resize. peer.py
describes the command line."""

import functools

import numpy as np
import PIL
from PIL import Image, features

import peer
import image_peer


def make_sample(side):
    def sample(path, out):
        with open(path, "rb") as file, Image.open(file) as image:
            image = image.convert("RGB")
        left, top, width, height = image_peer.crop_of(*image.size)
        image = image.crop((left, top, left + width, top + height))
        out[:] = np.asarray(image.resize((side, side), Image.Resampling.BILINEAR))

    return sample


def resize(folder):
    def shrink(image):
        return image.resize((224, 224), Image.Resampling.BILINEAR)

    return image_peer.resize(shrink, Image.fromarray, folder)


ROWS = {
    f"Pillow/threads:{threads}": functools.partial(image_peer.load, make_sample, threads)
    for threads in (1, 2)
}
ROWS["resize_Pillow"] = resize

if __name__ == "__main__":
    jpeg = features.version("libjpeg_turbo")
    peer.main(ROWS, {"pillow": PIL.__version__, "pillow's libjpeg-turbo": jpeg, "numpy": np.__version__})
