"""The laws of encoders, as functions that measure by how much one breaks them: those of `statewise.core.laws`
that make sense without a step, and those that an encoder's own structure adds.

B batch, T time, P places (time steps, or the cells of a grid), N nodes, I input width, D width.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from statewise.core import Composer, Encoder, concat, laws, map_state, unroll
from statewise.core import rows as chosen_rows
from statewise.encoders.attention import MultiHeadAttention
from statewise.encoders.bidirectional import Bidirectional
from statewise.encoders.composer import ChildSumTreeLSTM, Composition, NaryTreeLSTM
from statewise.encoders.grid import CORNERS, GridEncoder
from statewise.encoders.transformer import TransformerEncoder
from statewise.encoders.tree import TreeEncoder
from statewise.kernels.tree import chain, forest

Case = laws.Case
Read = Callable[[Tensor, Tensor | None], tuple[Tensor, Any]]  # inputs and sizes to outputs, and a summary if any
Law = Callable[[Encoder, Case], float]


def laws_of(encoder: Encoder) -> dict[str, Law]:
    """The laws that hold for this kind of encoder, by name."""
    own: dict[str, Law] = {}
    match encoder:
        case Bidirectional():
            own = {"step": _both_steps, "causal": _both_directions}
        case GridEncoder():
            own = {"causal": _four_directions, "chain": _thin_grid}
        case TreeEncoder():
            own = {"causal": _bottom_up, "chain": _tree_chain, "permuted": _renumbered}
        case TransformerEncoder() | MultiHeadAttention():
            own = {} if encoder.position == "rotary" else {"permuted": _reordered}
    return {"rows": rows, "ragged": ragged, **own}


def make_case(width: int, like: Tensor, *, axes: int = 1, seed: int = 0) -> Case:
    """Random inputs `[B, T, I]`, or `[B, H, W, I]`."""
    x = torch.randn(
        4, *((5,) if axes == 1 else (4, 3)), width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )
    return Case(x.to(like), (), seed)


def case_of(encoder: Encoder) -> Case:
    """Inputs for an encoder, of its own width and dtype."""
    return make_case(encoder.input_width, next(encoder.parameters()), axes=encoder.axes)


def precision(encoder: Encoder, dtype: torch.dtype) -> float:
    """Outputs and gradients in `dtype` against float64, as for machines."""
    return laws.rounding(encoder, dtype, case_of, lambda model, c: read_by(model)(c.x, sizes_of(c.x)))


def read_by(encoder: Encoder) -> Read:
    return lambda x, sizes: (encoder(x, sizes), ())


def sizes_of(x: Tensor) -> Tensor:
    """A size for each row: the largest, and smaller ones; of a sequence, also 0."""
    if x.dim() == 3:
        return torch.tensor([5, 2, 0, 3], device=x.device)
    return torch.tensor([[4, 3], [2, 1], [1, 3], [3, 2]], device=x.device)


# ------------------------------------------------------------------- of all


def rows(encoder: Encoder, case: Case) -> float:
    """Any choice of rows commutes with the encoder."""
    return rows_of(encoder, read_by(encoder), case)


def rows_of(module: nn.Module, read: Read, case: Case) -> float:
    index, sizes = torch.tensor([3, 2, 1], device=case.x.device), sizes_of(case.x)  # the largest is not among them

    def chosen_after(c: Case) -> tuple[Tensor, Any]:
        y, summary = read(c.x, sizes)
        return y[index], chosen_rows(summary, index)

    before = laws.evaluate(module, case, lambda c: read(c.x[index], sizes[index]))
    return laws.distance(before, laws.evaluate(module, case, chosen_after))


def ragged(encoder: Encoder, case: Case) -> float:
    """With sizes, each row equals that row alone, and what is outside is 0. The padding is NaN."""
    return ragged_of(encoder, read_by(encoder), case)


def ragged_of(module: nn.Module, read: Read, case: Case) -> float:
    sizes = sizes_of(case.x)
    inside = _inside(case.x, sizes)

    def alone(c: Case) -> tuple[Tensor, Any]:
        outputs: list[Tensor | None] = []
        summaries: list[Any] = []
        for row, size in enumerate(sizes.view(len(sizes), -1).tolist()):
            own = c.x[(slice(row, row + 1), *map(slice, size))]
            if 0 in size:  # nothing to read: all outputs are 0
                outputs.append(None)
                summaries.append(None)
                continue
            y, summary = read(own, None)
            if y.dim() == c.x.dim():  # one vector for each place; of a tree, one for the root
                gaps = [(0, most - now) for most, now in zip(c.x.shape[1:-1], size, strict=True)]
                y = F.pad(y, (0, 0, *(end for gap in reversed(gaps) for end in gap)))
            outputs.append(y)
            summaries.append(summary)
        return torch.cat(_filled(outputs)), concat(_filled(summaries))

    padded = laws.evaluate(module, case, lambda c: read(c.x.masked_fill(~inside[..., None], torch.nan), sizes))
    return laws.distance(padded, laws.evaluate(module, case, alone))


def _filled(parts: Sequence[Any]) -> list[Any]:
    """0 for an empty row."""
    there = next(part for part in parts if part is not None)
    return [map_state(torch.zeros_like, there) if part is None else part for part in parts]


def _inside(x: Tensor, sizes: Tensor) -> Tensor:
    """`[B, T]` or `[B, H, W]`, true at each row's own places."""
    inside = torch.ones(x.shape[:-1], dtype=torch.bool, device=x.device)
    for axis, size_B in enumerate(sizes.view(len(sizes), -1).unbind(1), 1):
        at = torch.arange(x.shape[axis], device=x.device) < size_B[:, None]
        inside = inside & at.view(len(x), *(-1 if a == axis else 1 for a in range(1, x.dim() - 1)))
    return inside


