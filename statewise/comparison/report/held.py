"""What was held equal, and how closely: sizes as solved, training as measured."""

from collections.abc import Mapping, Sequence

from statewise.comparison.budget import UNITS, Entry
from statewise.comparison.report.results import Results
from statewise.comparison.trial import TRAINING_FLOPS, Found
from statewise.display import share
from statewise.specs import HeldKind


def off(results: Results, solved: Mapping[str, Entry], name: str, kind: HeldKind) -> float | None:
    """Relative deviation of an entry from the budget; None where it is outside the budget."""
    held = next((one for one in solved[name].held if one.kind == kind), None) if name in solved else None
    if held is None:
        return None
    used = results.mean(name, lambda one: _used(one, kind)) if name in results.final else None
    return held.error if used is None else used / held.wanted - 1


def _used(one: Found, kind: HeldKind) -> float | None:
    match kind:
        case "seconds":
            return one.seconds
        case "tokens":
            return float(one.tokens)
        case "flops":
            return TRAINING_FLOPS * one.flops_per_token * one.tokens
        case _:
            return None


def held_equal(results: Results, entries: Sequence[Entry]) -> str:
    """`60,000 parameters, met to within 1.2 %; 60 seconds of training, met to within 0.3 %`."""
    solved = {entry.name: entry for entry in entries}
    said = []
    for kind, amount in results.study.budget.held():
        amounts = {held.wanted for entry in entries for held in entry.held if held.kind == kind}
        amounts = amounts or ({amount} if amount is not None else set())
        errors = [abs(found) for name in solved if (found := off(results, solved, name, kind)) is not None]
        much = f"{next(iter(amounts)):,.0f} " if len(amounts) == 1 else ""
        said.append(f"{much}{UNITS[kind]}" + (f", met to within {share(max(errors))}" if errors else ""))
    return "; ".join(said) or "nothing"
