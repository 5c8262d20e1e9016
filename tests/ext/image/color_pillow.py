#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
# promise: exact-15
"""Compares color changes and rotations with Pillow: color_pillow.py PROGRAM FOLDER [CASES [SEED]].

Skipped if Pillow and numpy are not installed. `color_pillow.py --golden` prints the hashes that
color_test.cpp and affine_test.cpp contain."""
import math
import os
import pathlib
import random
import subprocess
import sys

SKIPPED = 77
OPS = ["brightness", "contrast", "saturation", "hue", "grayscale"]
FILTERS = ["nearest", "bilinear", "bicubic"]


def changed(image, op, factor):
    """Returns the image changed by Pillow. The hue changes as in torchvision with Pillow
    images."""
    import numpy
    from PIL import Image, ImageEnhance
    if op == "grayscale":
        return image.convert("L").convert("RGB")
    if op == "hue":
        hue, saturation, value = image.convert("HSV").split()
        turned = numpy.array(hue, dtype=numpy.uint8) + numpy.int32(factor * 255).astype(numpy.uint8)
        return Image.merge("HSV", (Image.fromarray(turned), saturation, value)).convert("RGB")
    enhance = {"brightness": ImageEnhance.Brightness, "contrast": ImageEnhance.Contrast,
               "saturation": ImageEnhance.Color}[op]
    return enhance(image).enhance(factor)


def matrix_of(size, angle, right, down, scale, shear_x, shear_y):
    """Returns the matrix that torchvision documents."""
    rot, sx, sy = map(math.radians, (angle, shear_x, shear_y))
    x, y = size[0] * 0.5, size[1] * 0.5
    a = math.cos(rot - sy) / math.cos(sy)
    b = -math.cos(rot - sy) * math.tan(sx) / math.cos(sy) - math.sin(rot)
    c = math.sin(rot - sy) / math.cos(sy)
    d = -math.sin(rot - sy) * math.tan(sx) / math.cos(sy) + math.cos(rot)
    xx, xy, yx, yy = d / scale, -b / scale, -c / scale, a / scale
    return (xx, xy, xx * (-x - right) + xy * (-y - down) + x,
            yx, yy, yx * (-x - right) + yy * (-y - down) + y)


def turned(Image, image, matrix, name, fill):
    """Returns the image rotated by Pillow."""
    colour = fill if image.mode == "L" else tuple(fill + c for c in range(len(image.mode)))
    return image.transform(image.size, Image.Transform.AFFINE, matrix,
                             Image.Resampling[name.upper()], fillcolor=colour)


def draw_turn(draw):
    """Draws a rotation, a filter and the fill value of the first channel. The fill value of each
    further channel is larger by one."""
    return (draw.choice([0, draw.uniform(-180, 180)]), draw.randint(-20, 20), draw.randint(-20, 20),
            draw.choice([1, draw.uniform(0.3, 3), draw.uniform(0.001, 0.01)]),
            draw.choice([0, draw.uniform(-40, 40)]), draw.choice([0, draw.uniform(-40, 40)]),
            draw.choice(FILTERS), draw.randint(0, 250))


def compare_turns(Image, program, folder, data, count, draw):
    """Returns the number of differing images among `count` rotated images."""
    modes = {1: "L", 3: "RGB", 4: "CMYK"}
    cases = []
    for _ in range(count):
        channels, width, height = draw.choice([1, 3, 4]), draw.randint(1, 90), draw.randint(1, 90)
        offset = draw.randrange(len(data) - width * height * channels)
        cases.append((channels, offset, width, height, *draw_turn(draw)))
    (folder / "turns").write_text("".join(
        " ".join(map(repr, (*numbers, FILTERS.index(name), fill))) + "\n"
        for *numbers, name, fill in cases))
    subprocess.run([program, "[pillow_turns]"], check=True, stdout=subprocess.DEVNULL,
                   env={**os.environ, "PENSTOCK_COLOR_CASES": str(folder)})
    results = (folder / "results").read_bytes()
    matrices = [tuple(map(float.fromhex, line.split()))
                for line in (folder / "matrices").read_text().splitlines()]
    at = differing = 0
    for (channels, offset, width, height, *turn, name, fill), matrix in zip(cases, matrices):
        # The sines of two libraries may differ in the last bit, which can affect an interpolated
        # pixel.
        if not all(math.isclose(found, expected, rel_tol=1e-12, abs_tol=1e-9) for found, expected
                   in zip(matrix, matrix_of((width, height), *turn))):
            sys.exit(f"color_pillow: {turn} of {width} x {height}: the matrix is {matrix}")
        size = width * height * channels
        image = Image.frombytes(modes[channels], (width, height),
                                  data[offset:offset + size].tobytes())
        if results[at:at + size] != turned(Image, image, matrix, name, fill).tobytes():
            differing += 1
            print(f"{width} x {height} x {channels}, {turn}, {name} differs")
        at += size
    if at != len(results):
        sys.exit(f"color_pillow: expected {at} bytes of results, found {len(results)}")
    return differing