def _blind(read: Callable[[Tensor], Tensor], x_BPI: Tensor, sees_PP: Tensor) -> float:
    """How much the output of a place changes with places that it must not see: by value, and by gradient."""
    worst = 0.0
    x_BPI = x_BPI.detach().clone().requires_grad_()
    y_BPD = read(x_BPI)
    for place, sees_P in enumerate(sees_PP):
        hidden_P = ~sees_P
        changed_BPI = torch.where(hidden_P[:, None], -3 * x_BPI + 1, x_BPI)
        with torch.no_grad():
            worst = max(worst, laws.distance([read(changed_BPI)[:, place]], [y_BPD[:, place]]))
        (gradient_BPI,) = torch.autograd.grad(y_BPD[:, place].sum(), x_BPI, retain_graph=True)
        worst = max(worst, gradient_BPI[:, hidden_P].abs().sum().item())
    return worst


# ------------------------------------------------------- of those with directions


def _both_directions(encoder: Encoder, case: Case) -> float:
    """The forward half depends on the past alone, the backward half on the future alone."""
    assert isinstance(encoder, Bidirectional)
    halves = Bidirectional(forward=encoder.ahead, backward=encoder.back)  # before they are merged
    width = encoder.ahead.output_width
    past_TT = torch.ones(case.time, case.time, dtype=torch.bool, device=case.x.device).tril()
    ahead = _blind(lambda x: halves(x)[..., :width], case.x, past_TT)
    return max(ahead, _blind(lambda x: halves(x)[..., width:], case.x, past_TT.T))


def _both_steps(encoder: Encoder, case: Case) -> float:
    """Each half equals its mixer, one step after the other: from the beginning, and from the end."""
    assert isinstance(encoder, Bidirectional)
    halves = Bidirectional(forward=encoder.ahead, backward=encoder.back)

    def stepped(c: Case) -> tuple[Tensor, Any]:
        ahead, _ = unroll(encoder.ahead.step, c.x, encoder.ahead.init_state(c.batch))
        back, _ = unroll(encoder.back.step, c.x.flip(1), encoder.back.init_state(c.batch))
        return torch.cat([ahead, back.flip(1)], dim=-1), ()

    return laws.distance(
        laws.evaluate(encoder, case, stepped), laws.evaluate(encoder, case, lambda c: (halves(c.x), ()))
    )


