# SPDX-License-Identifier: BSL-1.0
"""torchcodec's image decoder and torchvision's crop of tensors, on threads. peer.py describes the
command line."""

import functools
from importlib.metadata import version

import torch
from torchcodec.decoders import decode_image
from torchvision.transforms.v2 import functional

import peer
import image_peer


def make_sample(side):
    torch.set_num_threads(1)

    def sample(path, out):
        image = decode_image(path, mode="RGB")
        left, top, width, height = image_peer.crop_of(image.shape[2], image.shape[1])
        crop = functional.resized_crop(image, top, left, height, width, [side, side], antialias=True)
        torch.from_numpy(out).copy_(crop.permute(1, 2, 0))

    return sample


ROWS = {
    f"torchcodec/threads:{threads}": functools.partial(image_peer.load, make_sample, threads)
    for threads in (1, 2)
}

if __name__ == "__main__":
    peer.main(ROWS, {"torchcodec": version("torchcodec")})
