"""No lens names an architecture: each looks at every row of the lineage, or says why it cannot."""

from typing import Any

import pytest
import torch

from statewise.core import Machine
from statewise.inspection import apply_lens, live_subject
from statewise.models import LINEAGE, build_sample

SMALL: dict[str, dict[str, Any]] = {
    "surprise": {},
    "gradient": {"window": 8, "rows": 2, "queries": 2, "context": 4, "targets": 4, "steps": 2, "largest": 100},
    "attention": {"window": 8, "rows": 2},
    "bptt": {"window": 8, "length": 4, "rows": 1, "batches": 2, "draws": 2},
}


def sample(name: str) -> Machine[Any]:
    spec = next(row.spec for row in LINEAGE if row.name == name)
    small = {"width": 8, "heads": 2} if "heads" in type(spec).model_fields else {"width": 8}
    known = {key: value for key, value in small.items() if key in type(spec).model_fields}
    return build_sample(spec.model_copy(update=known), vocab=9).eval()


@pytest.mark.parametrize("name", [row.name for row in LINEAGE])
def test_it_is_looked_at(name: str) -> None:
    tokens_T = torch.randint(1, 9, (60,), generator=torch.Generator().manual_seed(0))
    subject = live_subject(sample(name), tokens_T, end_id=0)
    counts = not any(p.requires_grad for p in subject.machine.parameters())
    for lens, settings in SMALL.items():
        if counts and lens == "bptt":
            continue  # it is refused: see the tests of the lens
        found = apply_lens(subject, lens, **settings)
        assert found.sentences
        found.to_json()
        if lens == "gradient":
            forced = name == "jordan"  # the next token replaces its state, which no gradient passes then
            assert found.data["decay"].keys() == (set() if counts else {"input"} if forced else {"input", "state"})
