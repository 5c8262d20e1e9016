# SPDX-License-Identifier: BSL-1.0
"""Tests bench/report.py on invented results, and the errors of the scripts next to it."""

import contextlib
import copy
import io
import itertools
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

if report.charts:
    from matplotlib.text import Text


def spread(value, apart=0.02):
    return {"median": value, "min": value * (1 - apart), "max": value * (1 + apart)}


def queue_bench():
    rows, goals = [], []
    for capacity in (16, 1024):
        for threads in (1, 2, 4, 8):
            shape = f"producers:{threads}/consumers:{threads}/capacity:{capacity}"
            for i, name in enumerate(("batch_queue", "boost_queue", "mutex_cv", "tbb_bounded")):
                speed = 1e7 / (1 + i / 50) / threads  # close together, so labels must move
                row = {"name": f"{name}/{shape}", "repetitions": 9}
                row.update(nanoseconds=spread(1e9 / speed), items_per_second=spread(speed))
                rows.append(row)
            goal = {"name": f"batch_queue/{shape}", "floor": f"boost_queue/{shape}"}
            goal.update(compares="speed", at_least=1, ratio=2.0, noisy=False, met=True)
            goals.append(goal)
    rows.append({"name": "moodycamel", "repetitions": 0, "skipped": "not installed | <here>"})
    return {"program": "batch_queue_bench", "rows": rows, "goals": goals}


def overlap_bench():
    rows = []
    for load in (1, 3, 10):
        for copied in (1, 3, 10):
            for computed in (1, 3, 10):
                times = {"load_us": load, "copy_us": copied, "compute_us": computed}
                times["bound_us"] = max(times.values())
                times["achieved_us"] = times["bound_us"] * 1.01
                times["serial_us"] = load + copied + computed
                counters = {key: spread(100.0 * value, 0) for key, value in times.items()}
                name = f"overlapped/load:{load}/copy:{copied}/compute:{computed}/workers:1"
                row = {"name": name, "repetitions": 9, "counters": counters}
                rows.append({**row, "nanoseconds": spread(1e5 * times["achieved_us"])})
    return {"program": "overlap_bench", "rows": rows, "goals": []}


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


def compare():
    def row(name, speed):
        counters = {"cpu_seconds": spread(3.0), "peak_mib": spread(512.0)}
        return {"name": name, "items_per_second": spread(speed), "counters": counters}

    rows = [row("penstock/workers:1", 7.7e6), row("a_loader_with_a_long_name/workers:12", 4e4)]
    return {"program": "compare", "rows": rows, "goals": []}


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
            "overlap_bench": overlap_bench(),
            "mlp": training(),
            "compare": compare(),
        },
    }


class Written:
    """The table, the charts and the messages of report.py for some results."""

    def __init__(self, found, drawn_by=None):
        drawn_by = mock.patch.object(report, "charts", drawn_by)
        with drawn_by, tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "some.json"
            file.write_text(json.dumps(found))
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                self.status = report.main([str(file)])
            self.said = said.getvalue()
            self.table = (Path(folder) / "some.md").read_text()
            drawn = Path(folder).glob("some.charts/*.svg")
            self.charts = {path.stem: path.read_text() for path in drawn}


def texts_of(figure):
    return [text for text in figure.findobj(Text) if text.get_text().strip()]


