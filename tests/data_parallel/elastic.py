# SPDX-License-Identifier: BSL-1.0
"""A training whose ranks are killed, and which goes on with another number of them.

    elastic.py <penstock_mlp_mpi> <a folder to work in> [rounds [seed]]

In a round one random rank after the other dies as by kill -9, at a random moment of a random step,
while it writes a checkpoint too, and the next world of 1, 2, 4 or 8 processes goes on. At the end
each sample of each epoch was in the training once, and global batches, losses and parameters are
those of one process that nobody has killed.
"""

import random
import shutil
import sys
from pathlib import Path

from runs import Program, require, steps_of, succeed

SAMPLES, BATCH, EPOCHS = 256, 32, 2
STEPS = EPOCHS * SAMPLES // BATCH
MOMENTS = ("reading", "reduced", "learnt")
SAVING = ("half_written", "written", "moved")  # of rank 0 alone, where a checkpoint is written


def without_deaths(program, work):
    log = work / "undisturbed"
    return succeed(program.run(1, "--log", log)), steps_of(log)[0]


def death_of(rng, ranks, done, every):
    """A rank, a step that is still to come, and the moment."""
    step = rng.randrange(done, STEPS)
    rank, moment = rng.randrange(ranks), rng.choice(MOMENTS)
    is_saved = (step + 1) % every == 0 or step + 1 == STEPS
    if is_saved and rng.random() < 0.5:
        rank, moment = 0, rng.choice(SAVING)
    return f"{rank}:{step}:{moment}"


def tear(rng, file):
    """What a disk may leave of a file: less of it, or other bytes."""
    content = bytearray(file.read_bytes())
    if rng.random() < 0.5:
        del content[rng.randrange(len(content)) :]
    else:
        content[rng.randrange(64, len(content))] ^= 1 << rng.randrange(8)
    file.write_bytes(content)


def done_by(steps):
    return len(steps) and 1 + max(epoch * (SAMPLES // BATCH) + batch for epoch, batch in steps)


def round_of(rng, program, work, expected):
    said, steps = expected
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    log, checkpoint, every = work / "log", work / "training", rng.choice((1, 2, 3, 5))
    options = ["--log", log, "--checkpoint", checkpoint, "--every", every]
    worlds, deaths = [], 0
    for _ in range(rng.randint(1, 3)):
        done = done_by(steps_of(log)[0]) if log.exists() else 0
        if done == STEPS:
            break
        ranks = rng.choice((1, 2, 4, 8))
        death = death_of(rng, ranks, max(0, done - every), every)
        ran = program.run(ranks, *options, "--die", death)
        worlds.append((ranks, death))
        if ran.returncode == 0:
            continue  # appointed for a step that was done before
        deaths += 1
        require("signal 9" in ran.stderr, "mpirun says who died", worlds, ran.stderr)
        before = Path(f"{checkpoint}.before")
        if checkpoint.exists() and before.exists() and rng.random() < 0.3:
            tear(rng, checkpoint)
            worlds.append("torn")
    ranks = rng.choice((1, 2, 4, 8))
    ran = program.run(ranks, *options)
    worlds.append((ranks, "to the end"))
    last = succeed(ran)
    found, lines = steps_of(log)
    require(found == steps, "the batches and losses of an undisturbed run", worlds)
    require(last["parameters"] == said["parameters"], "its parameters", worlds)
    for epoch in range(EPOCHS):
        drawn = [s for (e, _), (_, samples) in found.items() if e == epoch for s in samples]
        require(sorted(drawn) == list(range(SAMPLES)), "each sample once in", epoch, worlds)
    return worlds, lines - len(found), deaths


def main():
    work = Path(sys.argv[2])
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 2
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    program = Program(sys.argv[1], "--samples", SAMPLES, "--batch", BATCH, "--epochs", EPOCHS,
                      "--deterministic")
    expected = without_deaths(program, work)
    killed = 0
    for number in range(rounds):
        # A round by itself can be run again.
        worlds, again, deaths = round_of(random.Random(f"{seed} {number}"), program, work / "round",
                                         expected)
        killed += deaths
        print(f"round {number}: {worlds}, {again} steps made again", flush=True)
    require(killed > 0, "a rank was killed in some round")
    print(f"{rounds} of {rounds} rounds end as an undisturbed run, {killed} kills")


if __name__ == "__main__":
    main()
