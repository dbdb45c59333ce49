"""A distribution over the whole numbers that knows no largest one.

B batch, K parts of a mixture.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


class WholeLogistic(NamedTuple):
    """A mixture of logistic distributions rounded to the whole numbers from 0 on."""

    log_weight_BK: Tensor
    location_BK: Tensor
    scale_BK: Tensor

    def cumulative(self, number_B: Tensor) -> Tensor:
        """P(n <= number)."""
        z_BK = (number_B[:, None].double() + 0.5 - self.location_BK) / self.scale_BK
        return (self.log_weight_BK.exp() * z_BK.sigmoid()).sum(-1)

    def log_probability(self, number_B: Tensor) -> Tensor:
        """`log(σ(b) - σ(a))` between the two borders of the number; all below 0 counts as 0."""
        number_B1 = number_B[:, None].double()
        upper_BK = (number_B1 + 0.5 - self.location_BK) / self.scale_BK
        lower_BK = (number_B1 - 0.5 - self.location_BK) / self.scale_BK
        # σ(b) - σ(a) = σ(b) σ(-a) (1 - e^(a - b)): no digits cancel however far out it is.
        inside_BK = F.logsigmoid(upper_BK) + F.logsigmoid(-lower_BK) + torch.log(-torch.expm1(lower_BK - upper_BK))
        part_BK = torch.where(number_B1 <= 0, F.logsigmoid(upper_BK), inside_BK)
        return torch.logsumexp(self.log_weight_BK + part_BK, dim=-1)

    def quantile(self, uniform_B: Tensor) -> Tensor:
        """The smallest n with P(n' <= n) > uniform, by bisection."""
        # Nothing can lie beyond: 60 scales out a logistic has less than a double's last digit left.
        high_B = (self.location_BK + 60 * self.scale_BK).amax(-1).clamp(min=1.0).ceil()
        low_B = torch.full_like(high_B, -1.0)
        while bool((open_B := high_B - low_B > 1).any()):
            middle_B = ((low_B + high_B) / 2).floor()
            above_B = self.cumulative(middle_B) > uniform_B
            high_B = torch.where(open_B & above_B, middle_B, high_B)
            low_B = torch.where(open_B & ~above_B, middle_B, low_B)
        return high_B.long()
