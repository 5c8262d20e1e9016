#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
# promise: exact-22
"""Compares the batches of `by_tokens` with a slow model: by_tokens_model.py PROGRAM FOLDER [CASES
[SEED]].

The model follows the documentation with lists and scans. The script also checks that restarts in
other worlds lose no sample, repeat no sample, and repeat samples within an epoch only if necessary.
"""
import collections
import os
import pathlib
import random
import subprocess
import sys

WORD, LONG = 0xffffffff, 0xffffffffffffffff
STAGE = WORD - 12
Options = collections.namedtuple("Options", "seed max_tokens window step max_samples padded")


def philox(counter, key):
    c, k = list(counter), list(key)
    for _ in range(10):
        even, odd = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [odd >> 32 ^ c[1] ^ k[0], odd & WORD, even >> 32 ^ c[3] ^ k[1], even & WORD]
        k = [(k[0] + 0x9E3779B9) & WORD, (k[1] + 0xBB67AE85) & WORD]
    return c


def draws(seed, epoch):
    """Yields random 64-bit words from stream 0 of (seed, epoch)."""
    s = philox([epoch & WORD, epoch >> 32, STAGE, 0], [seed & WORD, seed >> 32])
    words, block = [], 0
    while True:
        if len(words) < 2:
            words += philox([block, s[2], 0, 0], s[:2])
            block += 1
        yield words.pop(0) << 32 | words.pop(0)


class Family:
    """A family of keyed bijections."""

    def __init__(self, seed, epoch):
        draw = draws(seed, epoch)
        self.salt = next(draw)
        self.rounds = [(next(draw) | 1, next(draw)) for _ in range(6)]

    def bits(self, which):
        x = (self.salt + which * 0x9E3779B97F4A7C15) & LONG
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & LONG
        x = (x ^ x >> 27) * 0x94D049BB133111EB & LONG
        return x ^ x >> 31

    def __call__(self, which, size, x):
        if size == 1:
            return 0
        width = (size - 1).bit_length()
        while True:
            for turn in range(1 if size > 64 else 6):
                own = self.bits(which + (turn << 60))
                for i, (factor, addend) in enumerate(self.rounds):
                    tweak = (own >> 10 * i | own << (64 - 10 * i)) & LONG
                    x = (x * (factor + 2 * tweak) + addend + (tweak >> 7)) % 2**width
                    x ^= x >> (width + 1) // 2
            if x < size:
                return x


def longest_like(length):
    """Returns the largest length in the class of a length."""
    drop = max(0, length.bit_length() - 9)
    return ((length >> drop) + 1 << drop) - 1


