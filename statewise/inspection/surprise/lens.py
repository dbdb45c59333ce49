"""The lens `surprise`: surprisal per token or answer, calibration, by position, and against another model."""

from typing import assert_never

import numpy as np
from pydantic import Field

from statewise.display import Progress, alone, plain, share, ticking, visible, whole
from statewise.figures import Axis, Column, Drawing, Figure, Passage, Series, merge_split_characters, table_of, widened
from statewise.inspection.finding import Finding, Named
from statewise.inspection.lens import Lens
from statewise.inspection.subject import Subject, open_subject
from statewise.inspection.surprise.choices import found_in_choices
from statewise.inspection.surprise.forecasts import found_in_forecasts
from statewise.inspection.surprise.measure import (
    Place,
    Rival,
    Surprise,
    measure,
    places,
    reliability,
    useful_context,
)
from statewise.specs import Spec, UserError, option
from statewise.tasks import Choices, Courses, Floats, Specimens, TextSpecimens

LEVELS = (0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0)  # bits: where a deeper colour begins
_COMPARED = 4000  # tokens that two models are compared on, where no text is given


class SurpriseSettings(Spec):
    against: str | None = Field(None, description="another run, to be compared on the same text")
    shown: int = Field(1200, ge=1, le=5000, description="tokens of the text that are shown in colour")
    worst: int = Field(12, ge=1, le=200, description="tokens that are listed")


def apply(subject: Subject, settings: SurpriseSettings, progress: Progress) -> Finding:
    if not isinstance(subject.specimens, TextSpecimens):
        assert subject.specimens is not None
        return _on_answers(subject, subject.specimens, settings, progress)
    if settings.against is not None and subject.text is None:
        subject = _with_text(subject)
    text = subject.text_rows
    surprise = measure(text, progress)
    context = useful_context(surprise.by_position)
    figures: list[Drawing] = [
        _passage(text, surprise, settings.shown),
        _position(surprise, context),
        reliability(surprise.bins, surprise.error, of="Tokens"),
    ]
    tables = [_worst(text, surprise, settings.worst)]
    sentences = [
        f"{subject.name} has a mean surprisal of {plain(surprise.mean)} bits a token on {text.source} "
        f"({len(surprise.bits_T):,} tokens) and a mean entropy of {plain(surprise.entropy)}; its first guess is right "
        f"{share(surprise.accuracy)} of the time, with a calibration error of {share(surprise.error)}.",
        _context_sentence(surprise, context),
    ]
    data = {
        "bits_per_token": surprise.mean,
        "expected_bits_per_token": surprise.entropy,
        "tokens": len(surprise.bits_T),
        "accuracy": surprise.accuracy,
        "calibration_error": surprise.error,
        "bins": [bucket._asdict() for bucket in surprise.bins],
        "by_position": [stretch._asdict() for stretch in surprise.by_position],
        "useful_context": context,
        "bits": [round(bits, 6) for bits in surprise.bits_T[: settings.shown].tolist()],
    }
    if settings.against is not None:
        other = open_subject(settings.against, text=subject.text, mixer=subject.mixers)
        if other.task != subject.task:
            raise UserError(
                f"{settings.against!r} is a {other.task} run and cannot be compared with {subject.name}",
                fix="name another language model",
            )
        read = measure(other.text_rows, progress)
        apart = places(_pieces(text, surprise), _pieces(other.text_rows, read))
        figures.insert(0, _difference(apart, subject.name, other.name, settings.shown))
        tables.insert(0, _disagreements(apart, subject.name, other.name, settings.worst))
        total = sum(part.gap for part in apart)
        letters = max(sum(len(part.piece) for part in apart), 1)
        better, worse = (other.name, subject.name) if total > 0 else (subject.name, other.name)
        sentences.insert(0, f"{better} needs {plain(abs(total) / letters)} bits a character less than {worse}.")
        data["against"] = {
            "run": other.name,
            "bits": [float(bits) for bits in (surprise.bits_T.sum(), read.bits_T.sum())],
            "bits_per_character": [float(bits) / letters for bits in (surprise.bits_T.sum(), read.bits_T.sum())],
            "places": len(apart),
        }
    missing: tuple[str, ...] = ()
    if len(surprise.bits_T) > settings.shown:
        missing = (
            f"The text is shown to its token {settings.shown:,}; the numbers are of all {len(surprise.bits_T):,}.",
        )
    return Finding("surprise", "Surprise", subject.name, tuple(sentences), tuple(figures), tuple(tables), data, missing)


