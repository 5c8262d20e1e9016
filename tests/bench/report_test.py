# SPDX-License-Identifier: BSL-1.0
"""Tests bench/report.py on invented results, and the errors of the scripts next to it."""

import contextlib
import copy
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "bench"))
import report  # noqa: E402
from reporting import results as figures  # noqa: E402


def spread(value, apart=0.02):
    return {"median": value, "min": value * (1 - apart), "max": value * (1 + apart)}


def queue_bench():
    rows, goals = [], []
    for capacity in (16, 1024):
        for threads in (1, 2, 4, 8):
            shape = f"producers:{threads}/consumers:{threads}/capacity:{capacity}"
            for i, name in enumerate(("batch_queue", "boost_queue", "mutex_cv", "tbb_bounded")):
                speed = 1e7 / (1 + i / 50) / threads
                row = {"name": f"{name}/{shape}", "repetitions": 9}
                row.update(nanoseconds=spread(1e9 / speed), items_per_second=spread(speed))
                rows.append(row)
            goal = {"name": f"batch_queue/{shape}", "floor": f"boost_queue/{shape}"}
            goal.update(compares="speed", at_least=1, ratio=2.0, noisy=False, met=True)
            goals.append(goal)
    rows.append({"name": "moodycamel", "repetitions": 0, "skipped": "not installed | <here>"})
    return {"program": "batch_queue_bench", "rows": rows, "goals": goals}


def training():
    modes = [
        {"technique": name, "seconds": seconds, "seconds_of_runs": [seconds, seconds * 1.01]}
        for name, seconds in (("serial", 2.0), ("overlapped", 1.05), ("resident", 1.0))
    ]
    costs = {"bound": 200, "bound_by": "compute"}
    return {
        "data": {"name": "drawn digits"},
        "modes": modes,
        "options": {"epochs": 5},
        "batches_per_epoch": 938,
        "batch_microseconds": costs,
    }


def results():
    return {
        "date": "2026-01-02T03:04:05Z",
        "commit": "abc1234",
        "dirty": True,
        "command": "bash bench/run.sh",
        "machine": {"cpu": "A <fast> & wide CPU", "cores": 4, "governor": "performance"},
        "steps": [
            {"name": "compare", "ended": "failed: status 3", "seconds": 1, "command": "compare"}
        ],
        "programs": {
            "batch_queue_bench": queue_bench(),
            "mlp": training(),
        },
    }