def packed_equal(bounds, o):
    cap = o.max_samples or len(bounds)
    whole = lambda count: max(1, -(-count // o.step)) * o.step
    batches = whole(max(-(-sum(bounds) // o.max_tokens), -(-len(bounds) // cap)))
    while True:
        bins = [[0, 0, i, []] for i in range(batches)]
        for place, bound in enumerate(bounds):
            least = min((b for b in bins if b[1] < cap), key=lambda b: b[:3], default=None)
            if least is None or least[0] + bound > o.max_tokens:
                break
            least[0] += bound
            least[1] += 1
            least[3].append(place)
        else:
            return [b[3] for b in bins]
        batches = min(whole(len(bounds)), whole(batches + 1 + batches // 256))


def packed_similar(bounds, o):
    def cut(budget):
        batches, end = [], len(bounds)
        while end > 0:
            first = end - 1
            while (first > 0 and end - first < (o.max_samples or end)
                   and bounds[first - 1] * (end - first + 1) <= budget):
                first -= 1
            batches.append((first, end - first))
            end = first
        return batches

    target = max(1, -(-len(cut(o.max_tokens)) // o.step)) * o.step
    budget = next(b for b in range(bounds[0], o.max_tokens + 1) if len(cut(b)) <= target)
    batches = cut(budget)
    cost = lambda batch: (bounds[batch[0]] * batch[1], batch[1], batch[0])
    while len(batches) < target and any(count > 1 for _, count in batches):
        several = [b for b in batches if b[1] > 1]
        others = [b for b in several if b != (len(bounds) - 2, 2)]  # the last pair is split last
        place, count = max(others or several, key=cost)
        batches.remove((place, count))
        batches += [(place, count // 2), (place + count // 2, count - count // 2)]
    batches = [list(range(p, p + c)) for p, c in sorted(batches, key=cost, reverse=True)]
    return batches + [[]] * (target - len(batches))


class Model:
    def __init__(self, lengths, o):
        self.o, n = o, len(lengths)
        self.ranked = sorted(range(n), key=lambda i: -longest_like(lengths[i]))
        self.windows = -(-n // o.window)
        self.places = n // self.windows
        bound_at = [min(longest_like(lengths[i]), max(lengths)) for i in self.ranked]
        mixed = min(64, sum(lengths) // 64 // max(1, max(lengths)))
        self.strata = []  # pairs of the first position and the number of positions
        bounds, before = [], None
        for place in range(self.places):
            own = bound_at[place * self.windows]
            if own != before and (not self.strata
                                  or self.strata[-1][1] >= -(-mixed // self.windows)):
                self.strata.append([place, 0])
                bound = own
            before = own
            self.strata[-1][1] += 1
            bounds.append(bound)
        if n > self.places * self.windows:
            self.strata.append([self.places, 1])
            bounds.append(bound_at[self.places * self.windows])
        self.bounds = [max(1, b) for b in bounds]
        self.batches = (packed_similar if o.padded else packed_equal)(self.bounds, o)
        self.row = max([1] + [len(b) for b in self.batches])

    def epoch(self, epoch):
        """Returns the batches of an epoch."""
        shuffle, o, n = Family(self.o.seed, epoch), self.o, len(self.ranked)
        all_batches = []
        for window in range(self.windows):
            steps = len(self.batches) // o.step
            for turn in range(steps):
                step = shuffle(3 * window + 1, steps, turn)
                begun = shuffle.bits(3 * (len(all_batches) // o.step) + 2) % o.step
                for i in range(o.step):
                    batch = []
                    for place in self.batches[step * o.step + (begun + i) % o.step]:
                        which, (first, count) = next(
                            (s, at) for s, at in enumerate(self.strata)
                            if at[0] <= place < at[0] + at[1])
                        rank = first * self.windows + shuffle(
                            3 * which, count * self.windows,
                            (place - first) * self.windows + window)
                        batch += self.ranked[rank:rank + 1]  # the last position may be empty
                    if not batch:
                        batch = [self.ranked[n - 1 - len(all_batches) % self.windows]]
                    all_batches.append(batch)
        return all_batches


def drawn_case(draw):
    n = draw.choice([draw.randint(1, 20), draw.randint(1, 400)])
    longest = draw.choice([1, 7, 300, 1500])
    tail = draw.choice([1, 3])
    lengths = [int(longest * draw.random()**tail) for _ in range(n)]
    options = Options(draw.getrandbits(64), max(1, int(longest * draw.uniform(1, 5))),
                      draw.choice([draw.randint(1, 30), draw.randint(30, 500)]),
                      draw.choice([1, 2, 4, 6, 12]), draw.choice([0, 0, draw.randint(1, 9)]),
                      draw.randint(0, 1))
    return lengths, options, draw.randint(0, 3)


def check_restarts(draw, batches, step, samples):
    """Checks that a run which repeatedly stops and continues in another world reads each batch
    once."""
    worlds = [w for w in range(1, step + 1) if step % w == 0]
    position, read = 0, collections.Counter()
    while position < len(batches):
        world = draw.choice(worlds)
        end = min(len(batches), position + step * draw.randint(1, 3))
        for rank in range(world):
            for b in range(position // world, end // world):
                read.update(batches[b * world + rank])
        position = end
    repeated = sum(read.values()) - samples
    assert set(read) == set(range(samples)), "samples are lost"
    assert repeated == sum(map(len, batches)) - samples, "samples are repeated by a restart"


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    cases = int(sys.argv[3]) if len(sys.argv) > 3 else 200
    draw = random.Random(int(sys.argv[4]) if len(sys.argv) > 4 else 1)
    folder.mkdir(parents=True, exist_ok=True)
    drawn = [drawn_case(draw) for _ in range(cases)]
    with open(folder / "cases", "w", encoding="ascii") as file:
        for lengths, options, epoch in drawn:
            print(*options, epoch, len(lengths), *lengths, file=file)
    subprocess.run([program, "[by_tokens_cases]"], check=True, stdout=subprocess.DEVNULL,
                   env={**os.environ, "PENSTOCK_BY_TOKENS_CASES": str(folder)})
    found = iter((folder / "found").read_text(encoding="ascii").splitlines())
    for lengths, options, epoch in drawn:
        model = Model(lengths, options)
        expected = model.epoch(epoch)
        what = f"{options}, epoch {epoch}, lengths {lengths}"
        count, row = map(int, next(found).split())
        assert (count, row) == (len(expected), model.row), \
            f"{count} batches of {row}, expected {len(expected)} of {model.row}: {what}"
        got = [list(map(int, next(found).split())) for _ in range(count)]
        assert got == expected, f"{got}, expected {expected}: {what}"
        for batch in got:
            costs = [max(1, lengths[i]) for i in batch]
            cost = len(batch) * max(costs) if options.padded else sum(costs)
            assert cost <= options.max_tokens, f"{batch} costs {cost}: {what}"
        rest = len(lengths) - model.places * model.windows  # windows with an extra sample
        needed = len(model.batches) - model.places
        assert sum(map(len, got)) - len(lengths) == (
            rest * max(0, needed - 1) + (model.windows - rest) * max(0, needed)), \
            f"samples are repeated beside unused ones: {what}"
        check_restarts(draw, got, options.step, len(lengths))
    assert next(found, None) is None
    print(f"{cases} cases: the same batches")


if __name__ == "__main__":
    main()
