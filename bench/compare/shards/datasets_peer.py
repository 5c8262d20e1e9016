# SPDX-License-Identifier: BSL-1.0
"""Hugging Face datasets in DataLoader: Arrow files with random access. ../peer.py describes the
command line."""

import functools

import datasets
import torch

from shard_peer import load_rows, peer


def stored(folder):
    return datasets.load_from_disk(f"{folder}/hf")


ROWS = {f"HF_datasets/workers:{n}": functools.partial(load_rows, stored, n, shuffle=True) for n in (0, 1, 2)}

if __name__ == "__main__":
    peer.main(ROWS, {"datasets": datasets.__version__, "torch": torch.__version__})
