"""Two runs on the same questions: answer by answer, so that what is hard for both cancels.

N answers.
"""

from typing import Any, NamedTuple

import numpy as np

from statewise.display import plain, rough, share
from statewise.tasks import Floats


class Rival(NamedTuple):
    name: str
    mine_N: Floats
    theirs_N: Floats
    of: str = ""  # what an entry is, where that is no single answer

    @property
    def apart_N(self) -> Floats:
        """Above 0: the other paid less."""
        both = ~(np.isnan(self.mine_N) | np.isnan(self.theirs_N))
        found: Floats = (self.mine_N - self.theirs_N)[both]
        return found

    def interval(self) -> tuple[float, float]:
        """The mean difference, and half of its 95 % interval over answers."""
        apart_N = self.apart_N
        half = 1.96 * float(apart_N.std(ddof=1)) / len(apart_N) ** 0.5 if len(apart_N) > 1 else float("nan")
        return float(apart_N.mean()), half

    def sentence(self, name: str, unit: str) -> str:
        mean, half = self.interval()
        better, worse = (self.name, name) if mean > 0 else (name, self.name)
        sure = "" if abs(mean) > half else ", which is within chance"
        won = float((self.apart_N > 0).mean())
        return (
            f"{better} pays {plain(abs(mean))} ± {rough(half)} {unit} less than {worse} in the mean{sure}; "
            f"{self.name} pays less for {share(won)} of the {self.of or 'answer'}s."
        )

    def as_dict(self) -> dict[str, Any]:
        mean, half = self.interval()
        return {"run": self.name, "mean": float(np.nanmean(self.theirs_N)), "difference": mean, "half": half}