def golden(Image):
    """Prints a 64-bit FNV-1a hash for each change of an image of simple random bytes."""
    data, state = bytearray(), 1
    for _ in range(61 * 43 * 3):
        state = (state * 1664525 + 1013904223) % 2**32
        data.append(state >> 24)
    image = Image.frombytes("RGB", (61, 43), bytes(data))
    for op, factor in (("brightness", 0.6), ("brightness", 1.7), ("contrast", 0.3),
                       ("contrast", 2.2), ("saturation", 0.45), ("saturation", 1.9),
                       ("hue", 0.1), ("hue", -0.37),
                       ("grayscale", 0)):
        total = 0xcbf29ce484222325
        for byte in changed(image, op, factor).tobytes():
            total = (total ^ byte) * 0x100000001b3 % 2**64
        print(f"    {{{OPS.index(op)}, {factor}, 0x{total:016x}ull}},")
    for turn in ((0, 3, -2, 1.5, 0, 0), (33, 0, 0, 1, 0, 0), (-100, 4.25, 5.5, 0.7, 10, -20),
                 (5, 0, 0, 0.001, 0, 0), (12, 1, 1, 2, 30, 0)):
        sums = []
        for name, fill in (("nearest", 0), ("bilinear", 0), ("bicubic", 200)):
            total = 0xcbf29ce484222325
            for byte in turned(Image, image, matrix_of(image.size, *turn), name, fill).tobytes():
                total = (total ^ byte) * 0x100000001b3 % 2**64
            sums.append(f"0x{total:016x}ull")
        print(f"    {{{{{', '.join(map(str, turn))}}}, {{{', '.join(sums)}}}}},")


def main():
    try:
        import numpy
        import PIL
        from PIL import Image
    except ImportError as missing:
        print(f"skipped: Pillow is not installed (pip install pillow numpy): {missing}")
        sys.exit(SKIPPED)
    if sys.argv[1] == "--golden":
        golden(Image)
        return
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 60
    draw = random.Random(int(sys.argv[4]) if len(sys.argv) > 4 else 1)
    folder.mkdir(parents=True, exist_ok=True)
    noise = numpy.random.default_rng(draw.randrange(2**32)).integers(0, 256, 300_000, numpy.uint8)
    data = numpy.concatenate([noise, noise // 16 * 17, noise // 64 + 100]).astype(numpy.uint8)
    (folder / "bytes").write_bytes(data.tobytes())
    cases = []
    for _ in range(count):
        width, height = draw.randint(1, 200), draw.randint(1, 200)
        op = draw.choice(OPS)
        factor = draw.uniform(-0.5, 0.5) if op == "hue" else draw.choice(
            [0, 1, draw.uniform(0, 1), draw.uniform(1, 3)])
        cases.append((op, factor, draw.randrange(len(data) - width * height * 3), width, height))
    (folder / "cases").write_text("".join(
        f"{OPS.index(op)} {factor!r} {offset} {width} {height}\n"
        for op, factor, offset, width, height in cases))
    subprocess.run([program, "[pillow_colours]"], check=True, stdout=subprocess.DEVNULL,
                   env={**os.environ, "PENSTOCK_COLOR_CASES": str(folder)})
    results = (folder / "results").read_bytes()
    at = differing = 0
    for op, factor, offset, width, height in cases:
        size = width * height * 3
        image = Image.frombytes("RGB", (width, height), data[offset:offset + size].tobytes())
        expected = changed(image, op, factor).tobytes()
        if results[at:at + size] != expected:
            differing += 1
            wrong = sum(a != b for a, b in zip(results[at:at + size], expected))
            print(f"{op} {factor}: {wrong} of {size} values differ")
        at += size
    if at != len(results):
        sys.exit(f"color_pillow: expected {at} bytes of results, found {len(results)}")
    turns = compare_turns(Image, program, folder, data, count, draw)
    print(f"Pillow {PIL.__version__}: {differing} of {count} images differ, {at} values; "
          f"{turns} of {count} turns")
    sys.exit(differing + turns != 0)


if __name__ == "__main__":
    main()
