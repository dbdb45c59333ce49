"""Answers to the exercises of chapter 9."""

import math


def stop_probabilities(P):
    return [p / sum(P[n:]) for n, p in enumerate(P)]


def length_distribution(stops):
    going, found = 1.0, []
    for s in stops:
        found.append(going * s)
        going *= 1 - s
    return [*found, going]


def log_probability(p, stops, content):
    going = sum(math.log((1 - stops[t]) * p[t][x]) for t, x in enumerate(content))
    return going + math.log(stops[len(content)])


def countdown(length, steps):
    return [max(length - t, 0) for t in range(steps)]


def held_out(length, block, every):
    return [t // block % every == every - 1 for t in range(length)]
