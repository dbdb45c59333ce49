"""Composition along trees: node by node, by depth, and the choice between them."""

from torch import Tensor

from statewise.kernels.choice import Choice, Wish, choose
from statewise.kernels.tree import batched, naive
from statewise.kernels.tree.cell import ChildSumWeights as ChildSumWeights
from statewise.kernels.tree.cell import NaryWeights as NaryWeights
from statewise.kernels.tree.cell import PlainWeights as PlainWeights
from statewise.kernels.tree.cell import child_sum as child_sum
from statewise.kernels.tree.cell import nary as nary
from statewise.kernels.tree.cell import plain as plain
from statewise.kernels.tree.forest import Forest as Forest
from statewise.kernels.tree.forest import balanced as balanced
from statewise.kernels.tree.forest import chain as chain
from statewise.kernels.tree.forest import forest as forest
from statewise.kernels.tree.forest import from_nltk as from_nltk
from statewise.kernels.tree.naive import Compose as Compose
from statewise.kernels.tree.naive import S as S
from statewise.kernels.tree.naive import order as order


def choice(*, wish: Wish = "auto") -> Choice:
    return choose("tree", obstacles=[], wish=wish, fast=["batched"])


def tree(x_NI: Tensor, forest: Forest, compose: Compose[S], absent: S, *, wish: Wish = "auto") -> S:
    """The states of all nodes, from what stands at each, and from what stands for a child that is not there."""
    run = batched.tree if choice(wish=wish).implementation == "batched" else naive.tree
    return run(x_NI, forest, compose, absent)
