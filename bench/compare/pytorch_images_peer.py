# SPDX-License-Identifier: BSL-1.0
"""torchvision in PyTorch's DataLoader. peer.py describes the command line.

`DataLoader_Pillow` is torchvision's default: ImageFolder with RandomResizedCrop of a PIL image.
`DataLoader_tensor` uses torchvision's own decoder and crops the tensor, which is faster.
"""

import functools

import torch
import torchvision
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.io import ImageReadMode, decode_image, read_file
from torchvision.transforms import v2

import peer
import image_peer


def decoded(path):
    return decode_image(read_file(path), mode=ImageReadMode.RGB)


def load(form, workers, folder):
    torch.set_num_threads(1)
    task = image_peer.Task(folder)
    crop = v2.RandomResizedCrop(task.side, antialias=True)
    if form == "tensor":
        dataset = ImageFolder(task.train, crop, loader=decoded)
    else:
        dataset = ImageFolder(task.train, v2.Compose([crop, v2.PILToTensor()]))
    options = {"num_workers": workers, "persistent_workers": workers > 0}
    return peer.load(
        lambda: DataLoader(dataset, batch_size=peer.BATCH, shuffle=True, **options),
        image_peer.consume,
    )


ROWS = {
    f"DataLoader_{form}/workers:{workers}": functools.partial(load, form, workers)
    for form in ("Pillow", "tensor")
    for workers in (0, 1, 2)
}

if __name__ == "__main__":
    peer.main(ROWS, {"torch": torch.__version__, "torchvision": torchvision.__version__})