def _with_text(subject: Subject) -> Subject:
    """Held-out tokens as a text, which a model with another tokenizer can read too."""
    assert subject.run is not None, "only a run can be compared with another"
    text = subject.text_rows
    named = list(zip(text.names(0, _COMPARED), text.tokens_T[:_COMPARED].tolist()))
    ordered = named[::-1] if text.backwards else named
    written = "".join(name for name, token in ordered if token != text.end_id)
    other = open_subject(subject.run, text=written + "\n" if " " not in written else written)
    other.text_rows.source = text.source
    return other


def _pieces(text: TextSpecimens, surprise: Surprise) -> list[tuple[str, float]]:
    """The text's pieces in its own order with their surprisal; parts of a character are added up."""
    names = text.names()
    costs = [0.0, *surprise.bits_T.tolist()]  # the first token is given
    ordered = list(zip(names, costs, text.tokens_T.tolist()))
    if text.backwards:
        ordered.reverse()
    return merge_split_characters([(name, cost) for name, cost, token in ordered if token != text.end_id])


def _passage(text: TextSpecimens, surprise: Surprise, most: int) -> Passage:
    names = text.names(0, most + 1)
    tokens = [(name, bits) for name, bits in zip(names[1:], surprise.bits_T.tolist())]
    if text.backwards:
        tokens.reverse()
    pieces = merge_split_characters(tokens)
    shown = max(pieces, key=lambda piece: piece[1])
    parts = " A character in several tokens has their sum." if len(pieces) < len(tokens) else ""
    return Passage(
        "surprise-text",
        "Surprisal by token",
        tuple(pieces),
        "bits",
        reading=f"Darker: higher surprisal, that is, lower probability.{parts}",
        finding=f"Of what is shown, {alone(shown[0])!r} has the highest surprisal, {plain(shown[1])} bits.",
        bounds=widened(LEVELS, [bits for _, bits in pieces]),
    )


def _position(surprise: Surprise, context: int | None) -> Figure:
    middle, means, halves = zip(
        *(((stretch.low + stretch.high) / 2 + 1, stretch.mean, stretch.half) for stretch in surprise.by_position)
    )
    return Figure(
        "surprise-position",
        "Surprisal by context length",
        "line",
        Axis("tokens read before, counted from 1", "log", "whole", base=2),
        Axis("bits per token"),
        (Series.with_band("mean", middle, means, halves),),
        reading="Mean surprisal of tokens by the number of tokens read before them; the band is a 95 % interval.",
        finding=_context_sentence(surprise, context),
    )


def _context_sentence(surprise: Surprise, context: int | None) -> str:
    if context is None:
        return "The text is too short to say how much context helps."
    first, last = surprise.by_position[0], surprise.by_position[-1]
    ends = f"The first token after a reset costs {plain(first.mean)} bits, those after {last.low:,} {plain(last.mean)}"
    if context >= last.low:
        return f"{ends}: more context still helps at the longest one measured."
    beyond = "1 token" if context <= 1 else f"about {context:,} tokens"
    return f"{ends}: beyond {beyond} more context does not lower it significantly."


def _worst(text: TextSpecimens, surprise: Surprise, most: int) -> Named:
    def before(at: int) -> str:
        return visible("".join(text.names(max(at - 24, 0), at + 1)))

    table = table_of(
        surprise.bits_T.argsort(descending=True)[:most].tolist(),
        (Column("token", "token"), lambda at: at + 1, whole),
        (Column("before", "text before it", text=True), before, None),
        (Column("piece", "token", text=True), lambda at: alone(text.names(at + 1, at + 2)[0]), None),
        (Column("bits", "surprise", "bits"), lambda at: float(surprise.bits_T[at]), plain),
    )
    how = "Tokens in the order of their surprisal."
    return Named("surprise-worst", "The most surprising tokens", how, table)


