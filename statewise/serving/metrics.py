"""What a server counts: written by the engine and by the HTTP side, read as Prometheus text.

Recording is a few additions on plain lists, because it happens for every token; one thread writes each metric.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_PREFIX = "statewise_"


class Histogram:
    """How many observations lie in each interval, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Iterable[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times


class Metrics:
    """Counters and histograms of a server; names as in other servers, so that dashboards carry over."""

    def __init__(self) -> None:
        self._histograms = {
            "time_to_first_token_seconds": (first := Histogram(_SECONDS)),
            "inter_token_latency_seconds": (gap := Histogram(_SECONDS)),
            "e2e_request_latency_seconds": (request := Histogram(_SECONDS)),
            "queue_time_seconds": (queue := Histogram(_SECONDS)),
            "engine_step_seconds": (step := Histogram(_SECONDS)),
            "batch_size": (batch := Histogram(_ROWS)),
        }
        self.first_token, self.token_gap, self.request = first.observe, gap.observe, request.observe
        self.queue, self._step, self._batch = queue.observe, step.observe, batch.observe
        self._finished: Counter[str] = Counter()
        self._rejected: Counter[str] = Counter()
        self._prompt_tokens = self._generated = 0

    def observe_step(self, seconds: float, rows: int) -> None:
        """One step of the engine for `rows` texts."""
        self._step(seconds)
        self._batch(rows)

    def finished(self, reason: str) -> None:
        """A text ended: stop, length, cancelled or error."""
        self._finished[reason] += 1

    def rejected(self, reason: str) -> None:
        """A request was refused."""
        self._rejected[reason] += 1

    def prompt_tokens(self, count: int) -> None:
        self._prompt_tokens += count

    def generated(self, count: int) -> None:
        self._generated += count

    def lines(self, gauges: Mapping[str, float]) -> str:
        """All of it and the gauges, in Prometheus' text format. A gauge may carry labels: `state_bytes{model="x"}`."""
        made: list[str] = []
        seen: set[str] = set()
        for name, value in gauges.items():
            bare = name.partition("{")[0]
            if bare not in seen:
                made.append(f"# TYPE {_PREFIX}{bare} gauge")
                seen.add(bare)
            made.append(f"{_PREFIX}{name} {value:g}")
        counters: dict[str, Mapping[str, int]] = {
            "prompt_tokens_total": {"": self._prompt_tokens},
            "generation_tokens_total": {"": self._generated},
            "request_success_total": {f'{{finish_reason="{reason}"}}': n for reason, n in self._finished.items()},
            "rejected_total": {f'{{reason="{reason}"}}': n for reason, n in self._rejected.items()},
        }
        for name, values in counters.items():
            made.append(f"# TYPE {_PREFIX}{name} counter")
            made += [f"{_PREFIX}{name}{label} {value}" for label, value in values.items()]
        for name, histogram in self._histograms.items():
            made.append(f"# TYPE {_PREFIX}{name} histogram")
            below = 0
            for bound, count in zip((*map(str, histogram.bounds), "+Inf"), histogram.counts):
                below += count
                made.append(f'{_PREFIX}{name}_bucket{{le="{bound}"}} {below}')
            made += [f"{_PREFIX}{name}_sum {histogram.total:g}", f"{_PREFIX}{name}_count {below}"]
        return "\n".join(made) + "\n"
