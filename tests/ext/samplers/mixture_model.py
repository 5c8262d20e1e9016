#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
# promise: exact-23: Turns lay_out
# promise: exact-23: continued
"""Compares `mixture` with a model that simulates each sample, on random schedules.

  mixture_model.py PROGRAM [COUNT]     PROGRAM: mixture_positions
"""
import random
import subprocess
import sys

REPEAT, END, DROP_OUT = range(3)


class Rejected(Exception):
    pass


class Turns:
    """Selects the next part: the part that is furthest behind since the last change of weights."""

    def __init__(self, weights):
        self.weights, self.sum, self.place = weights, sum(weights), 0
        self.had = [0] * len(weights)
        if self.sum == 0:
            raise Rejected("weights")

    def next(self):
        self.place += 1
        lacks = [(self.place * w - self.sum * h, -p)
                 for p, (w, h) in enumerate(zip(self.weights, self.had)) if w]
        part = -max(lacks)[1]
        self.had[part] += 1
        return part


def weights_at(case, place):
    return [w for at, w in case["schedule"] if at <= place][-1]


def one_epoch(case, epoch, most=None):
    """Returns the part of each sample in an epoch, for END and DROP_OUT."""
    left = list(case["sizes"])
    changes = {at[1] * case["batch"]: w for at, w in case["schedule"] if at[0] == epoch and at[1]}
    weights = weights_at(case, (epoch, 0))
    turns = Turns(weights)
    parts = []
    while most is None or len(parts) < most:
        if len(parts) in changes:
            weights = changes[len(parts)]
            kept = [w if n or case["mode"] == END else 0 for w, n in zip(weights, left)]
            turns = Turns(kept)
        part = turns.next()
        if left[part] == 0:
            assert case["mode"] == END
            break
        parts.append(part)
        left[part] -= 1
        if case["mode"] == DROP_OUT and left[part] == 0:
            if not any(left):
                break
            if len(parts) not in changes:
                turns = Turns([w if n else 0 for w, n in zip(weights, left)])
    return parts


