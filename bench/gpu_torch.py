#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Checks batches on a GPU as PyTorch tensors, through DLPack.

    python3 bench/gpu_torch.py LIBRARY

Every byte is compared on the GPU, on PyTorch's default stream and on another stream. The steps are
so slow that work without a wait would overtake them. Each tensor is dropped while its step still
runs, so that its slot is reused immediately.

LIBRARY is penstock_gpu_torch.so of the build or the pack. Exits with 77 if PyTorch or a visible GPU
is missing, and with 1 for a wrong byte."""

import ctypes
import sys

SAMPLES, BATCH, EPOCHS = 1000, 64, 2


def skipped(why):
    print(f"skipped: {why}")
    sys.exit(77)


def capsules(library, stream):
    """Yields the feed's batches as pairs of DLPack capsules."""
    make = ctypes.pythonapi.PyCapsule_New
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    library.penstock_feed_open.restype = ctypes.c_void_p
    library.penstock_feed_open.argtypes = [ctypes.c_uint64, ctypes.c_uint64]
    library.penstock_feed_next.argtypes = [ctypes.c_void_p] * 4
    library.penstock_feed_close.argtypes = [ctypes.c_void_p]
    library.penstock_feed_error.restype = ctypes.c_char_p

    def failed():
        return RuntimeError(library.penstock_feed_error().decode())

    feed = library.penstock_feed_open(SAMPLES, BATCH)
    if not feed:
        raise failed()
    try:
        image, label = ctypes.c_void_p(), ctypes.c_void_p()
        while True:
            more = library.penstock_feed_next(
                feed, stream, ctypes.byref(image), ctypes.byref(label)
            )
            if more < 0:
                raise failed()
            if more == 0:
                return
            yield make(image, b"dltensor", None), make(label, b"dltensor", None)
    finally:
        library.penstock_feed_close(feed)


def expected_of(torch):
    """Returns all images and labels, with the values of gpu::pixel."""
    places = [(i * 7 + i // 28) & 255 for i in range(784)]
    images = bytearray((n * 31 + at) & 255 for n in range(SAMPLES) for at in places)
    labels = bytearray(n & 255 for n in range(SAMPLES))
    made = torch.frombuffer(images, dtype=torch.uint8).reshape(SAMPLES, 28, 28)
    return made.to("cuda"), torch.frombuffer(labels, dtype=torch.uint8).to("cuda")


def wrong_on(torch, library, stream, images, labels):
    """Returns the number of batches, and the number of wrong bytes in them, counted by work on one
    stream."""
    wrong, batches, first = 0, 0, 0
    with torch.cuda.stream(stream):
        for image, label in capsules(library, stream.cuda_stream):
            image, label = torch.from_dlpack(image), torch.from_dlpack(label)
            count = image.shape[0]
            torch.cuda._sleep(200_000)
            wrong = wrong + (image != images[first : first + count]).sum()
            wrong = wrong + (label != labels[first : first + count]).sum()
            del image, label
            batches, first = batches + 1, (first + count) % SAMPLES
        return batches, int(wrong)  # int() waits for the stream that computes the count


def main(path):
    try:
        import torch
    except ImportError:
        skipped("there is no PyTorch here")
    if not torch.cuda.is_available():
        skipped("PyTorch sees no GPU")
    library = ctypes.CDLL(path)  # loaded after PyTorch, so that both use the same CUDA runtime
    images, labels = expected_of(torch)
    torch.cuda.synchronize()
    comparisons, failures = 0, 0
    for name, stream in (
        ("the default stream", torch.cuda.default_stream()),
        ("a stream of its own", torch.cuda.Stream()),
    ):
        batches, wrong = wrong_on(torch, library, stream, images, labels)
        most = EPOCHS * ((SAMPLES + BATCH - 1) // BATCH)
        print(f"PyTorch {torch.__version__}, {name}: {batches} batches, {wrong} bytes wrong")
        comparisons += most
        failures += most if batches != most else min(wrong, most)
    print(f"{comparisons} comparisons, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
