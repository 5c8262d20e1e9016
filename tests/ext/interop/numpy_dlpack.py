# SPDX-License-Identifier: BSL-1.0
"""Exchanges tensors with numpy: numpy_dlpack.py LIBRARY.

Batches become numpy arrays over slot memory, and numpy arrays become datasets, through the capsules
of Python's array interface. LIBRARY is built from for_numpy.cpp. Skipped if numpy 2.1 or newer is
not installed."""

import ctypes
import gc
import sys

SKIPPED = 77
NAME, USED = b"dltensor_versioned", b"used_dltensor_versioned"

python = ctypes.pythonapi
python.PyCapsule_New.restype = ctypes.py_object
python.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
python.PyCapsule_GetPointer.restype = ctypes.c_void_p
python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
python.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]


class Exported:
    """An object that numpy.from_dlpack accepts."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **_):
        return python.PyCapsule_New(self.tensor, NAME, None)


def main(library):
    try:
        import numpy
    except ImportError:
        print("skipped: there is no numpy")
        return SKIPPED
    if tuple(map(int, numpy.__version__.split(".")[:2])) < (2, 1):
        print("skipped: numpy", numpy.__version__, "knows no versioned tensors")
        return SKIPPED
    ours = ctypes.CDLL(library)  # releases the GIL during a call, because numpy's deleter needs it
    ours.batch_as_tensor.restype = ctypes.c_void_p
    ours.sum_of_samples.restype = ctypes.c_double
    ours.sum_of_samples.argtypes = [ctypes.c_void_p]
    ours.why_rejected.restype = ctypes.c_char_p

    def require(holds, what):
        if not holds:
            sys.exit(f"numpy_dlpack.py: does not hold: {what}")

    x = numpy.from_dlpack(Exported(ours.batch_as_tensor(1, 0)))
    require(x.dtype == numpy.int32 and x.shape == (4, 2, 3), "type and shape")
    require((x == numpy.arange(24).reshape(4, 2, 3)).all(), "the numbers")
    require(x.strides == (24, 12, 4) and x.flags["C_CONTIGUOUS"], "strides")
    odd = numpy.from_dlpack(Exported(ours.batch_as_tensor(0, 1)))
    require(odd.dtype == numpy.bool_ and odd.tolist() == [False, True] * 2, "truths")
    require(not odd.flags["WRITEABLE"], "an array to read")
    require(ours.batches_held() == 2 and not ours.batch_as_tensor(1, 0), "two slots are held")
    part = x[1:, :, ::2]
    del x
    gc.collect()
    require(ours.batches_held() == 2 and part[2, 1, 1] == 23, "a slice holds its batch")
    del part, odd
    gc.collect()
    require(ours.batches_held() == 0, "no array, no lease")

    def sum_of(array):
        capsule = array.__dlpack__(max_version=(1, 0))
        tensor = python.PyCapsule_GetPointer(capsule, NAME)
        python.PyCapsule_SetName(capsule, USED)
        return ours.sum_of_samples(tensor)

    def expected(array):
        return float((array.sum(axis=1) * numpy.arange(1, len(array) + 1)).sum())

    whole = numpy.arange(60, dtype=numpy.float32).reshape(10, 6)
    dense = numpy.ascontiguousarray(whole[:, :3])
    before = sys.getrefcount(dense)
    apart = (dense[::2], dense[::-1], whole[:, 3:], whole[2::3, 1:4])
    for taken in (dense, *apart, dense[:1], dense[:0]):
        require(sum_of(taken) == expected(taken), f"the samples of {taken.shape}, {taken.strides}")
    for rejected, part in (
        (whole[:, ::2], "strides"),
        (numpy.asfortranarray(dense), "strides"),
        (dense.astype(numpy.float64), "type"),
        (whole, "shape"),
        (dense[0], "rank"),
    ):
        require(sum_of(rejected) == -1, f"{part} is rejected")
        said = ours.why_rejected().decode()
        require(said.startswith(f'tensor_dataset: field "x": {part}: expected '), said)
    del apart, taken, rejected
    gc.collect()
    require(sys.getrefcount(dense) == before, "every tensor was freed")
    print("numpy", numpy.__version__, "takes batches and gives tensors")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
