# SPDX-License-Identifier: BSL-1.0
"""Tests the rows and the result texts of bench/compare/storage, and penstock on small files."""

import dataclasses
import json
import os
import sys
import tempfile
import types
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "bench" / "compare" / "storage"))
import dlio_peer  # noqa: E402
import storage  # noqa: E402
import workloads  # noqa: E402

PEER = os.environ.get("STORAGE_PEER")


def lacks(*modules):
    def is_missing(name):
        try:
            __import__(name)
        except ImportError:
            return True

    return any(map(is_missing, modules))


def run(utilisation, speed=100.0, cpu=1.0, samples=1000, verdict=""):
    return {
        "utilisation": utilisation,
        "samples": samples,
        "samples_per_second": speed,
        "cpu_seconds": cpu,
        "verdict": verdict,
    }


class Rows(unittest.TestCase):
    def test_ask_for_what_the_benchmark_does(self):
        asked = {"retinanet": (504.7, 163), "unet3d": (43.2, 6335), "dlrm": (43.69e6, 6991), "flux": (35.6, 77)}
        for name, (samples, megabytes) in asked.items():
            row = workloads.WORKLOADS[name]
            self.assertAlmostEqual(row.samples_per_second / samples, 1, 2, name)
            self.assertAlmostEqual(row.demand / megabytes, 1, 2, name)

    def test_images_are_of_the_same_files(self):
        self.assertEqual(
            workloads.paths("x", "retinanet_decoded"), workloads.paths("x", "retinanet")[:96]
        )


class Lines(unittest.TestCase):
    def said(self, name, **seen):
        return "\n".join(storage.lines(name, {side.replace("_", " "): runs for side, runs in seen.items()}))

    def test_a_busy_accelerator(self):
        self.assertIn("aim 0.99: met", self.said("flux", penstock=[run(0.995)], no_step=[run(0)]))

    def test_cores_that_do_not_suffice(self):
        # A batch of 7 takes 0.7 s on one core, and a step takes 0.162 s.
        slow = run(0, cpu=100, samples=1000)
        text = self.said("unet3d", penstock=[run(0.4, verdict="CPU-bound: all cores")], no_step=[slow])
        self.assertIn("a core carries 0.231 of one accelerator, which takes 4.32 cores", text)
        self.assertIn("CPU-bound: all cores", text)
        self.assertIn("2 cores do not suffice", text)

    def test_cores_that_would_suffice(self):
        text = self.said("unet3d", penstock=[run(0.9)], no_step=[run(0, cpu=1, samples=1000)])
        self.assertIn("aim 0.99: MISSED", text)

    def test_the_floor_is_compared_round_by_round(self):
        seen = {"penstock": [run(1)], "no_step": [run(0, 94), run(0, 10)], "read_loop": [run(0, 100), run(0, 10)]}
        self.assertIn("penstock over it 0.97, aim 0.95: met", self.said("unet3d", **seen))
        seen["no_step"][1]["samples_per_second"] = 9
        self.assertIn("aim 0.95: MISSED", self.said("unet3d", **seen))