@unittest.skipUnless(report.charts, "there is no matplotlib")
class Charts(unittest.TestCase):
    def ratios_of(self, goals):
        return report.charts.ratios("some", {"rows": [], "goals": goals})

    def said_by(self, figure):
        return " ".join(text.get_text() for text in texts_of(figure))

    def test_each_chart_is_drawn_from_rows_of_its_program(self):
        def drawn_of(found):
            found = report.charts.charts_of(figures.programs_of(found), 4)
            return {name for name, figure in found if figure}

        ratios = {f"ratios-{name}" for name in ("batch_queue_bench", "mlp")}
        self.assertEqual(drawn_of(results()), {*ratios, "queue", "overlap", "loaders"})
        for program, chart in (
            ("batch_queue_bench", "queue"),
            ("overlap_bench", "overlap"),
            ("compare", "loaders"),
        ):
            less = results()
            del less["programs"][program]
            self.assertEqual(drawn_of(results()) - drawn_of(less) - ratios, {chart})

    def test_results_without_rows_make_no_chart(self):
        found = results()
        found["programs"] = {}
        written = Written(found, report.charts)
        self.assertEqual((written.status, written.charts), (0, {}))
        self.assertEqual(written.said.count("its rows were not measured in this run"), 4)

    def test_equal_results_make_equal_files(self):
        found = results()
        del found["programs"]["overlap_bench"], found["programs"]["batch_queue_bench"]
        once = Written(found, report.charts).charts
        self.assertEqual(set(once), {"ratios-mlp", "loaders"})
        self.assertEqual(once, Written(found, report.charts).charts)

    def test_texts_lie_inside_and_apart(self):
        programs = figures.programs_of(results())
        drawn = {name: figure for name, figure in report.charts.charts_of(programs, 4)}
        for name, figure in drawn.items():
            with tempfile.TemporaryDirectory() as folder:
                report.charts.save(figure, Path(folder) / "some.png", "a place")
            hidden = set()
            for axis in itertools.chain(*((one.xaxis, one.yaxis) for one in figure.axes)):
                low, high = sorted(axis.get_view_interval())
                ticks = axis.get_major_ticks()
                hidden |= {tick.label1 for tick in ticks if not low <= tick.get_loc() <= high}
            visible = [one for one in texts_of(figure) if one.get_visible() and one not in hidden]
            boxes = [(text.get_window_extent(), text.get_text()) for text in visible]
            boxes = [(box, text) for box, text in boxes if box.width > 0]
            self.assertGreater(len(boxes), 5)
            width, height = figure.bbox.width, figure.bbox.height
            for box, text in boxes:
                inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height
                self.assertTrue(inside, f"{name}: {text} is cut off")
            for i, (one, text) in enumerate(boxes):
                for other, other_text in boxes[i + 1 :]:
                    apart = one.x1 <= other.x0 or other.x1 <= one.x0
                    apart = apart or one.y1 <= other.y0 or other.y1 <= one.y0
                    self.assertTrue(apart, f"{name}: {text} and {other_text} overlap")

    def test_a_bar_reaches_from_the_floor_to_its_ratio(self):
        goal = {"name": "a", "floor": "b", "compares": "speed", "at_least": 1, "met": True}
        for ratio, end in ((4, 4), (0.5, 0.5), (500, 16), (0.001, 0.125), (0, 0.125)):
            bar = self.ratios_of([{**goal, "ratio": ratio}]).axes[0].patches[0]
            self.assertAlmostEqual(bar.get_x() + bar.get_width(), end)

    def test_ratios_beyond_the_axis_are_said(self):
        goals = []
        for ratio, bound in ((0, 1), (0.001, 2), (500, 50)):
            goal = {"name": f"of/a:{ratio}", "floor": f"of/a:{bound}", "compares": "speed"}
            goals.append({**goal, "at_least": bound, "ratio": ratio, "met": ratio > 1})
        texts = self.said_by(self.ratios_of(goals))
        for said in ("0x missed", "< 0.01x missed", "500x met", "of, a 500\nover of, a 50"):
            self.assertIn(said, texts)

    def test_the_worst_of_the_shapes_is_the_bar(self):
        goals = queue_bench()["goals"]
        goals[3].update(ratio=0.5, met=False)
        figure = self.ratios_of(goals)
        self.assertIn("over boost_queue, worst of 8, 1 missed", self.said_by(figure))
        self.assertIn("0.500x missed", self.said_by(figure))
        bar = figure.axes[0].patches[0]
        self.assertAlmostEqual(bar.get_x() + bar.get_width(), 0.5)

    def test_noisy_goals_are_pale(self):
        goals = queue_bench()["goals"]
        self.assertNotIn("noisy\n", self.said_by(self.ratios_of(goals)))
        self.assertEqual(self.ratios_of(goals).axes[0].patches[0].get_alpha(), 1)
        for goal in goals:
            goal["noisy"] = True
        self.assertIn("met, noisy", self.said_by(self.ratios_of(goals)))
        self.assertLess(self.ratios_of(goals).axes[0].patches[0].get_alpha(), 1)

    def test_the_page_shows_what_it_would_be_drawn_from(self):
        page = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
        file, chart = re.search(r"--loaders (\S+\.json) (?:\\\s+)?(\S+\.svg)", page).groups()
        with tempfile.TemporaryDirectory() as folder:
            again = Path(folder) / "again.svg"
            self.assertEqual(report.main(["--loaders", str(ROOT / file), str(again)]), 0)
            texts = [
                re.findall(r"<text[^>]*>([^<]+)<", one.read_text(encoding="utf-8"))
                for one in (again, ROOT / chart)
            ]
        self.assertEqual(*texts)
        self.assertIn("penstock", texts[0])


class WithoutMatplotlib(unittest.TestCase):
    def test_there_is_a_table_and_a_word_about_charts(self):
        written = Written(results())
        self.assertEqual((written.status, written.charts), (0, {}))
        self.assertIn("no charts: they need matplotlib", written.said)
        self.assertIn("| overlapped | resident | time |", written.table)
        with mock.patch.object(report, "charts", None):
            with contextlib.redirect_stderr(io.StringIO()) as said:
                self.assertEqual(report.main(["--loaders", "some.json", "some.svg"]), 1)
            self.assertIn("needs matplotlib", said.getvalue())


class Table(unittest.TestCase):
    def test_noisy_goals_are_marked(self):
        found = results()
        for goal in found["programs"]["batch_queue_bench"]["goals"]:
            goal["noisy"] = True
        table = Written(found).table
        self.assertIn("**met, noisy**", table)
        self.assertIn("8 of these verdicts are noisy", table)

    def test_it_says_what_was_run_and_where(self):
        table = Written(results()).table
        for said in ("abc1234, with changes that are not committed", "governor performance"):
            self.assertIn(said, table)
        self.assertIn("`compare` failed: status 3.", table)
        self.assertIn("left out: not installed \\| <here>", table)

    def test_training_is_judged_like_the_rest(self):
        self.assertIn("an epoch of drawn digits", Written(results()).table)
        self.assertIn(
            "| overlapped | resident | time | 1.050 | at most 1.02 | **missed** |",
            Written(results()).table,
        )

    def test_goals_that_were_not_measured_or_are_differences(self):
        found = results()
        found["programs"] = {"instructions": {"program": "instructions"}}
        found["programs"]["instructions"]["rows"] = [
            {"name": "worker/batch:64", "instructions_per_batch": 640, "threads": {"worker": 600}}
        ]
        goal = {"name": "worker/batch:64", "floor": "plain/batch:64", "at_most": 60}
        found["programs"]["instructions"]["goals"] = [
            {**goal, "difference": 12.5, "met": True},
            {**goal, "ratio": None},
        ]
        table = Written(found).table
        self.assertIn("| 12.5", table)
        self.assertIn("| at most 60 | not measured |", table)
        self.assertIn("instructions per batch 640; worker 600", table)
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
