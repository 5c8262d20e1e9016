# SPDX-License-Identifier: BSL-1.0
"""MosaicML Streaming over local MDS shards, with its own shuffle. ../peer.py describes the command
line."""

import functools

import streaming
import torch

from shard_peer import load_rows, peer


def streamed(folder):
    return streaming.StreamingDataset(
        local=f"{folder}/mds", shuffle=True, batch_size=peer.BATCH, num_canonical_nodes=1
    )


ROWS = {f"MosaicStreaming/workers:{n}": functools.partial(load_rows, streamed, n) for n in (0, 1, 2)}

if __name__ == "__main__":
    peer.main(ROWS, {"mosaicml-streaming": streaming.__version__, "torch": torch.__version__})
