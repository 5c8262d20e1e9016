#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
# promise: exact-15
"""Compares the resizer with Pillow: resize_pillow.py PROGRAM FOLDER [BOXES [SEED]].

The script draws boxes for each filter and order of the passes, the image tests resize them, and the
script searches for differing values. The installed Pillow has a fixed order of the passes; the
other order is composed of two resizes along one axis each. Skipped if Pillow and numpy are not
installed."""
import os
import pathlib
import random
import subprocess
import sys

SKIPPED = 77
FILTERS = ["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"]
ORDERS = ["horizontal_first", "by_shrink"]
MODES = {1: "L", 3: "RGB", 4: "CMYK"}


def make_bytes(numpy):
    """Returns the source bytes of the images: noise, black and white, and a gradient."""
    draw = numpy.random.default_rng(17)
    noise = draw.integers(0, 256, 1 << 20, dtype=numpy.uint8)
    extremes = draw.integers(0, 2, 1 << 20, dtype=numpy.uint8) * numpy.uint8(255)
    slope = (numpy.arange(1 << 20) // 7 % 256).astype(numpy.uint8)
    return numpy.concatenate([noise, extremes, slope, noise])


def side(draw):
    """Draws a length. Small lengths and the ends of vectors are frequent."""
    return draw.choice([draw.randint(1, 12), draw.randint(1, 70), draw.randint(1, 300)])


def draw_case(draw, size):
    """Returns a line for the program: image, crop, scaled size, kept part, mirrored."""
    channels = draw.choice([1, 3, 3, 4])
    width, height = side(draw), side(draw)
    if draw.random() < 0.02:
        width, height = draw.choice([(1, 100), (1, 101), (2, 205), (3, 300), (3, 301)])
    pitch = width * channels + draw.choice([0, 0, 5])
    offset = draw.randrange(size - pitch * height)
    box = part(draw, width, height)
    scaled = (box[2] if draw.random() < 0.1 else side(draw),
              box[3] if draw.random() < 0.1 else side(draw))
    kept = (0, 0, *scaled) if draw.random() < 0.4 else part(draw, *scaled)
    return (channels, offset, pitch, width, height, *box, *scaled, *kept, draw.randrange(2))


def part(draw, width, height):
    if draw.random() < 0.3:
        return (0, 0, width, height)
    left, top = draw.randrange(width), draw.randrange(height)
    return (left, top, draw.randint(1, width - left), draw.randint(1, height - top))


def vertical_first(order, width, height, to_width, to_height):
    lost = height - to_height
    if order == "horizontal_first":
        return height > 100 * width and lost > 0
    return lost > 0 and lost > 2 * (width - to_width)


def by_pillow(Image, numpy, native, data, name, order, case):
    """Returns the bytes that Pillow produces for a case."""
    channels, offset, pitch, width, height, left, top, w, h, to_w, to_h, *kept, mirrored = case
    rows = numpy.lib.stride_tricks.as_strided(data[offset:], (height, width * channels), (pitch, 1))
    image = Image.frombytes(MODES[channels], (width, height), rows.tobytes())
    image = image.crop((left, top, left + w, top + h))
    how = getattr(Image.Resampling, name.upper())
    if name == "nearest" or order == native:
        image = image.resize((to_w, to_h), how)
    elif vertical_first(order, w, h, to_w, to_h):
        image = image.resize((w, to_h), how).resize((to_w, to_h), how)
    else:
        image = image.resize((to_w, h), how).resize((to_w, to_h), how)
    x, y, kept_w, kept_h = kept
    image = image.crop((x, y, x + kept_w, y + kept_h))
    if mirrored:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return image.tobytes()


def golden(Image, numpy, native):
    """Prints a 64-bit FNV-1a hash for each filter, order and resize of a random image."""
    data, state = [], 1
    for _ in range(97 * 203 * 3):
        state = (state * 1664525 + 1013904223) % 2**32
        data.append(state >> 24)
    data = numpy.array(data, dtype=numpy.uint8)
    for name in FILTERS:
        for order in ORDERS:
            sums = []
            for channels, box, to in ((3, (0, 0, 97, 71), (40, 30)), (3, (5, 3, 80, 66), (150, 33)),
                                      (1, (0, 0, 97, 71), (31, 100)), (4, (1, 0, 90, 71), (90, 20)),
                                      (3, (7, 1, 2, 201), (30, 200))):
                height = 71 if box[3] < 100 else 203
                case = (channels, 0, 97 * channels, 97, height, *box, *to, 0, 0, *to, 0)
                total = 0xcbf29ce484222325
                for byte in by_pillow(Image, numpy, native, data, name, order, case):
                    total = (total ^ byte) * 0x100000001b3 % 2**64
                sums.append(f"0x{total:016x}")
            print(f"    {{resize_filter::{name}, pass_order::{order}, {{{', '.join(sums)}}}}},")


def main():
    boxes = int(sys.argv[3]) if len(sys.argv) > 3 else 60
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    try:
        import numpy
        import PIL
        from PIL import Image
    except ImportError as missing:
        print(f"skipped: Pillow is not installed (pip install pillow numpy): {missing}")
        sys.exit(SKIPPED)
    version = tuple(int(part) for part in PIL.__version__.split(".")[:2])
    # Before 12.2, Pillow also resized tall, narrow images horizontally first, which matches
    # neither order.
    native = ORDERS[version >= (13,)] if version >= (12, 2) else None
    if sys.argv[1] == "--golden":
        golden(Image, numpy, native)
        return
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    data = make_bytes(numpy)
    (folder / "bytes").write_bytes(data.tobytes())
    draw = random.Random(seed)
    differing = compared = values = 0
    for name in FILTERS:
        for order in ORDERS:
            cases = [draw_case(draw, len(data)) for _ in range(boxes)]
            text = f"{FILTERS.index(name)} {ORDERS.index(order)} {len(cases)}\n"
            text += "".join(" ".join(map(str, case)) + "\n" for case in cases)
            (folder / "cases").write_text(text)
            subprocess.run([program, "[pillow]"], check=True, stdout=subprocess.DEVNULL,
                           env={**os.environ, "PENSTOCK_RESIZE_CASES": str(folder)})
            results = (folder / "results").read_bytes()
            at = 0
            for case in cases:
                expected = by_pillow(Image, numpy, native, data, name, order, case)
                found = results[at:at + len(expected)]
                at += len(expected)
                compared += 1
                values += len(expected)
                if found != expected:
                    differing += 1
                    if differing <= 5:
                        wrong = sum(a != b for a, b in zip(found, expected))
                        print(f"{name}, {order}: {wrong} of {len(expected)} values differ: {case}")
            if at != len(results):
                sys.exit(f"resize_pillow: expected {at} bytes of results, found {len(results)}")
    print(f"Pillow {PIL.__version__}: {differing} of {compared} boxes differ, {values} values")
    sys.exit(differing != 0)


if __name__ == "__main__":
    main()
