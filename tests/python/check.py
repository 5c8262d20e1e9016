# SPDX-License-Identifier: BSL-1.0
"""Tests the installed module of examples/python: the arrays that a Python loop receives and may
keep, the errors, and the program of docs/python.md. Uses numpy, and PyTorch and JAX if they are
installed."""

import importlib.util
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

import numpy as np
import patterns


def loader(samples=100, batch_size=4, **options):
    return patterns.Loader(samples=samples, batch_size=batch_size, **options)


def answer(disk):
    """Unblocks reads that wait for this pipe, if there are any."""
    try:
        os.close(os.open(disk, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:  # no read is waiting
        pass


def expected(labels):
    """Returns the expected images of these samples."""
    pixels = np.arange(28 * 28).reshape(1, 28, 28)
    return ((labels.reshape(-1, 1, 1) + pixels) % 256).astype(np.uint8)


class Values(unittest.TestCase):
    def test_every_sample_once_and_the_same_for_any_workers(self):
        orders = []
        for workers in (0, 1, 3):
            order = []
            for image, label in loader(workers=workers, seed=5).epoch(2):
                labels = np.from_dlpack(label)
                images = np.from_dlpack(image)
                self.assertEqual((images.shape, images.dtype), ((4, 28, 28), np.uint8))
                np.testing.assert_array_equal(images, expected(labels))
                order += labels.tolist()
            self.assertEqual(sorted(order), list(range(100)))
            orders.append(order)
        self.assertEqual(orders[0], orders[1])
        self.assertEqual(orders[0], orders[2])
        self.assertEqual(len(loader(samples=101)), 26)

    def test_an_epoch_goes_on_in_the_middle(self):
        def labels(workers, **start):
            epoch = loader(seed=5, workers=workers).epoch(2, **start)
            return [np.from_dlpack(label).tolist() for _, label in epoch]

        self.assertEqual(labels(3, first=7), labels(1)[7:])

    def test_an_array_that_is_kept_is_not_refilled(self):
        batches = iter(loader(prefetch=3).epoch(0))
        image, label = next(batches)
        image = np.from_dlpack(image)
        label = np.from_dlpack(label)
        for _ in range(20):
            next(batches)
        image = image.astype(np.float32) / 255
        np.testing.assert_array_equal(image, expected(label).astype(np.float32) / 255)

    def test_arrays_outlive_epoch_and_loader(self):
        image, label = (np.from_dlpack(field) for field in next(loader().epoch(0)))
        np.testing.assert_array_equal(image, expected(label))

    def test_arrays_may_go_on_another_thread(self):
        kept = []
        for image, label in loader(prefetch=3).epoch(0):
            kept.append((np.from_dlpack(image), label))
            if len(kept) == 3:
                thread = threading.Thread(target=kept.clear)
                thread.start()
                thread.join()

    @unittest.skipUnless(importlib.util.find_spec("torch"), "there is no PyTorch")
    def test_pytorch(self):
        import torch

        batches = iter(loader(prefetch=3).epoch(0))
        x, label = (torch.from_dlpack(field) for field in next(batches))
        for _ in range(20):
            next(batches)
        x = x.float() / 255
        np.testing.assert_array_equal(x.numpy(), expected(label.numpy()).astype(np.float32) / 255)

    @unittest.skipUnless(importlib.util.find_spec("jax"), "there is no JAX")
    def test_jax(self):
        import jax

        batches = iter(loader(prefetch=3).epoch(0))
        x, label = (jax.dlpack.from_dlpack(field) for field in next(batches))
        for _ in range(20):
            next(batches)
        np.testing.assert_array_equal(np.asarray(x), expected(np.asarray(label)))


class Page(unittest.TestCase):
    def test_programs_of_the_page_print_what_it_says(self):
        page = Path(__file__).resolve().parents[2] / "docs/python.md"
        block = r"^```python program\n(.*?)^```\n+```text\n(.*?)^```$"
        programs = re.findall(block, page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
        self.assertNotEqual(programs, [])
        for program, output in programs:
            ran = subprocess.run(
                [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
            )
            self.assertEqual((ran.returncode, ran.stdout, ran.stderr), (0, output, ""))


class Limits(unittest.TestCase):
    def test_who_keeps_every_slot_is_told(self):
        kept = []
        with self.assertRaisesRegex(patterns.LeasesExhausted, "host slots are held") as told:
            for image, _ in loader(prefetch=2).epoch(0):
                kept.append(np.from_dlpack(image))
                del image, _
        self.assertIsInstance(told.exception, patterns.Error)
        self.assertEqual(len(kept), 3)

    def test_nothing_is_left_of_many_epochs(self):
        source = loader(batch_size=10, prefetch=2)

        def run(epochs):
            for epoch in range(epochs):
                for image, label in source.epoch(epoch):
                    image.__dlpack__()  # creates a capsule and drops it immediately
                    self.assertEqual(np.from_dlpack(image)[0, 0, 0], np.from_dlpack(label)[0])
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

        first = run(100)
        self.assertLess(run(400) - first, 1024)  # in KiB

    def test_a_loop_may_be_left(self):
        source = loader()
        for epoch in range(20):
            for _ in source.epoch(epoch):
                break
        self.assertEqual(sum(1 for _ in source.epoch(0)), 25)

    def test_a_new_epoch_ends_the_one_before(self):
        source = loader()
        old = source.epoch(0)
        next(old)
        new = source.epoch(1)
        self.assertEqual(list(old), [])
        next(new)


class Protocol(unittest.TestCase):
    def field(self):
        return next(loader().epoch(0))[0]

    def test_capsules_are_named_as_the_consumer_s_version_has_them(self):
        field = self.field()
        self.assertIn('"dltensor"', repr(field.__dlpack__()))
        self.assertIn('"dltensor"', repr(field.__dlpack__(max_version=(0, 8))))
        self.assertIn('"dltensor_versioned"', repr(field.__dlpack__(max_version=(1, 0))))
        self.assertEqual(field.__dlpack_device__(), (1, 0))
        field.__dlpack__(stream=None, max_version=(1, 3), dl_device=(1, 0), copy=False)

    def test_what_can_t_be_done_is_rejected(self):
        field = self.field()
        with self.assertRaisesRegex(BufferError, "makes no copy"):
            field.__dlpack__(copy=True)
        with self.assertRaisesRegex(BufferError, "no other device"):
            field.__dlpack__(dl_device=(2, 0))
        with self.assertRaisesRegex(ValueError, "has no stream"):
            field.__dlpack__(stream=1)


class Errors(unittest.TestCase):
    def test_an_exception_keeps_type_and_text(self):
        source = loader(bad=7)
        with self.assertRaisesRegex(IndexError, "^pattern 7 is bad$"):
            for _ in source.epoch(0):
                pass
        next(source.epoch(0))  # the loader remains usable

    def test_a_bad_option_is_named(self):
        with self.assertRaisesRegex(patterns.Error, "batch_size: must be at least 1"):
            loader(batch_size=0)

    def test_a_second_thread_is_rejected(self):
        with tempfile.TemporaryDirectory() as folder:
            disk = os.path.join(folder, "disk")
            os.mkfifo(disk)
            source = loader(samples=4, disk=disk)
            epoch = source.epoch(0)
            rejections = []

            def use():
                try:
                    next(epoch)
                except RuntimeError as rejection:
                    rejections.append(str(rejection))

            threads = [threading.Thread(target=use) for _ in range(2)]
            for thread in threads:
                thread.start()
            while not rejections:  # until a thread fails while the other waits for the pipe
                threading.Event().wait(0.01)
            while any(thread.is_alive() for thread in threads):
                answer(disk)
            self.assertEqual(rejections, ["two threads use one loader"])


class Interrupt(unittest.TestCase):
    WAITS = """
import patterns, sys
source = patterns.Loader(samples=4, batch_size=4, disk=sys.argv[1])
try:
    next(source.epoch(0))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""

    def test_ctrl_c_ends_a_wait(self):
        with tempfile.TemporaryDirectory() as folder:
            disk = os.path.join(folder, "disk")
            os.mkfifo(disk)
            child = subprocess.Popen(
                [sys.executable, "-c", self.WAITS, disk], stdout=subprocess.PIPE, text=True
            )
            limit = threading.Timer(120, child.kill)
            limit.start()
            with open(disk, "w"):  # returns once a worker has opened the pipe and waits
                child.send_signal(signal.SIGINT)
                told = child.stdout.readline()  # printed before the pipe delivers data
            self.assertEqual(told, "interrupted\n")
            while child.poll() is None:
                answer(disk)
            child.stdout.close()
            limit.cancel()
            self.assertEqual(child.returncode, 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