def _difference(apart: list[Place], first: str, second: str, most: int) -> Passage:
    shown = apart[:most]
    mine = sum(part.gap > 0 for part in apart)
    return Passage(
        "surprise-difference",
        f"Where {first} and {second} differ",
        tuple((part.piece, part.gap) for part in shown),
        "bits",
        reading=f"Orange: {second} gave it a higher probability than {first}; blue: a lower one.",
        finding=f"{second} has the lower surprisal at {mine:,} of {len(apart):,} pieces.",
        bounds=widened(LEVELS, [part.gap for part in shown]),
        signed=True,
    )


def _disagreements(apart: list[Place], first: str, second: str, most: int) -> Named:
    table = table_of(
        sorted(apart, key=lambda part: -abs(part.gap))[:most],
        (Column("before", "after", text=True), lambda part: visible(part.before), None),
        (Column("piece", "the piece", text=True), lambda part: alone(part.piece), None),
        (Column("first", first, "bits"), lambda part: part.first, plain),
        (Column("second", second, "bits"), lambda part: part.second, plain),
        (Column("gap", "gap", "bits"), lambda part: part.gap, plain),
    )
    reading = f"The largest gaps first; above 0, {second} has the lower surprisal."
    return Named("surprise-disagreements", "The largest differences", reading, table)


# -------------------------------------------------------------------- answers of other tasks


def _on_answers(subject: Subject, specimens: Specimens, settings: SurpriseSettings, progress: Progress) -> Finding:
    answers = _answers(specimens, progress)
    rival = None if settings.against is None else _rival(subject, answers, settings.against, progress)
    match answers:
        case Choices():
            shown = settings.shown if "shown" in settings.model_fields_set else None
            return found_in_choices(subject.name, specimens, answers, rival, shown=shown, worst=settings.worst)
        case Courses():
            return found_in_forecasts(subject.name, specimens, answers, rival, worst=settings.worst)
        case _:
            assert_never(answers)


def _answers(specimens: Specimens, progress: Progress) -> Choices | Courses:
    with ticking(progress, "asking for answers") as tick:
        return specimens.answers(tick)


def _rival(subject: Subject, mine: Choices | Courses, against: str, progress: Progress) -> Rival:
    """The losses of another run on the same answers."""
    other = open_subject(against, text=subject.text, data=subject.data, mixer=subject.mixers)
    if other.specimens is None or other.task != subject.task:
        raise UserError(
            f"{against!r} is a {other.task} run and cannot be compared with {subject.name}",
            fix=f"name another {subject.task} run",
        )
    theirs = _answers(other.specimens, progress)
    match (mine, theirs):
        case (Choices(), Choices()) if len(mine.nats_N) == len(theirs.nats_N) and mine.names == theirs.names:
            return Rival(other.name, mine.nats_N, theirs.nats_N)
        case (Choices(), Choices()) if subject.specimens is not None and subject.specimens.words.writes:
            # Another tokenizer, the same texts: the loss of a whole row can be compared.
            if len(subject.specimens) == len(other.specimens):
                rows = len(other.specimens)
                return Rival(other.name, _by_row(mine, rows), _by_row(theirs, rows), of="row")
        case (Courses(), Courses()) if mine.loss_WH.shape == theirs.loss_WH.shape and mine.loss == theirs.loss:
            return Rival(other.name, mine.loss_WH.mean(1), theirs.loss_WH.mean(1))
        case _:
            pass
    raise UserError(
        f"{against!r} does not answer the same questions as {subject.name}",
        fix=f"compare runs that were trained on the same data, or name one file for both: {option('data', 'FILE')}",
    )


def _by_row(answers: Choices, rows: int) -> Floats:
    """The sum of the losses of each row."""
    return np.bincount(answers.row_N, weights=answers.nats_N, minlength=rows).astype(np.float64)


LENS = Lens(
    "surprise",
    "What every token, row or forecast cost; calibration; cost against position; two models on the same.",
    quick=True,
    settings=SurpriseSettings,
    apply=apply,
)
