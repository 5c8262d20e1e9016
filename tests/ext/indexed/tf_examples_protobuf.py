#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Compares tf_examples with protobuf: tf_examples_protobuf.py PROGRAM FOLDER has protobuf encode
random examples, writes them to TFRecord files, has the indexed tests read them, and compares the
values. Skipped where protobuf is not installed."""
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys

SKIPPED = 77
FILES = 2000
LISTS = {"BytesList": "TYPE_BYTES", "FloatList": "TYPE_FLOAT", "Int64List": "TYPE_INT64"}


def example_class():
    """Returns the class of tensorflow/core/example/example.proto."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="tf", syntax="proto3")

    def add(message, name, number, kind, label=kinds.LABEL_OPTIONAL, **more):
        message.field.add(name=name, number=number, type=kind, label=label, **more)

    feature = descriptor_pb2.DescriptorProto(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, (name, kind) in enumerate(LISTS.items(), start=1):
        of_values = file.message_type.add(name=name)
        add(of_values, "value", 1, getattr(kinds, kind), kinds.LABEL_REPEATED)
        field = name.replace("List", "_list").lower()
        add(feature, field, number, kinds.TYPE_MESSAGE, type_name=f".tf.{name}", oneof_index=0)
    file.message_type.append(feature)
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    add(entry, "key", 1, kinds.TYPE_STRING)
    add(entry, "value", 2, kinds.TYPE_MESSAGE, type_name=".tf.Feature")
    add(features, "feature", 1, kinds.TYPE_MESSAGE, kinds.LABEL_REPEATED,
        type_name=".tf.Features.FeatureEntry")
    example = file.message_type.add(name="Example")
    add(example, "features", 1, kinds.TYPE_MESSAGE, type_name=".tf.Features")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    kind = pool.FindMessageTypeByName("tf.Example")
    if not hasattr(message_factory, "GetMessageClass"):  # before protobuf 4.22
        return message_factory.MessageFactory(pool).GetPrototype(kind)
    return message_factory.GetMessageClass(kind)


TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    TABLE.append(byte)


def masked_crc(data):
    state = 0xFFFFFFFF
    for byte in data:
        state = TABLE[(state ^ byte) & 255] ^ state >> 8
    state ^= 0xFFFFFFFF
    return ((state >> 15 | state << 17) + 0xA282EAD8) & 0xFFFFFFFF


def framed(data):
    length = struct.pack("<Q", len(data))
    sums = [struct.pack("<I", masked_crc(one)) for one in (length, data)]
    return length + sums[0] + data + sums[1]


def main():
    try:
        example = example_class()
    except ImportError:
        print("skipped: there is no protobuf")
        sys.exit(SKIPPED)
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    draw = random.Random(7)
    expected = []
    for file in range(FILES):
        records = []
        for _ in range(draw.randrange(4)):
            image = draw.randbytes(draw.randrange(200))
            box = [struct.unpack("<f", struct.pack("<f", draw.gauss(0, 9)))[0] for _ in range(4)]
            words = [draw.randrange(-(2**63), 2**63) >> draw.randrange(64)
                     for _ in range(draw.randrange(6))]
            label = draw.randrange(-(2**15), 2**15)
            one = example()
            feature = one.features.feature
            feature["image"].bytes_list.value.append(image)
            feature["box"].float_list.value.extend(box)
            feature["words"].int64_list.value.extend(words)
            feature["label"].int64_list.value.append(label)
            feature["name"].bytes_list.value.extend([b"other", b"names"])
            records.append(framed(one.SerializeToString()))
            expected.append(struct.pack(f"<Q{len(image)}s4fQ{len(words)}qh", len(image), image,
                                        *box, len(words), *words, label))
        (folder / f"{file:04}.tfrecord").write_bytes(b"".join(records))
    subprocess.run([program, "[protobuf]"], check=True, stdout=subprocess.DEVNULL,
                   env={**os.environ, "PENSTOCK_TF_RECORDS": str(folder)})
    is_equal = (folder / "values").read_bytes() == b"".join(expected)
    print(f"{len(expected)} examples in {FILES} files: {'equal' if is_equal else 'other values'}")
    sys.exit(not is_equal)


if __name__ == "__main__":
    main()