def table_of(found):
    """Returns the table that report.py writes for some results."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "some.json"
        file.write_text(json.dumps(found))
        with contextlib.redirect_stdout(io.StringIO()):
            assert report.main([str(file)]) == 0
        return (Path(folder) / "some.md").read_text()


class Chart(unittest.TestCase):
    @unittest.skipUnless(report.charts, "there is no matplotlib")
    def test_the_page_shows_what_it_would_be_drawn_from(self):
        page = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
        file, chart = re.search(r"--loaders (\S+\.json)\s+(\S+\.svg)", page).groups()
        with tempfile.TemporaryDirectory() as folder:
            again = Path(folder) / "again.svg"
            self.assertEqual(report.main(["--loaders", str(ROOT / file), str(again)]), 0)
            texts = [
                re.findall(r"<text[^>]*>([^<]+)<", one.read_text(encoding="utf-8"))
                for one in (again, ROOT / chart)
            ]
        self.assertEqual(*texts)
        self.assertIn("penstock", texts[0])

    def test_without_matplotlib_there_is_a_word_about_it(self):
        with mock.patch.object(report, "charts", None):
            with contextlib.redirect_stderr(io.StringIO()) as said:
                path = str(ROOT / "absent.json")
                self.assertEqual(report.main(["--loaders", path, "some.svg"]), 1)
            self.assertIn("needs matplotlib", said.getvalue())


class Table(unittest.TestCase):
    def test_noisy_goals_are_marked(self):
        found = results()
        for goal in found["programs"]["batch_queue_bench"]["goals"]:
            goal["noisy"] = True
        table = table_of(found)
        self.assertIn("**met, noisy**", table)
        self.assertIn("8 of these verdicts are noisy", table)

    def test_it_says_what_was_run_and_where(self):
        table = table_of(results())
        for said in ("abc1234, with changes that are not committed", "governor performance"):
            self.assertIn(said, table)
        self.assertIn("`compare` failed: status 3.", table)
        self.assertIn("left out: not installed \\| <here>", table)

    def test_training_is_judged_like_the_rest(self):
        self.assertIn("an epoch of drawn digits", table_of(results()))
        self.assertIn(
            "| overlapped | resident | time | 1.050 | at most 1.02 | **missed** |",
            table_of(results()),
        )

    def test_goals_that_were_not_measured(self):
        found = results()
        goal = {"name": "feed/bytes:64", "floor": "memcpy/bytes:64", "at_most": 60}
        goals = [{**goal, "ratio": 12.5, "met": True}, {**goal, "ratio": None}]
        found["programs"] = {"transfer_bench": {"rows": [], "goals": goals}}
        table = table_of(found)
        self.assertIn("| 12.500 |", table)
        self.assertIn("| at most 60 | not measured |", table)
        self.assertIn("1 of 2 targets met, 0 missed, 1 not measured", table)

    def test_short_numbers(self):
        for value, said in ((1234567.0, "1,234,567"), (0.98765, "0.988"), (12.345, "12.35")):
            self.assertEqual(figures.number(value), said)
        self.assertEqual(figures.time_of(1.5e6), "1.50 ms")
        self.assertEqual(figures.rate_of(7.7e6), "7.70 M/s")


class Merging(unittest.TestCase):
    def merged(self, folder, steps, files):
        work = Path(folder) / "work"
        work.mkdir(exist_ok=True)
        (work / "steps.tsv").write_text(steps)
        for name, text in files.items():
            (work / name).write_text(text)
        known = {"began": "2026-01-02T03:04:05Z", "commit": "abc", "dirty": "null"}
        known.update(load_before="0.5", compiler="a compiler", command_line="bash bench/run.sh ")
        before = copy.copy(os.environ)
        said = io.StringIO()
        try:
            os.environ.update(known)
            with contextlib.redirect_stdout(said):
                self.assertEqual(report.main(["--merge", str(work), folder]), 0)
        finally:
            os.environ.clear()
            os.environ.update(before)
        return Path(said.getvalue().strip())

    def test_one_file_out_of_all_and_never_over_another_one(self):
        steps = "a\tpassed\t3\tprogram a\nb\tpassed\t4\tprogram b\nc\tskipped: no c\t0\tc\n"
        files = {"a.json": '{"rows": []}', "b.json": "{cut off"}
        with tempfile.TemporaryDirectory() as folder:
            first = self.merged(folder, steps, files)
            second = self.merged(folder, steps, files)
            self.assertNotEqual(first, second)
            self.assertRegex(first.name, r"^2026-01-02-[a-z0-9-]+-abc\.json$")
            found = json.loads(first.read_text())
            self.assertEqual(list(found["programs"]), ["a"])
            ended = {step["name"]: step["ended"] for step in found["steps"]}
            self.assertEqual((ended["a"], ended["c"]), ("passed", "skipped: no c"))
            self.assertTrue(ended["b"].startswith("failed: its JSON can't be read"))
            self.assertEqual(found["machine"]["load_before"], 0.5)


class Rejections(unittest.TestCase):
    def rejected(self, *command):
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        return done.returncode, done.stderr

    def test_report_rejects_what_is_no_result(self):
        program = [sys.executable, "bench/report.py"]
        self.assertEqual(self.rejected(*program)[0], 2)
        self.assertEqual(self.rejected(*program, "--nonsense")[0], 2)
        self.assertEqual(self.rejected(*program, "absent.json")[0], 1)
        with tempfile.TemporaryDirectory() as folder:
            for text in ("", "[]", "{}", '{"programs": 3}'):
                file = Path(folder) / "bad.json"
                file.write_text(text)
                status, said = self.rejected(*program, str(file))
                self.assertEqual(status, 1, text)
                self.assertIn("bad.json", said)
                self.assertEqual(len(said.splitlines()), 1)

    def test_run_rejects_unknown_words_before_it_does_anything(self):
        for words in (["--nonsense"], ["--only"], ["--only", "no_such_bench"], ["--out"]):
            status, said = self.rejected("bash", "bench/run.sh", *words)
            self.assertEqual(status, 2, words)
            self.assertIn("run.sh: ", said)

    def test_compile_cost_rejects_a_compiler_that_is_not_there(self):
        program = [sys.executable, "bench/compile_cost.py"]
        self.assertIn("not installed: no-such", self.rejected(*program, "--cxx", "no-such")[1])
        self.assertEqual(self.rejected(*program, "--repeat", "0")[0], 2)


if __name__ == "__main__":
    unittest.main()
