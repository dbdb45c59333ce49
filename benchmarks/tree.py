"""Trees by depth against node by node: a batch of random binary trees, forward and backward, medians interleaved.

python benchmarks/tree.py [--trees 64] [--leaves 24] [--width 64] [--rounds 5]
"""

import argparse
import random
import statistics
import time

import torch

from statewise.encoders import Forest, NaryTreeLSTM, TreeEncoder, forest


def random_trees(count: int, leaves: int, seed: int) -> Forest:
    """Neighbours joined at random places until one is left: neither balanced nor a chain."""
    draw = random.Random(seed)
    children: list[list[int]] = []
    roots = []
    for _ in range(count):
        nodes = list(range(len(children), len(children) + leaves))
        children += [[] for _ in range(leaves)]
        while len(nodes) > 1:
            at = draw.randrange(len(nodes) - 1)
            children.append(nodes[at : at + 2])
            nodes[at : at + 2] = [len(children) - 1]
        roots.append(nodes[0])
    return forest(children, roots)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("trees", 64), ("leaves", 24), ("width", 64), ("rounds", 5)):
        options.add_argument(f"--{name}", type=int, default=default)
    chosen = options.parse_args()
    torch.manual_seed(0)
    trees = random_trees(chosen.trees, chosen.leaves, seed=0)
    x_NI = torch.randn(len(trees.children_NK), chosen.width)
    composer = NaryTreeLSTM(chosen.width)
    encoders = {kernel: TreeEncoder(composer, kernel=kernel) for kernel in ("naive", "batched")}
    seconds: dict[str, list[float]] = {kernel: [] for kernel in encoders}
    for _ in range(chosen.rounds):
        for kernel, encoder in encoders.items():
            start = time.perf_counter()
            encoder.nodes(x_NI, trees).sum().backward()
            seconds[kernel].append(time.perf_counter() - start)
    medians = {kernel: statistics.median(some) for kernel, some in seconds.items()}
    print(f"{chosen.trees} random trees of {chosen.leaves} leaves, {len(x_NI)} nodes, {len(trees.levels)} depths")
    for kernel, median in medians.items():
        print(f"{kernel:8} {1000 * median:9.1f} ms  {len(x_NI) / median:12,.0f} nodes/s")
    print(f"by depth is {medians['naive'] / medians['batched']:.1f} times as fast, {torch.get_num_threads()} thread(s)")


if __name__ == "__main__":
    main()
