# SPDX-License-Identifier: BSL-1.0
"""PyTorch's loaders, and training fed by them. peer.py describes the command line.

Each variant is as fast as possible with DataLoader: in-place arithmetic, persistent workers, one
thread per operation (two threads are no faster at this size), and fused Adam.
"""

import functools

import torch
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    RandomSampler,
    TensorDataset,
    default_collate,
)

import peer

EPOCHS = 5


def tensors(folder, part="train"):
    images, labels = peer.idx_files(folder, part)
    return (
        torch.frombuffer(images, dtype=torch.uint8).view(-1, peer.PIXELS),
        torch.frombuffer(labels, dtype=torch.uint8).long(),
    )


def normalised(images):
    return images.float().mul_(peer.SCALE).add_(peer.SHIFT)


def normalised_batch(samples):
    images, labels = default_collate(samples)
    return normalised(images), labels


def as_it_is(batch):
    return batch


def arrays(collate, samples):
    return tuple(part.numpy() for part in collate(samples))


def as_tensors(batch):
    """Returns a batch of arrays or tensors as tensors, without a copy."""
    return tuple(map(torch.as_tensor, batch))


class Digits(Dataset):
    """A dataset that returns single samples."""

    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return normalised(self.images[index]), self.labels[index]


class Batches(Digits):
    """A dataset that returns whole batches: the index is a list."""

    def __getitem__(self, indices):
        indices = torch.tensor(indices)
        return normalised(self.images[indices]), self.labels[indices]


class Resident:
    """Data without a loader: the loop gathers each batch from the tensor."""

    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def __iter__(self):
        for indices in torch.randperm(len(self.labels)).split(peer.BATCH):
            yield normalised(self.images[indices]), self.labels[indices]


def data_loader(form, workers, data):
    dataset, collate = {
        "sample": (Digits(*data), default_collate),
        "TensorDataset": (TensorDataset(*data), normalised_batch),
        "batched": (Batches(*data), as_it_is),
    }[form]
    options = {"num_workers": workers, "persistent_workers": workers > 0}
    options["collate_fn"] = functools.partial(arrays, collate) if workers else collate
    if form == "batched":
        order = BatchSampler(RandomSampler(dataset), peer.BATCH, drop_last=False)
        return DataLoader(dataset, sampler=order, batch_size=None, **options)
    return DataLoader(dataset, batch_size=peer.BATCH, shuffle=True, **options)


def consume(batch):
    images, labels = as_tensors(batch)
    return images.sum().item(), labels.sum().item(), len(labels)


def load(form, workers, folder, threads=1):
    torch.set_num_threads(threads)
    data = tensors(folder)
    if form == "resident":
        return peer.load(lambda: Resident(*data), consume)
    return peer.load(lambda: data_loader(form, workers, data), consume)


def new_network():
    torch.manual_seed(1)
    network = nn.Sequential(
        nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)
    )
    return network, torch.optim.Adam(network.parameters(), lr=1e-3, fused=True)


def train(form, workers, folder, threads=1):
    torch.set_num_threads(threads)
    data = tensors(folder)
    loader = Resident(*data) if form == "resident" else data_loader(form, workers, data)
    loss_of = nn.CrossEntropyLoss()

    def step(network, optimiser, images, labels):
        optimiser.zero_grad(set_to_none=True)
        loss_of(network(images), labels).backward()
        optimiser.step()

    # Starts workers and warms up libraries before the clock starts, as all sides do.
    warm = new_network()
    batch = as_tensors(next(iter(loader)))
    for _ in range(20):
        step(*warm, *batch)

    network, optimiser = new_network()

    def run():
        for _ in range(EPOCHS):
            for batch in loader:
                step(network, optimiser, *as_tensors(batch))

    def accuracy():
        images, labels = tensors(folder, "t10k")
        with torch.no_grad():
            return (network(normalised(images)).argmax(1) == labels).float().mean().item()

    return peer.train(EPOCHS, len(data[1]), run, accuracy)


ROWS = {}
for form, name, all_workers in (
    ("sample", "DataLoader", (0, 1, 2)),
    ("TensorDataset", "DataLoader_TensorDataset", (0, 2)),
    ("batched", "DataLoader_batched", (0, 1)),
):
    for workers in all_workers:
        ROWS[f"{name}/workers:{workers}"] = functools.partial(load, form, workers)
ROWS["DataLoader_batched/workers:0/threads:2"] = functools.partial(load, "batched", 0, threads=2)
ROWS["PyTorch_no_loader"] = functools.partial(load, "resident", 0)
for workers in (0, 1, 2):
    ROWS[f"train_DataLoader/workers:{workers}"] = functools.partial(train, "sample", workers)
ROWS["train_DataLoader_batched/workers:0"] = functools.partial(train, "batched", 0)
ROWS["train_PyTorch_resident"] = functools.partial(train, "resident", 0)
ROWS["train_PyTorch_resident/threads:2"] = functools.partial(train, "resident", 0, threads=2)

if __name__ == "__main__":
    peer.main(ROWS, {"torch": torch.__version__})
