# SPDX-License-Identifier: BSL-1.0
# promise: race-free-9
"""Reads tables of pyarrow, polars and DuckDB: table_pyarrow.py LIBRARY.

The tables become datasets and blobs through the capsules of Python's stream interface. LIBRARY is
built from for_arrow.cpp. Skipped if pyarrow or numpy is not installed; polars and DuckDB are
optional."""

import ctypes
import gc
import sys

SKIPPED = 77

python = ctypes.pythonapi
python.PyCapsule_GetPointer.restype = ctypes.c_void_p
python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def main(library):
    try:
        import numpy
        import pyarrow
    except ImportError as missing:
        print("skipped:", missing)
        return SKIPPED
    # CDLL releases the GIL during a call, because a release callback may acquire it.
    ours = ctypes.CDLL(library)
    ours.digits.restype = ours.blobs.restype = ctypes.c_int64
    ours.digits.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int]
    ours.blobs.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64]
    ours.why_rejected.restype = ctypes.c_char_p

    def require(holds, what):
        if not holds:
            sys.exit(f"table_pyarrow.py: does not hold: {what}")

    def rejected(result, words):
        said = ours.why_rejected().decode()
        require(result == -1 and words in said, f"'{words}' in '{said}'")

    def read(table, zeros=False, rows=1000):
        image, label = numpy.zeros((rows, 2, 3), "u1"), numpy.zeros(rows, "i8")
        capsule = table.__arrow_c_stream__()
        stream = python.PyCapsule_GetPointer(capsule, b"arrow_array_stream")
        checked = ours.digits(stream, image.ctypes.data, label.ctypes.data, zeros)
        return checked, image, label

    def read_blobs(table, column):
        out = ctypes.create_string_buffer(100000)
        capsule = table.__arrow_c_stream__()
        stream = python.PyCapsule_GetPointer(capsule, b"arrow_array_stream")
        size = ours.blobs(stream, column.encode(), out, len(out))
        return size, out.raw[: max(size, 0)]

    def digits(first, count, kind):
        label = numpy.arange(first, first + count)
        image = (label[:, None] * 6 + numpy.arange(6)).astype("u1")
        flat = pyarrow.array(image.ravel())
        columns = {
            "nested": pyarrow.FixedSizeListArray.from_arrays(
                pyarrow.FixedSizeListArray.from_arrays(flat, 3), 2),
            "flat": pyarrow.FixedSizeListArray.from_arrays(flat, 6),
            "list": pyarrow.array(image.tolist(), pyarrow.list_(pyarrow.uint8())),
            "large_list": pyarrow.array(image.tolist(), pyarrow.large_list(pyarrow.uint8())),
            "binary": pyarrow.array([row.tobytes() for row in image], pyarrow.binary(6)),
            "tensor": pyarrow.FixedShapeTensorArray.from_numpy_ndarray(
                image.reshape(count, 2, 3)) if hasattr(
                    pyarrow, "FixedShapeTensorArray") else flat,
        }
        return pyarrow.RecordBatch.from_arrays(
            [pyarrow.array(label), pyarrow.array(label % 2 == 1), columns[kind],
             pyarrow.array((label / 2).astype("f4"))], ["label", "is_odd", "image", "score"])

    before = pyarrow.total_allocated_bytes()
    labels = numpy.arange(100)
    images = (labels[:, None] * 6 + numpy.arange(6)).astype("u1").reshape(100, 2, 3)
    for kind in ["nested", "flat", "list", "large_list", "binary", "tensor"]:
        table = pyarrow.Table.from_batches(
            [digits(0, 30, kind), digits(30, 1, kind), digits(31, 69, kind)])
        for part, rows in [(table, slice(0, 100)), (table.slice(17, 60), slice(17, 77)),
                           (table.slice(0, 0), slice(0, 0))]:
            checked, image, label = read(part)
            count = rows.stop - rows.start
            require(checked == count, f"{kind}: {checked} of {count}: {ours.why_rejected()}")
            require((label[:count] == labels[rows]).all(), f"labels of {kind}")
            require((image[:count] == images[rows]).all(), f"images of {kind}")

    names = table.schema.names
    index = names.index("label")
    holes = pyarrow.array([None if n == 40 else n for n in range(100)], pyarrow.int64())
    with_nulls = table.set_column(index, "label", holes)
    rejected(read(with_nulls)[0], 'column "label": expected a value in row 40, found null')
    require(read(with_nulls, zeros=True)[2][40] == 0, "a null is 0")
    coded = table.set_column(index, "label", holes.dictionary_encode())
    rejected(read(coded)[0], "dictionary")
    ragged = pyarrow.array([[1] * (5 if n == 33 else 6) for n in range(100)],
                           pyarrow.list_(pyarrow.uint8()))
    rejected(read(table.set_column(names.index("image"), "image", ragged))[0], "5 in row 33")
    without_score = read(table.drop_columns(["score"]))[0]
    rejected(without_score, 'column "score": expected exactly one column of this name')

    words = [b"", b"one", b"x" * 1000, "ä".encode()]
    keys = ["a", "b", "", "d"]
    expected = b"".join(word + f" {i} {keys[i]}\n".encode() for i, word in enumerate(words))
    for kind in ["binary", "large_binary", "string", "large_string"]:
        kind = pyarrow.type_for_alias(kind)
        column = pyarrow.array(words, pyarrow.binary()).cast(kind)
        table = pyarrow.table({"text": column, "label": pyarrow.array(range(4), pyarrow.uint16()),
                               "key": keys, "image": pyarrow.StructArray.from_arrays(
                                   [column, pyarrow.array(keys)], ["bytes", "path"])})
        for name in ["text", "image.bytes"]:
            size, out = read_blobs(table, name)
            require(out == expected, f"{name} of {kind}: {size}, {ours.why_rejected()}")
        require(read_blobs(table.slice(1, 2), "text")[1] ==
                b"one 1 b\n" + b"x" * 1000 + b" 2 \n", "a slice of blobs")
    viewed = pyarrow.table({"text": pyarrow.array(["a"], pyarrow.string_view()), "label": [1]})
    rejected(read_blobs(viewed, "text")[0], "views have a different layout")

    del table, part, with_nulls, coded, ragged, holes, viewed, column
    gc.collect()
    left = pyarrow.total_allocated_bytes() - before
    require(left == 0, f"{left} bytes of pyarrow's were not released")

    peers = ["pyarrow " + pyarrow.__version__]
    plain = pyarrow.Table.from_batches([digits(0, 100, "list")])
    try:
        import polars
        frame = polars.from_arrow(plain)
        require(read(frame)[0] == 100, f"polars: {ours.why_rejected()}")
        peers.append("polars " + polars.__version__)
    except ImportError:
        pass
    try:
        import duckdb
        found = duckdb.sql("select * from plain where label < 90 order by label")
        require(read(found)[0] == 90, f"DuckDB: {ours.why_rejected()}")
        peers.append("DuckDB " + duckdb.__version__)
        del found
    except ImportError:
        pass

    print(", ".join(peers) + ": tables are datasets")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
