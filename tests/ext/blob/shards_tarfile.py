#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Compares tar shards with Python's tarfile: shards_tarfile.py PROGRAM FOLDER.

tarfile, and GNU tar if it is installed, write archives in each of their formats. The blob tests
list the archives, both from the tar headers and from the index files that they write. The script
compares the samples and the index files with tarfile's results."""
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tarfile
from io import BytesIO

SIZES = [0, 1, 511, 512, 513, 1024, 70000]


def files_of(draw, count, stem):
    """Returns names and contents: images, most of them with labels, and files that belong to no
    sample."""
    for i in range(count):
        key = f"{stem}{i:05d}"
        yield key + ".jpg", draw.randbytes(draw.choice(SIZES))
        if draw.random() < 0.9:
            yield key + ".cls", str(draw.randrange(-5, 1000)).encode() + draw.choice([b"", b"\n"])
        if draw.random() < 0.2:
            yield key + ".seg.png", b"other"
        if draw.random() < 0.1:
            yield draw.choice(["README", stem[:stem.rfind("/") + 1] + ".hidden.jpg"]), b"none"


def write_archives(draw, folder):
    """Writes archives and returns them by name."""
    formats = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
    for name, form in formats.items():
        stems = ["", "d/", "./e/", "d" * 99 + "/" + "e" * 20]
        if name != "ustar":
            stems += ["d" * 150 + "/" + "f" * 90, "\u00e4\u20ac/"]
        with tarfile.open(folder / f"python-{name}.tar", "w", format=form) as archive:
            for stem in stems:
                for path, content in files_of(draw, 60, stem):
                    info = tarfile.TarInfo(path)
                    info.size = len(content)
                    info.mtime = draw.choice([0, 1.5 if name == "pax" else 1])
                    archive.addfile(info, BytesIO(content))
                archive.addfile(directory(stem))
    if not shutil.which("tar"):
        return
    for tree, stem in [("brief", "n/"), ("long", "n/" + "g" * 90 + "/" + "h" * 20 + "/")]:
        for path, content in files_of(draw, 200, stem):
            (folder / tree / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / tree / path).write_bytes(content)
    for name in ["v7", "oldgnu", "gnu", "ustar", "pax"]:
        tree = folder / ("brief" if name == "v7" else "long")
        subprocess.run(["tar", "--sort=name", f"--format={name}", "-C", tree, "-cf",
                        folder / f"tar-{name}.tar", "n"], check=True)


def directory(stem):
    info = tarfile.TarInfo(stem + "folder.d")
    info.type = tarfile.DIRTYPE
    return info


def split(path):
    """Splits a path as WebDataset does, or as NVIDIA's wds2idx does if there is no dot."""
    dot = path.find(".", path.rfind("/") + 1)
    return (path[:dot], path[dot + 1:]) if dot >= 0 else (path[:-1], path)


def by_tarfile(path):
    """Returns the samples as lines and the text of the index, computed with tarfile."""
    samples = []
    with tarfile.open(path) as archive:
        for member in archive:
            key, extension = split(member.name)
            if not member.isreg() or not key or key.endswith("/"):
                continue
            if not samples or samples[-1][0] != key:
                samples.append((key, []))
            samples[-1][1].append((extension, member))
        lines = []
        for key, files in samples:
            found = dict(files)
            if "jpg" in found and "cls" in found:
                content = archive.extractfile(found["jpg"]).read()
                label = int(archive.extractfile(found["cls"]).read())
                lines.append(f"{key}.jpg {len(content)} {sum(content)} {label}")
    index = f"v1.2 {len(samples)}\n" + "".join(
        " ".join(f"{extension} {one.offset_data} {one.size} {one.name}" for extension, one in files)
        + "\n" for _, files in samples)
    return lines, index


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_archives(random.Random(7), folder)
    compared = differing = 0
    for path in sorted(folder.glob("*.tar")):
        lines, index = by_tarfile(path)
        for how in ["headers", "index"]:  # the first run writes the index
            subprocess.run([program, "[tarfile]"], check=True, stdout=subprocess.DEVNULL,
                           env={**os.environ, "PENSTOCK_SHARD": str(path)})
            found = path.with_suffix(".list").read_text(encoding="utf-8").splitlines()
            compared += len(lines)
            if found != [how] + lines:
                differing += 1
                print(f"{path.name} by {how}: other samples")
        if path.with_suffix(".idx").read_text(encoding="utf-8") != index:
            differing += 1
            print(f"{path.name}: another index")
    print(f"{compared} samples compared")
    sys.exit(differing != 0)


if __name__ == "__main__":
    main()