def lay_out(case, epochs):
    """Returns the epoch size and the (part, epoch of the part, position) of each sample."""
    total, batch = sum(case["sizes"]), case["batch"]
    if case["mode"] == REPEAT:
        size = total
        if case["epoch_steps"]:
            size = case["epoch_steps"] * batch
        elif batch:
            size = max(total // batch, 1) * batch
        changes = {e * size + s * batch: w for (e, s), w in case["schedule"]}
        had = [0] * len(case["sizes"])
        samples, turns = [], None
        for k in range(size * epochs):
            if k in changes:
                turns = Turns(changes[k])
            part = turns.next()
            samples.append((part, *divmod(had[part], case["sizes"][part])))
            had[part] += 1
        return size, samples
    if case["mode"] == DROP_OUT and batch:
        steps = -(-total // batch)
        case["schedule"] = [((e + s // steps, s % steps), w) for (e, s), w in case["schedule"]]
    last = max(e for (e, _), _ in case["schedule"]) + 2
    each = [one_epoch(case, e) for e in range(max(last, epochs))]
    size = min(map(len, each))
    if case["continued"]:  # equal up to its position: as long if an epoch has ended, or long enough
        (epoch, step), _ = case["schedule"][-1]
        old = {**case, "schedule": case["schedule"][:-1], "continued": False}
        before, at = lay_out(old, 0)[0], step * case["batch"]
        if (epoch and size != before) or min(at, size) != min(at, before):
            raise Rejected("weights")
    samples = []
    for epoch in range(epochs):
        had = [0] * len(case["sizes"])
        for part in each[epoch][:size]:
            samples.append((part, epoch, had[part]))
            had[part] += 1
    return size, samples


def random_case(rng):
    parts = rng.randint(1, 5)
    mode = rng.randrange(3)
    sizes = [rng.choice([1, 2, rng.randint(1, 40), rng.randint(1, 90)]) for _ in range(parts)]
    batch = rng.choice([0, 1, 2, 3, 4, 8, 16])
    epoch_steps = rng.randint(1, 60) if mode == REPEAT and batch and rng.random() < 0.5 else 0

    def weights():
        drawn = [0] * parts
        while not any(drawn):
            most = rng.choice([1, 3, 12])
            drawn = [0 if rng.random() < 0.08 else rng.randint(1, most) for _ in range(parts)]
        return drawn

    places = {(0, 0)}
    for _ in range(rng.choice([0, 0, 1, 2, 4])):
        places.add((rng.randint(0, 2), rng.randint(0, 30) if batch else 0))
    schedule = [(at, weights()) for at in sorted(places)]
    # A mixture that is rejected cannot be continued.
    continued = len(places) > 1 and (mode != DROP_OUT or all(all(w) for _, w in schedule))
    return {
        "seed": rng.getrandbits(64), "mode": mode, "batch": batch, "epoch_steps": epoch_steps,
        "sizes": sizes, "schedule": schedule, "continued": continued and rng.random() < 0.5,
        "epochs": rng.randint(1, 4),
        "places": [(rng.randint(0, 3), rng.randint(0, 9) if batch else 0) for _ in range(3)],
    }


def line_of(case):
    numbers = [case["seed"], case["mode"], case["batch"], case["epoch_steps"], len(case["sizes"]),
               *case["sizes"], len(case["schedule"])]
    for at, weights in case["schedule"]:
        numbers += [*at, *weights]
    numbers += [int(case["continued"]), case["epochs"], len(case["places"])]
    for at in case["places"]:
        numbers += at
    return " ".join(map(str, numbers))


def is_ascending(case):
    """Returns whether the schedule is ascending once steps are normalized. The program rejects all
    other schedules."""
    if case["mode"] == END or not case["batch"]:
        return True
    total = sum(case["sizes"])
    steps = case["epoch_steps"] or max(total // case["batch"], 1)
    if case["mode"] == DROP_OUT:
        steps = -(-total // case["batch"])
    places = [e * steps + s for (e, s), _ in case["schedule"]]
    return all(a < b for a, b in zip(places, places[1:]))


def check(case, answer):
    parts, sizes = len(case["sizes"]), case["sizes"]
    # Includes every queried position.
    epochs = case["epochs"]
    size, _ = lay_out(case, 1)
    steps = -(-size // case["batch"]) if case["batch"] else 1
    asked = max(e + s // steps + 1 for e, s in case["places"])
    _, samples = lay_out(case, max(epochs, asked))
    numbers = list(map(int, answer.split()))
    assert numbers[0] == size, ("size", numbers[0], size)
    indices, rest = numbers[1:1 + size * epochs], numbers[1 + size * epochs:]
    begins = [sum(sizes[:p]) for p in range(parts)]
    orders = {}
    for k, (index, (part, epoch, place)) in enumerate(zip(indices, samples)):
        local = index - begins[part]
        assert 0 <= local < sizes[part], ("part", k, index, part)
        order = orders.setdefault((part, epoch), {})
        assert local not in order.values(), ("repeated", k, part, epoch, local)
        assert order.setdefault(place, local) == local, ("place", k)
    for epoch, step in case["places"]:
        if case["mode"] == END:
            at = epoch * size + min(step * case["batch"], size)
        else:
            epoch, step = epoch + step // steps, step % steps
            at = epoch * size + step * case["batch"]
        for part in range(parts):
            before = [s for s in samples[:at] if s[0] == part]
            got = tuple(rest[3 * part:3 * part + 3])
            if case["mode"] == REPEAT:
                expected = (len(before), *divmod(len(before), sizes[part]))
            else:
                expected = (len(before), epoch, sum(s[1] == epoch for s in before))
            assert got == expected, ("progress", epoch, step, part, got, expected)
            known = all((p, e) in orders and k in orders[p, e] for p, e, k in before)
            if known:
                tokens = sum((7 * orders[p, e][k] + part) % 13 + 1 for p, e, k in before)
                assert rest[3 * parts + part] == tokens, ("total", epoch, step, part)
        rest = rest[4 * parts:]
    assert not rest


def main():
    rng = random.Random(38)
    cases = [random_case(rng) for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 3000)]
    cases = [case for case in cases if is_ascending(case)]
    answers = subprocess.run([sys.argv[1]], input="\n".join(map(line_of, cases)), text=True,
                             stdout=subprocess.PIPE, check=True).stdout.splitlines()
    assert len(answers) == len(cases)
    rejected = [0, 0, 0]
    for number, (case, answer) in enumerate(zip(cases, answers)):
        line = line_of(case)
        try:
            if answer.startswith("rejected"):
                rejected[case["mode"]] += 1
                try:
                    lay_out(case, max(e for (e, _), _ in case["schedule"]) + 2)
                except Rejected:
                    continue
                raise AssertionError("the model does not reject it")
            check(case, answer)
        except (AssertionError, Rejected) as problem:
            sys.exit(f"case {number}: {line}\n{answer[:200]}\n{problem!r}")
    assert rejected[REPEAT] == 0 < min(rejected[1:]) <= max(rejected) < len(cases) / 5
    print(f"{len(cases)} schedules agree, {sum(rejected)} of them rejected by both")


if __name__ == "__main__":
    main()
