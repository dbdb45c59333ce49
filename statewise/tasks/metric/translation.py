"""Translations against references: BLEU, chrF and TER by sacrebleu (Post 2018) with signatures, and token errors."""

from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from statewise.data import only_chinese
from statewise.specs import BleuTokens, SacreTokens, UserError
from statewise.tasks.metric.score import check_pairs

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric


class TranslationScores(NamedTuple):
    bleu: float
    signature: str  # of `bleu`
    bleu_tokenised_lower: float
    chrf: float
    ter: float
    token_error_rate: float
    exact: float


class Bleu(NamedTuple):
    value: float
    signature: str  # what changes its meaning: how the text was split, case, references


def _as_they_are(text: str) -> str:
    return text


class Parting(NamedTuple):
    """What counts as a word of the target: `tokenize` is sacrebleu's way to part them for BLEU.

    Figures that go by spaces take a text after `part`, which puts spaces where the text itself has none.
    """

    tokenize: SacreTokens = "13a"
    part: Callable[[str], str] = _as_they_are
    note: str = ""  # what `part` does, for whoever reads the figures

    def words(self, texts: Sequence[str]) -> list[str]:
        return list(map(self.part, texts))


BY_SPACES = Parting()


def sacre_tokens(tokenize: BleuTokens, references: Sequence[str], *, characters: bool) -> SacreTokens:
    """auto: what suits the script of the references; `characters`: no spaces part their words."""
    if tokenize != "auto":
        return tokenize
    return "13a" if not characters else "zh" if only_chinese(references) else "char"


def translation_scores(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    parting: Parting = BY_SPACES,
    more_references: Sequence[Sequence[str]] = (),
) -> TranslationScores:
    """Every metric of one set of translations."""
    whole = bleu(hypotheses, references, tokenize=parting.tokenize, more_references=more_references)
    written, true = parting.words(hypotheses), parting.words(references)
    more = list(map(parting.words, more_references))
    return TranslationScores(
        bleu=whole.value,
        signature=whole.signature,
        bleu_tokenised_lower=tokenised_bleu(written, true, more_references=more).value,
        chrf=chrf(hypotheses, references, more_references=more_references),
        ter=ter(written, true, more_references=more),
        token_error_rate=token_error_rate(written, true, more_references=more),
        exact=exact_match(written, true, more_references=more),
    )


def quick_scores(
    hypotheses: Sequence[str], references: Sequence[str], *, parting: Parting = BY_SPACES
) -> dict[str, float]:
    """What is cheap enough to watch while training: TER alone takes longer than all the rest."""
    exact = exact_match(parting.words(hypotheses), parting.words(references))
    return {"bleu": bleu(hypotheses, references, tokenize=parting.tokenize).value, "exact": exact}


def bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    tokenize: SacreTokens = "13a",
    more_references: Sequence[Sequence[str]] = (),
) -> Bleu:
    """Corpus BLEU of plain text, 0 to 100: sacrebleu tokenises it."""
    # `force` is only about a warning: the signature says how the text was split.
    metric = _sacrebleu().BLEU(tokenize=tokenize, force=True)
    score = _corpus(metric, hypotheses, [references, *more_references])
    return Bleu(score, metric.get_signature().format())


def tokenised_bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    lower: bool = True,
    more_references: Sequence[Sequence[str]] = (),
) -> Bleu:
    """Corpus BLEU of text that is tokens and blanks already, split at the blanks alone.

    Many published figures are this one. It depends on the tokeniser and does not compare with `bleu`.
    """
    metric = _sacrebleu().BLEU(tokenize="none", lowercase=lower, force=True)
    score = _corpus(metric, hypotheses, [references, *more_references])
    return Bleu(score, metric.get_signature().format())


def chrf(
    hypotheses: Sequence[str], references: Sequence[str], *, more_references: Sequence[Sequence[str]] = ()
) -> float:
    """F-score of character n-grams, 0 to 100 (Popović 2015)."""
    return _corpus(_sacrebleu().CHRF(), hypotheses, [references, *more_references])


def ter(
    hypotheses: Sequence[str], references: Sequence[str], *, more_references: Sequence[Sequence[str]] = ()
) -> float:
    """Edits needed for each hundred words of the reference (Snover et al. 2006): the fewer the better."""
    return _corpus(_sacrebleu().TER(), hypotheses, [references, *more_references])


def token_error_rate(
    hypotheses: Sequence[str], references: Sequence[str], *, more_references: Sequence[Sequence[str]] = ()
) -> float:
    """Insertions, deletions and substitutions (Levenshtein 1966) for each hundred words of the reference.

    TER without moves and with capitals: the word error rate. Of several references the nearest counts, over their mean
    length, as in TER.
    """
    edits, words = 0, 0.0
    streams = [references, *more_references]
    for stream in streams:
        check_pairs(len(hypotheses), len(stream), of="lines")
    for written, *true in zip(hypotheses, *streams):
        several = [reference.split() for reference in true]
        edits += min(levenshtein(written.split(), reference) for reference in several)
        words += sum(map(len, several)) / len(several)
    return 100 * edits / max(words, 1.0)


def levenshtein(one: Sequence[str], other: Sequence[str]) -> int:
    """The fewest insertions, deletions and substitutions that make one the other."""
    ids: dict[str, int] = {}
    code_N = np.array([ids.setdefault(word, len(ids)) for word in other], dtype=np.int64)
    place = np.arange(len(other) + 1)
    cost = place
    for word in one:
        instead = cost[:-1] + (code_N != ids.get(word, -1))
        best = np.concatenate([cost[:1] + 1, np.minimum(cost[1:] + 1, instead)])
        cost = np.minimum.accumulate(best - place) + place  # insertions, any number at once
    return int(cost[-1])


def exact_match(
    hypotheses: Sequence[str], references: Sequence[str], *, more_references: Sequence[Sequence[str]] = ()
) -> float:
    """The share, 0 to 1, of lines that are a reference word by word; blanks between words are all one."""
    hit_N = exact_lines(hypotheses, references, more_references=more_references)
    return sum(hit_N) / len(references)


def exact_lines(
    hypotheses: Sequence[str], references: Sequence[str], *, more_references: Sequence[Sequence[str]] = ()
) -> list[bool]:
    for stream in (references, *more_references):
        check_pairs(len(hypotheses), len(stream), of="lines")
    several = zip(hypotheses, references, *more_references)
    return [any(written.split() == reference.split() for reference in true) for written, *true in several]


def _sacrebleu() -> ModuleType:
    """Imported when a translation is scored: its tokenizers take longer to import than the rest of a task."""
    return import_module("sacrebleu.metrics")


def _corpus(metric: "Metric", hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    for number, stream in enumerate(references, start=1):
        if isinstance(stream, str):
            raise UserError(f"reference {number} is one text", fix="give a list with one text a line")
        check_pairs(len(hypotheses), len(stream), of="lines")
    return float(metric.corpus_score(list(hypotheses), [list(stream) for stream in references]).score)
