#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Checks the amount of text in each public header that nvcc must parse.

A source that includes only the header is preprocessed. The size is the number of characters without
spaces, minus the size of an empty source. nvcc parses the text three times: to split host and
device code, for the device, and for the host. For ten sources from tensor_view.hpp to cuda.hpp, the
size and nvcc's user time had a correlation of 0.93, with about 7 seconds per million characters.
Unlike a time, the size is the same on every machine with the same toolchain.

The test fails if a public header has no row in the table, or has grown by more than a tenth and by
more than 10,000 characters. Headers of missing libraries are skipped. Nothing is compared if the
versions of g++ or CUDA differ from the table."""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

GROWTH = 1.1
SLACK = 10000  # a twentieth of a second


def parsed_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("root", type=Path, help="the root of the repository")
    parser.add_argument("--nvcc", default="nvcc", help="the compiler (default: nvcc in the PATH)")
    parser.add_argument(
        "--table",
        type=Path,
        default=Path(__file__).with_name("nvcc_sizes.txt"),
        help="the table (default: nvcc_sizes.txt beside this script)",
    )
    parser.add_argument(
        "--include",
        action="append",
        default=[],
        metavar="DIR",
        help="one more include folder, for libraries of extensions; may be given again",
    )
    parser.add_argument(
        "--update", action="store_true", help="write the sizes of this machine to the table"
    )
    return parser.parse_args()


def output_of(command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def toolchain(nvcc):
    """Returns the versions that the sizes depend on."""
    cuda = re.search(r"release ([\d.]+)", output_of([nvcc, "--version"]))[1]
    compiler = os.environ.get("NVCC_CCBIN", "g++")
    name = "clang++" if "clang" in compiler else "g++"
    return f"{name} {output_of([compiler, '-dumpversion']).split('.')[0].strip()}, CUDA {cuda}"


def public_headers(include):
    for path in sorted(include.rglob("*")):
        name = path.relative_to(include).as_posix()
        if path.suffix in (".hpp", ".cuh") and not re.search(r"/(detail|support)/", name):
            yield name


def size_of(header, options, folder):
    """Returns the number of characters in a source that includes the header, or nothing if the
    header is None. Returns the name of the missing file if another library is not installed."""
    source = Path(folder) / f"{str(header).replace('/', '_')}.cu"
    source.write_text(f"#include <{header}>\n" if header else "\n")
    folders = [options.root / "include", *options.include]
    done = subprocess.run(
        [options.nvcc, "-std=c++20", "-E", "-Xcompiler=-P", *(f"-I{one}" for one in folders), source],
        capture_output=True,
        text=True,
    )
    if done.returncode == 0:
        return sum(len(word) for word in done.stdout.split())
    missing = re.search(r"fatal error: (\S+): No such file", done.stderr)
    if missing and not missing[1].startswith("penstock"):
        return missing[1]
    sys.exit(f"{header} cannot be preprocessed:\n{done.stderr}")


def read_table(path):
    """Returns the toolchain and the sizes in a table. A size is None if the header was skipped."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    rows = {}
    for line in lines[1:]:
        header, size = line.split()
        rows[header] = None if size == "-" else int(size)
    return lines[0], rows


def write_table(path, versions, sizes):
    kept = read_table(path)[1] if path.exists() else {}
    with path.open("w") as table:
        table.write(
            "# Characters without spaces that each public header adds to the text that nvcc parses.\n"
            "# A minus: not measured. Written by python3 tests/headers/nvcc_sizes.py . --update\n"
        )
        table.write(versions + "\n")
        for header, size in sizes.items():
            if isinstance(size, str):
                size = kept.get(header) or "-"
            table.write(f"{header} {size}\n")


def problems_of(sizes, rows):
    for header, size in sizes.items():
        if header not in rows:
            yield f"{header} has no row"
        elif isinstance(size, int) and rows[header] is not None:
            before = rows[header]
            if size > max(GROWTH * before, before + SLACK):
                growth = 100 * (size / max(1, before) - 1)
                yield f"{header} has grown by {growth:.0f} %, from {before} to {size} characters"
    for header in rows:
        if header not in sizes:
            yield f"{header} has a row, and there is no such header"


def main():
    options = parsed_arguments()
    versions = toolchain(options.nvcc)
    if not options.update:
        expected, rows = read_table(options.table)
        if versions != expected:
            print(f"skipped: the table is of {expected}, and this is {versions}")
            return 0
    headers = list(public_headers(options.root / "include"))
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        empty = size_of(None, options, folder)
        found = pool.map(lambda header: size_of(header, options, folder), headers)
        sizes = {
            header: size if isinstance(size, str) else size - empty
            for header, size in zip(headers, found)
        }
    skipped = {header: size for header, size in sizes.items() if isinstance(size, str)}
    for header, missing in skipped.items():
        print(f"left out: {header} needs {missing}")
    if options.update:
        write_table(options.table, versions, sizes)
        print(f"{len(sizes)} headers, of {versions}")
        return 0
    problems = list(problems_of(sizes, rows))
    for problem in problems:
        print(problem)
    if problems:
        print(
            "Remove an include, or move it to the header that needs it. If the cost is worth it:\n"
            "python3 tests/headers/nvcc_sizes.py . --update"
        )
        return 1
    print(f"{len(sizes) - len(skipped)} headers are within a tenth of their rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