def _four_directions(encoder: Encoder, case: Case) -> float:
    """Each reading sees only the cells between its corner and where it is."""
    assert isinstance(encoder, GridEncoder)
    height, width = case.x.shape[1:3]
    place_P = torch.arange(height * width, device=case.x.device)
    row_P, column_P = place_P // width, place_P % width
    worst = 0.0
    for number, corner in enumerate(CORNERS):
        vertical, horizontal = corner.split("_")
        above_PP = row_P <= row_P[:, None] if vertical == "upper" else row_P >= row_P[:, None]
        beside_PP = column_P <= column_P[:, None] if horizontal == "left" else column_P >= column_P[:, None]

        def reading(x_BPI: Tensor, number: int = number) -> Tensor:
            y_BHWC: Tensor = encoder(x_BPI.view(len(x_BPI), height, width, -1))
            return y_BHWC.chunk(len(CORNERS), dim=-1)[number].flatten(1, 2)

        worst = max(worst, _blind(reading, case.x.flatten(1, 2), above_PP & beside_PP))
    return worst


def _thin_grid(encoder: Encoder, case: Case) -> float:
    """On a grid of one row, or one column, each reading is a plain recurrent network (PyTorch's own)."""
    assert isinstance(encoder, GridEncoder)
    worst = 0.0
    for axis, recurrent_QDD in ((1, encoder.v_QDD), (2, encoder.u_QDD)):

        def plain(c: Case, axis: int = axis, recurrent_QDD: Tensor = recurrent_QDD) -> tuple[Tensor, Any]:
            readings = []
            for number, corner in enumerate(CORNERS):
                backwards = corner.split("_")[2 - axis] in ("lower", "right")
                x_BTI = c.x.select(axis, 0)
                weights = (encoder.w_QDI[number], recurrent_QDD[number], encoder.b_QD[number])
                h_BTD = _elman(x_BTI.flip(1) if backwards else x_BTI, *weights)
                readings.append(h_BTD.flip(1) if backwards else h_BTD)
            return torch.cat(readings, dim=-1).unsqueeze(axis), ()

        whole = laws.evaluate(encoder, case, lambda c, axis=axis: (encoder(c.x.narrow(axis, 0, 1)), ()))  # type: ignore[misc]  # a default in a lambda has no type
        worst = max(worst, laws.distance(whole, laws.evaluate(encoder, case, plain)))
    return worst


# -------------------------------------------------------------------- of trees


def _tree_chain(encoder: Encoder, case: Case) -> float:
    """On a tree that is a chain, every node is a step of an LSTM, or of a plain recurrent network (PyTorch's own)."""
    assert isinstance(encoder, TreeEncoder)
    trees = chain([case.time] * case.batch).to(case.x.device)

    def along(c: Case) -> tuple[Tensor, Any]:
        return encoder.nodes(c.x.flatten(0, 1), trees).view(c.batch, c.time, -1), ()

    recurrent = laws.evaluate(encoder, case, lambda c: (_recurrent(encoder.composer, c.x), ()))
    return laws.distance(laws.evaluate(encoder, case, along), recurrent)


