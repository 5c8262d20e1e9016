# SPDX-License-Identifier: BSL-1.0
"""MosaicML Streaming over local MDS shards, with its shuffle; called as peer.py says."""

import functools

import streaming
import torch
from torch.utils.data import DataLoader

import shard_peer
from shard_peer import peer


def load(workers, folder):
    def make():
        dataset = streaming.StreamingDataset(
            local=f"{folder}/mds", shuffle=True, batch_size=peer.BATCH, num_canonical_nodes=1
        )
        return DataLoader(
            dataset,
            batch_size=peer.BATCH,
            num_workers=workers,
            persistent_workers=workers > 0,
            collate_fn=lambda rows: shard_peer.batch_of([(row["bin"], row["cls"]) for row in rows]),
        )

    return peer.load(make, shard_peer.consume)


ROWS = {f"MosaicStreaming/workers:{n}": functools.partial(load, n) for n in (0, 1, 2)}

if __name__ == "__main__":
    peer.main(ROWS, {"mosaicml-streaming": streaming.__version__, "torch": torch.__version__})
