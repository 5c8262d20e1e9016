# SPDX-License-Identifier: BSL-1.0
"""WebDataset, with its shuffle of shards and a buffer of 1,000 samples. ../peer.py describes the
command line."""

import functools

import torch  # noqa: F401: WebLoader is torch's DataLoader
import webdataset as wds

import shard_peer
from shard_peer import peer


def load(workers, folder):
    def make():
        samples = (
            wds.WebDataset(shard_peer.archives(folder), shardshuffle=8)
            .shuffle(1000)
            .to_tuple("bin", "cls")
            .batched(peer.BATCH, collation_fn=shard_peer.batch_of)
        )
        return wds.WebLoader(
            samples, batch_size=None, num_workers=workers, persistent_workers=workers > 0
        )

    return peer.load(make, shard_peer.consume)


ROWS = {f"WebDataset/workers:{n}": functools.partial(load, n) for n in (0, 1, 2)}

if __name__ == "__main__":
    peer.main(ROWS, {"webdataset": wds.__version__, "torch": torch.__version__})
