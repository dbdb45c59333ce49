"""Translations against references: BLEU, chrF and TER by sacrebleu (Post 2018), each with its signature."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from statewise.specs import UserError
from statewise.specs.translation import BleuTokens
from statewise.tasks.metric.optional import library
from statewise.tasks.metric.score import Score, check_pairs


class TranslationScores(NamedTuple):
    bleu: float
    signature: str  # of `bleu`
    bleu_tokenised_lower: float
    chrf: float
    ter: float
    exact: float

    @property
    def higher_is_better(self) -> dict[str, bool]:
        return {"bleu": True, "bleu_tokenised_lower": True, "chrf": True, "ter": False, "exact": True}


class QuickScores(NamedTuple):
    bleu: float
    exact: float


def translation_scores(
    hypotheses: Sequence[str], references: Sequence[str], *, tokenize: BleuTokens = "13a"
) -> TranslationScores:
    """Every figure of one set of translations; the functions below give each with its own signature."""
    whole = bleu(hypotheses, references, tokenize=tokenize)
    return TranslationScores(
        bleu=whole.value,
        signature=whole.signature,
        bleu_tokenised_lower=tokenised_bleu(hypotheses, references, lower=True).value,
        chrf=chrf(hypotheses, references).value,
        ter=ter(hypotheses, references).value,
        exact=exact_match(hypotheses, references).value,
    )


def quick_scores(hypotheses: Sequence[str], references: Sequence[str], *, tokenize: BleuTokens = "13a") -> QuickScores:
    """What is cheap enough to watch while training: TER alone takes longer than all the rest."""
    return QuickScores(bleu(hypotheses, references, tokenize=tokenize).value, exact_match(hypotheses, references).value)


def bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    tokenize: BleuTokens = "13a",
    more_references: Sequence[Sequence[str]] = (),
) -> Score:
    """Corpus BLEU of plain text, 0 to 100: sacrebleu tokenises it."""
    # `force` is only about a warning: the signature says how the text was split.
    metric = library("sacrebleu.metrics").BLEU(tokenize=tokenize, force=True)
    return _corpus("BLEU", metric, hypotheses, [references, *more_references])


def tokenised_bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    lower: bool = True,
    more_references: Sequence[Sequence[str]] = (),
) -> Score:
    """Corpus BLEU of text that is tokens and blanks already, split at the blanks alone.

    Many published figures are this one. It depends on the tokeniser and does not compare with `bleu`.
    """
    metric = library("sacrebleu.metrics").BLEU(tokenize="none", lowercase=lower, force=True)
    return _corpus("tokenised BLEU", metric, hypotheses, [references, *more_references])


def chrf(
    hypotheses: Sequence[str], references: Sequence[str], *, more_references: Sequence[Sequence[str]] = ()
) -> Score:
    """F-score of character n-grams, 0 to 100 (Popović 2015)."""
    return _corpus("chrF", library("sacrebleu.metrics").CHRF(), hypotheses, [references, *more_references])


def ter(
    hypotheses: Sequence[str], references: Sequence[str], *, more_references: Sequence[Sequence[str]] = ()
) -> Score:
    """Edits needed for each hundred words of the reference (Snover et al. 2006): the fewer the better."""
    metric = library("sacrebleu.metrics").TER()
    return _corpus("TER", metric, hypotheses, [references, *more_references], higher_is_better=False)


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """The share, 0 to 1, of lines that are the reference word by word; blanks between words are all one."""
    check_pairs(len(hypotheses), len(references), of="lines")
    hits = sum(a.split() == b.split() for a, b in zip(hypotheses, references))
    return Score("exact match", hits / len(references), True, "words", len(references))


def _corpus(
    name: str,
    metric: Any,
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    higher_is_better: bool = True,
) -> Score:
    for number, stream in enumerate(references, start=1):
        if isinstance(stream, str):
            raise UserError(f"reference {number} is one text", fix="give a list with one text a line")
        check_pairs(len(hypotheses), len(stream), of="lines")
    result = metric.corpus_score(list(hypotheses), [list(stream) for stream in references])
    return Score(name, float(result.score), higher_is_better, metric.get_signature().format(), len(hypotheses))