@unittest.skipIf(lacks("numpy", "PIL", "pyarrow"), "no numpy, Pillow or pyarrow")
class Files(unittest.TestCase):
    """Runs each program of penstock on two files of each row."""

    SMALL = {
        "retinanet": {"sample": 200000, "files": 2, "batch": 2},
        "retinanet_decoded": {"sample": 200000, "files": 2, "batch": 2},
        "unet3d": {"sample": 100000, "files": 2, "batch": 2, "cold_files": 6},
        **dict.fromkeys(
            (name for name in workloads.WORKLOADS if name.startswith("dlrm")),
            {"files": 2, "samples_a_file": 6144, "batch": 4096},
        ),
        "flux": {"sample": 1000, "files": 2, "samples_a_file": 8, "batch": 4},
    }

    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = made.name
        rows = {
            name: dataclasses.replace(workloads.WORKLOADS[name], epochs=2, step=1e-6, **small)
            for name, small in self.SMALL.items()
        }
        patches = [mock.patch.dict(workloads.WORKLOADS, rows), mock.patch.object(workloads, "UNET3D_SPREAD", 50000)]
        for patch in patches:
            patch.start()
            self.addCleanup(patch.stop)
        for name in rows:
            workloads.make(self.folder, name, is_cold=True)

    def test_sizes(self):
        for path in workloads.paths(self.folder, "retinanet"):
            self.assertEqual(path.stat().st_size, 200000)
        sizes = {path.stat().st_size for path in workloads.paths(self.folder, "unet3d")}
        self.assertEqual(len(sizes), 2)
        import pyarrow.parquet as parquet

        codecs = {"lz4": "LZ4", "snappy": "SNAPPY"}
        for name in self.SMALL:
            if not name.startswith("dlrm"):
                continue
            _, *words = name.split("_")
            for path in workloads.paths(self.folder, name):
                file = parquet.ParquetFile(path)
                column = file.metadata.row_group(0).column(0)
                codec = next((codecs[word] for word in words if word in codecs), "UNCOMPRESSED")
                self.assertEqual(column.compression, codec)
                self.assertEqual(column.has_dictionary_page, "dictionary" in words)
                different = len(set(file.read(["c0"])["c0"].to_pylist()))
                self.assertEqual(different < 1001, "1000" in words)

    def test_dlio_reads_from_the_first_column_to_the_last(self):
        import pyarrow.parquet as parquet

        def begin_of(column):
            return column.dictionary_page_offset or column.data_page_offset

        for name in ("dlrm", "dlrm_dictionary", "dlrm_types"):
            names = workloads.read_columns(name)
            file = parquet.ParquetFile(workloads.paths(self.folder, name)[0])
            columns = [file.metadata.row_group(0).column(place) for place in range(200)]
            first, last = (int(which[1:]) for which in (names[0], names[-1]))
            asked = types.SimpleNamespace(_columns=names)
            begin, size, whole = dlio_peer.byte_range(asked, file, 0)
            self.assertEqual(begin, begin_of(columns[first]))
            self.assertEqual(begin + size, begin_of(columns[last + 1]))
            self.assertEqual(whole, sum(column.total_compressed_size for column in columns))

    def test_dlio_has_waited_for_what_a_step_took_longer(self):
        out = Path(self.folder)
        # Half of the sample rate that the steps need. The figure of DLIO differs.
        metric = {"train_throughput_mean_samples_per_second": 20, "train_au_mean_percentage": 80}
        (out / "summary.json").write_text(json.dumps({"metric": metric}))
        (out / "0_output.json").write_text(json.dumps({"1": {"proc": {"block1": 5 * [0.1]}}}))
        row = dataclasses.replace(workloads.WORKLOADS["unet3d"], batch=4, step=0.1)
        self.assertEqual(
            dlio_peer.found(out, row), {"utilisation": 0.5, "samples": 16, "samples_per_second": 20}
        )

    def test_dlio_has_all_epochs_as_one(self):
        files = workloads.paths(self.folder, "retinanet")
        dlio_peer.files_of(Path(self.folder, "dlio"), workloads.WORKLOADS["retinanet"], files, 3)
        found = sorted(Path(self.folder, "dlio", "train").iterdir())
        self.assertEqual([path.resolve() for path in found], 3 * [path.resolve() for path in files])

    def test_dlio_stands_beside_all_that_is_not_decoded(self):
        for name in workloads.WORKLOADS:
            for is_cold in (False, True):
                self.assertEqual("DLIO" in storage.sides_of(name, is_cold), name != "retinanet_decoded")

    @unittest.skipUnless(PEER, "penstock's side is not built")
    def test_our_side(self):
        for is_cold in (False, True):
            chosen = types.SimpleNamespace(
                cold=is_cold, folder=self.folder, ours=PEER, python=sys.executable, workers=2
            )
            for name, row in workloads.WORKLOADS.items():
                samples = len(workloads.paths(self.folder, name, is_cold)) * row.samples_a_file
                for side in storage.sides_of(name, is_cold):
                    if side in ("DataLoader", "DLIO"):
                        continue
                    with self.subTest(row=name, side=side, is_cold=is_cold):
                        expected = samples * (1 if is_cold else 2)
                        if is_cold and side == "penstock":
                            expected -= row.batch
                        self.assertEqual(storage.measured(side, chosen, name)["samples"], expected)


if __name__ == "__main__":
    unittest.main()
