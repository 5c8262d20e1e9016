# SPDX-License-Identifier: BSL-1.0
"""Runs of penstock_mlp_tcp, started as a launcher does that sets plain variables."""

import os
import socket
import subprocess
from types import SimpleNamespace

from runs import TIMEOUT


def free_port():
    with socket.socket() as asked:
        asked.bind(("", 0))
        return asked.getsockname()[1]


def variables(rank, size, port):
    here = {name: value for name, value in os.environ.items() if "TORCHELASTIC" not in name}
    return here | {
        "RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }


class Program:
    """The program, with the options that all of its runs have."""

    def __init__(self, path, *options):
        self.command = [str(path), *map(str, options)]

    def run(self, ranks, *options):
        return self.run_apart([options] * ranks)

    def run_apart(self, options_of_ranks, started=None):
        """One world, each rank with options of its own; `started` has the ranks that are started,
        all by default. Another process may take the port between asking for it and using it."""
        for _ in range(3):
            ran = self.run_once(options_of_ranks, started)
            if "can't listen on it" not in ran.stderr:
                break
        return ran

    def run_once(self, options_of_ranks, started):
        size, port = len(options_of_ranks), free_port()
        ranks = {}
        for rank in range(size) if started is None else started:
            ranks[rank] = subprocess.Popen(
                [*self.command, *map(str, options_of_ranks[rank])], text=True,
                env=variables(rank, size, port), stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )
        said = {}
        try:
            for rank, process in ranks.items():
                said[rank] = process.communicate(timeout=TIMEOUT)
        finally:
            for process in ranks.values():
                process.kill()
        ended = {rank: process.returncode for rank, process in ranks.items()}
        return SimpleNamespace(
            args=self.command, returncode=max(map(abs, ended.values())), ended=ended,
            stdout="".join(out for out, _ in said.values()),
            stderr="".join(err for _, err in said.values()),
            errors={rank: err for rank, (_, err) in said.items()},
        )
