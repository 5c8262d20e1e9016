# SPDX-License-Identifier: BSL-1.0
"""Runs of penstock_mlp_mpi under mpirun, and what their logs say."""

import os
import shutil
import subprocess
import sys

TIMEOUT = 120  # seconds in which a run has to end, whatever happens to its ranks


def require_mpirun():
    """The path of Open MPI's mpirun; ends the test as skipped where there is none."""
    found = shutil.which("mpirun")
    ask = [found, "--version"]
    said = subprocess.run(ask, capture_output=True, check=False).stdout if found else b""
    if b"Open MPI" not in said:
        print("skipped: there is no mpirun of Open MPI")
        sys.exit(77)
    return found


class Program:
    """The program, with the options that all of its runs have."""

    def __init__(self, path, *options):
        self.command = [str(path), *map(str, options)]
        self.mpirun = [require_mpirun(), "--oversubscribe", "--bind-to", "none"]
        if os.geteuid() == 0:
            self.mpirun.append("--allow-run-as-root")

    def run(self, ranks, *options):
        return self.run_apart([options] * ranks)

    def run_apart(self, options_of_ranks, preloaded=None):
        """One world, each rank with options of its own, and a library loaded before all others."""
        command = list(self.mpirun)
        for rank, options in enumerate(options_of_ranks):
            command += [":"] if rank else []
            command += ["-x", f"LD_PRELOAD={preloaded}"] if preloaded else []
            command += ["-np", "1", *self.command, *map(str, options)]
        # No other machine is asked, so no ssh has to be there.
        environment = os.environ | {"OMPI_MCA_plm_rsh_agent": "sh"}
        return subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT, check=False, env=environment
        )


def require(holds, *what):
    if not holds:
        print("does not hold:", *what)
        sys.exit(1)


def succeed(ran):
    require(ran.returncode == 0, "a run succeeds:", ran.args, ran.stdout, ran.stderr)
    return dict(line.split(None, 1) for line in ran.stdout.splitlines() if " " in line)


def steps_of(log):
    """(epoch, batch) -> (loss, samples), and how many lines there are. A step that was made again
    after a restart has to be the same."""
    steps, lines = {}, log.read_text(encoding="ascii").splitlines()
    for line in lines:
        head, samples = line.split(": ")
        epoch, batch, loss = head.split()
        place, found = (int(epoch), int(batch)), (loss, tuple(map(int, samples.split())))
        require(steps.setdefault(place, found) == found, "a step made again is the same:", place)
    return steps, len(lines)
