"""Training in bfloat16: what is carried from window to window keeps its precision, or a run could not be resumed."""

import pytest
import torch

from statewise.core import leaves
from statewise.models import LINEAGE, build
from statewise.models.lineage import Ancestor


@pytest.mark.parametrize("row", LINEAGE, ids=[row.name for row in LINEAGE])
@pytest.mark.parametrize("kernel", ["auto", "naive"])
def test_a_state_keeps_its_precision_under_autocast(row: Ancestor, kernel: str) -> None:
    spec = row.spec.model_copy(update={"width": 12})
    if "kernel" in type(spec).model_fields:
        spec = spec.model_copy(update={"kernel": kernel})
    model = build(spec, vocab=7)
    tokens_BT = torch.randint(7, (2, 5), generator=torch.Generator().manual_seed(0))
    for lengths_B in (None, torch.tensor([5, 2])):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            _, after = model(tokens_BT, None, lengths_B)
        assert [leaf.dtype for _, leaf in leaves(after)] == [leaf.dtype for _, leaf in leaves(model.init_state(2))]
