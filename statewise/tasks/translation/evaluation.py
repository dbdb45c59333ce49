"""What is found of translations, and how it is shown: between what is trivial and what is perfect."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from statewise.decoding import LengthCalibration
from statewise.tasks.metric import perplexity
from statewise.tasks.metric.translation import Parting, bleu, chrf, exact_match, tokenised_bleu
from statewise.tasks.report import More, Report, percent, shows_report, unknown_note, worse_than_trivial

_GROUPS, _BEYOND = 5, 3  # of lengths that were learned from, and of longer ones


@shows_report
class TranslationEvaluation(NamedTuple):
    source_kind: str
    nats: float  # per target token, the true past told
    shuffled_nats: float | None  # of a class or a vector: the same, given the source of another row
    exact: float
    references: int  # for each source
    rows: int
    tokens: int
    uniform_nats: float
    frequent: dict[str, float]  # the most frequent target of training (the mean series), whatever the source
    frequent_target: str
    cut: int  # rows of which not all was read
    out_of_reach: int  # targets with more tokens than are written at most
    unknown: float  # share of the source's tokens that its vocabulary does not have,
    unknown_target: float  # and of the target's
    decoding: dict[str, Any]
    termination: str
    length_error: float  # tokens that the translations are too long or too short, in the mean
    length_exact: float  # share of translations with as many tokens as the target
    longest_learned: int | None  # tokens of the longest target of training
    by_length: list[dict[str, Any]]
    lengths: dict[str, Any] | None  # of drawn outputs, against the true ones: see `calibrate_lengths`
    # Of texts:
    bleu: float | None = None
    signature: str = ""
    parted: str = ""  # how words are told apart, where spaces alone do not, for figures that go by spaces
    bleu_tokenised_lower: float | None = None
    chrf: float | None = None
    ter: float | None = None
    token_error_rate: float | None = None
    copy: dict[str, float] | None = None  # a source that is a text, as its own translation
    # Of series:
    mse: float | None = None
    mae: float | None = None

    def report(self, name: str) -> Report:
        series = self.bleu is None
        shown = _SERIES if series else _CLASSES if self.source_kind == "class" else _TEXTS
        always = "the mean series" if series else f"always {_short(self.frequent_target)!r}"
        predictors = (
            ("perfect", _PERFECT),
            (name, {**self._asdict(), **_uncertainty(self.nats)}),
            ("copy of the source", self.copy or {}),
            (always, self.frequent),
            ("its sources shuffled", _uncertainty(self.shuffled_nats)),
            ("uniform (knows nothing)", _uncertainty(self.uniform_nats)),
        )
        rows = [
            (key, *(_cell(found, column) for column in shown))
            for key, found in predictors
            if shown.keys() & found.keys()
        ]
        cut = f" · {self.cut:,} longer than is read" if self.cut else ""
        if self.out_of_reach:
            cut += f" · {self.out_of_reach:,} targets are longer than decoding.max_ratio and extra let it write"
        cut += unknown_note(self.unknown, of="source") + unknown_note(self.unknown_target, of="target")
        cut += f" · {self.parted}" if self.parted else ""
        cut += f" · {self.references} references for each" if self.references > 1 else ""
        if shown is _TEXTS:
            rates = f"TER {self.ter:.2f}, token error rate {self.token_error_rate:.2f}"
            cut += f" · {self.signature} · {rates}, less is better (an empty text: 100)"
        return Report(
            tuple(shown.values()),
            tuple(rows),
            own=1,
            note=f"{self.rows:,} pairs · beam {self.decoding['beam']}{cut}",
            more=(self._length_table(),),
            warning=self._warning(name),
        )

    def _warning(self, name: str) -> str:
        if self.bleu is None:
            return worse_than_trivial(name, "mse", self.mse, {"the mean series": self.frequent["mse"]}, label="MSE")
        if self.copy is None:
            trivial = {"its own answer to the source of another row": self.shuffled_nats}
            return worse_than_trivial(name, "nats", self.nats, trivial, label="nats")
        trivial = {"a copy of the source": self.copy["bleu"], "the most frequent target": self.frequent["bleu"]}
        return worse_than_trivial(name, "bleu", self.bleu, trivial, label="BLEU")

    def _length_table(self) -> More:
        rows = []
        for one in map(LengthRange._make, (row.values() for row in self.by_length)):
            name = str(one.shortest) if one.shortest == one.longest else f"{one.shortest} to {one.longest}"
            name += " (never learned from)" if one.beyond else ""
            shares = (percent(one.exact), percent(one.right_length), f"{one.length_error:.2f}")
            rows.append((name, f"{one.rows:,}", *shares))
        every = (percent(self.exact), percent(self.length_exact), f"{self.length_error:.2f}")
        rows.append(("all", f"{self.rows:,}", *every))
        drawn = ""
        if self.lengths is not None:
            covered = ", ".join(f"{100 * float(s):.0f} %: {100 * v:.0f} %" for s, v in self.lengths["covered"].items())
            drawn = (
                f"\ndrawn lengths: PIT {self.lengths['pit_distance']:.2f} from uniform, mean "
                f"{self.lengths['drawn_mean']:.2f} for {self.lengths['true_mean']:.2f}, intervals hold {covered}"
            )
        return More(
            f"by tokens of the target, ended by {self.termination!r}{drawn}",
            ("target", "rows", "exact", "right length", "length error"),
            tuple(rows),
        )


# Of a class every target is right, and the one that is held out is one of many: only its probability counts.
_CLASSES = {"perplexity": "perplexity", "nats": "nats"}
_TEXTS = {"bleu": "BLEU", "bleu_tokenised_lower": "tok. lower BLEU", "chrf": "chrF", "exact": "exact", "nats": "nats"}
_SERIES = {"mse": "MSE", "mae": "MAE", "length_exact": "right length", "nats": "nats"}
_PERFECT = {"bleu": 100.0, "bleu_tokenised_lower": 100.0, "chrf": 100.0, "exact": 1.0, "nats": 0.0, "perplexity": 1.0}
_PERFECT |= {"mse": 0.0, "mae": 0.0, "length_exact": 1.0}
_DIGITS = {"mse": 4, "mae": 4, "nats": 3}


def _uncertainty(nats: float | None) -> dict[str, float]:
    return {} if nats is None else {"nats": nats, "perplexity": perplexity(nats)}


def _cell(found: Mapping[str, Any], name: str) -> str:
    if name not in found:
        return ""
    return percent(found[name]) if name.endswith("exact") else f"{found[name]:.{_DIGITS.get(name, 2)}f}"


def _short(text: str) -> str:
    return text if len(text) <= 24 else f"{text[:23]}…"


def baseline(
    texts: Sequence[str], references: Sequence[str], parting: Parting, more_references: Sequence[Sequence[str]] = ()
) -> dict[str, float]:
    """Without TER, which may take minutes where lines are long and nothing fits."""
    written, true, more = parting.words(texts), parting.words(references), list(map(parting.words, more_references))
    return {
        "bleu": bleu(texts, references, tokenize=parting.tokenize, more_references=more_references).value,
        "bleu_tokenised_lower": tokenised_bleu(written, true, more_references=more).value,
        "chrf": chrf(texts, references, more_references=more_references),
        "exact": exact_match(written, true, more_references=more),
    }


class LengthRange(NamedTuple):
    """Targets of `shortest` to `longest` tokens."""

    shortest: int
    longest: int
    beyond: bool  # longer than any target of the training part
    rows: int
    exact: float  # share of outputs that are the target, word by word
    right_length: float  # share of outputs of the target's length
    length_error: float  # tokens that outputs are too long or too short, in the mean


def by_length(
    true_N: Sequence[int], written_N: Sequence[int], exact_N: Sequence[bool], *, learned: int | None
) -> list[LengthRange]:
    """Rows grouped by the length of their targets; `learned` is the longest of the training part."""
    true, written, exact = np.asarray(true_N), np.asarray(written_N), np.asarray(exact_N)
    most = np.iinfo(np.int64).max if learned is None else learned
    every = np.unique(true)
    groups = []
    for lengths, wanted in ((every[every <= most], _GROUPS), (every[every > most], _BEYOND)):
        groups += np.array_split(lengths, min(wanted, len(lengths))) if len(lengths) else []
    found = []
    for group in groups:
        some = np.isin(true, group)
        apart = np.abs(written[some] - true[some])
        found.append(
            LengthRange(
                int(group[0]),
                int(group[-1]),
                bool(group[0] > most),
                int(some.sum()),
                float(exact[some].mean()),
                float((apart == 0).mean()),
                float(apart.mean()),
            )
        )
    return found


def for_machines(length_calibration: LengthCalibration) -> dict[str, Any]:
    """A calibration as a table of lists and numbers."""
    table = length_calibration._asdict()
    table["pit"] = list(length_calibration.pit)
    table["covered"] = {f"{share:g}": held for share, held in length_calibration.covered.items()}
    table["reliability"] = [
        {"drawn": drawn, "true": true, "rows": rows} for drawn, true, rows in length_calibration.reliability
    ]
    return table