def _recurrent(composer: Composer[Any], x_BTI: Tensor) -> Tensor:
    """The recurrent network whose transition is this composer with one child, at the first place."""
    match composer:
        case Composition():
            return _elman(x_BTI, composer.w_DI, composer.u_DKD[:, 0], composer.b_D)
        case ChildSumTreeLSTM():
            u_GD: Tensor = composer.u_GD
        case NaryTreeLSTM():  # input gate, a forget gate for each place, candidate, output gate
            gates = composer.u_RKD[:, 0].chunk(composer.u_RKD.shape[0] // composer.output_width)
            u_GD = torch.cat([gates[0], gates[1], *gates[-2:]])
        case _:
            raise NotImplementedError(f"{type(composer).__name__}: which recurrent network is its chain?")
    zero_1BD = x_BTI.new_zeros(1, len(x_BTI), composer.output_width)
    weights = [composer.w_GI, u_GD, composer.b_G, torch.zeros_like(composer.b_G)]
    with torch.backends.cudnn.flags(enabled=False):  # which may round to fewer digits
        y_BTD: Tensor = torch.lstm(x_BTI, (zero_1BD, zero_1BD), weights, True, 1, 0.0, False, False, True)[0]
    return y_BTD


def _elman(x_BTI: Tensor, w_DI: Tensor, u_DD: Tensor, b_D: Tensor) -> Tensor:
    weights = [w_DI, u_DD, b_D, torch.zeros_like(b_D)]
    zero_1BD = x_BTI.new_zeros(1, len(x_BTI), len(b_D))
    with torch.backends.cudnn.flags(enabled=False):
        y_BTD: Tensor = torch.rnn_tanh(x_BTI, zero_1BD, weights, True, 1, 0.0, False, False, True)[0]
    return y_BTD


def _sample_trees(composer: Composer[Any], nodes: int, seed: int) -> list[list[int]]:
    """The children of every node: random trees with as many children as the composer takes, three if any number."""
    generator = torch.Generator().manual_seed(seed)
    children: list[list[int]] = []
    roots: list[int] = []
    for node in range(nodes):
        number = int(torch.randint(0, min(composer.arity or 3, len(roots)) + 1, (), generator=generator))
        children.append([roots.pop(0) for _ in range(number)])
        roots.append(node)
    return children


def _roots(children: Sequence[Sequence[int]]) -> list[int]:
    return sorted(set(range(len(children))) - {child for some in children for child in some})


def _bottom_up(encoder: Encoder, case: Case) -> float:
    """A node depends on what is below it alone."""
    assert isinstance(encoder, TreeEncoder)
    x_1NI = case.x.flatten(0, 1)[None]
    children = _sample_trees(encoder.composer, x_1NI.shape[1], case.seed)
    sees_NN = torch.eye(len(children), dtype=torch.bool, device=case.x.device)
    for node, some in enumerate(children):  # children come before their parents
        for child in some:
            sees_NN[node] |= sees_NN[child]
    trees = forest(children, _roots(children)).to(case.x.device)
    return _blind(lambda x: encoder.nodes(x[0], trees)[None], x_1NI, sees_NN)


def _renumbered(encoder: Encoder, case: Case) -> float:
    """How nodes are numbered does not matter; where children have no places, nor does their order."""
    assert isinstance(encoder, TreeEncoder)
    children = _sample_trees(encoder.composer, case.batch * case.time, case.seed)
    order_N = torch.randperm(len(children), generator=torch.Generator().manual_seed(case.seed))
    new = order_N.argsort().tolist()  # the number that a node gets
    placed = encoder.composer.arity is not None
    renumbered = [[new[child] for child in (some if placed else some[::-1])] for some in children]
    renumbered = [renumbered[node] for node in order_N.tolist()]
    order_N = order_N.to(case.x.device)

    def nodes(c: Case, children: Sequence[Sequence[int]], order_N: Tensor | None) -> tuple[Tensor, Any]:
        x_NI = c.x.flatten(0, 1)
        trees = forest(children, _roots(children)).to(x_NI.device)
        if order_N is None:
            return encoder.nodes(x_NI, trees), ()
        return encoder.nodes(x_NI[order_N], trees)[order_N.argsort()], ()

    plain = laws.evaluate(encoder, case, partial(nodes, children=children, order_N=None))
    return laws.distance(laws.evaluate(encoder, case, partial(nodes, children=renumbered, order_N=order_N)), plain)


# --------------------------------------------------------------- of self-attention


def _reordered(encoder: Encoder, case: Case) -> float:
    """Inputs in another order, each with its position, give the outputs in that order.

    ALiBi tells distances, which only the reversed order keeps.
    """
    assert isinstance(encoder, TransformerEncoder | MultiHeadAttention)
    order_T = torch.arange(case.time, device=case.x.device).flip(0)
    if encoder.position != "alibi":
        order_T = order_T.roll(2)

    def permuted(c: Case) -> tuple[Tensor, Any]:
        x_BTI = c.x[:, order_T]
        if isinstance(encoder, TransformerEncoder):  # positions are added: move each with its input
            placed_1TD = encoder.placed(torch.zeros_like(c.x[:1]))
            x_BTI = x_BTI + placed_1TD[:, order_T] - placed_1TD
        return encoder(x_BTI)[:, order_T.argsort()], ()

    return laws.distance(
        laws.evaluate(encoder, case, permuted), laws.evaluate(encoder, case, lambda c: (encoder(c.x), ()))
    )
