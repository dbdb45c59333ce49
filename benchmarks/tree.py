"""Trees by depth against node by node: a batch of random binary trees, forward and backward, medians interleaved.

    python benchmarks/tree.py [--trees 64] [--leaves 24] [--width 64] [--rounds 5]

`difference` is the largest difference of nodes and of gradients, relative to the largest number.
"""

import random
import statistics
import time

import torch
from command_line import options, positive, write
from torch import Tensor

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
    parser = options(__doc__)
    for name, default in (("trees", 64), ("leaves", 24), ("width", 64), ("rounds", 5)):
        parser.add_argument(f"--{name}", type=positive, default=default)
    chosen = parser.parse_args()
    torch.manual_seed(0)
    trees = random_trees(chosen.trees, chosen.leaves, seed=0)
    x_NI = torch.randn(len(trees.children_NK), chosen.width)
    composer = NaryTreeLSTM(chosen.width)
    encoders = {kernel: TreeEncoder(composer, kernel=kernel) for kernel in ("naive", "batched")}
    seconds: dict[str, list[float]] = {kernel: [] for kernel in encoders}
    found: dict[str, list[Tensor]] = {}
    for _ in range(chosen.rounds):
        for kernel, encoder in encoders.items():
            start = time.perf_counter()
            nodes_ND = encoder.nodes(x_NI, trees)
            gradients = torch.autograd.grad(nodes_ND.sum(), list(composer.parameters()))
            found[kernel] = [nodes_ND.detach(), *gradients]
            del nodes_ND  # and with it its graph, which its own time pays for
            seconds[kernel].append(time.perf_counter() - start)
    medians = {kernel: statistics.median(some) for kernel, some in seconds.items()}
    print(f"{chosen.trees} random trees of {chosen.leaves} leaves, {len(x_NI)} nodes, {len(trees.levels)} depths")
    for kernel, median in medians.items():
        print(f"{kernel:8} {1000 * median:9.1f} ms  {len(x_NI) / median:12,.0f} nodes/s")
    pairs = zip(*found.values(), strict=True)
    difference = max(float((mine - other).abs().max() / other.abs().max()) for mine, other in pairs)
    print(f"difference {difference:.0e}")
    print(f"by depth is {medians['naive'] / medians['batched']:.1f} times as fast, {torch.get_num_threads()} thread(s)")
    rows = [{"kernel": kernel, "ms": 1000 * median, "nodes": len(x_NI)} for kernel, median in medians.items()]
    asked = {name: value for name, value in vars(chosen).items() if name != "json"}
    write(chosen.json, rows, **asked, difference=difference)


if __name__ == "__main__":
    main()
