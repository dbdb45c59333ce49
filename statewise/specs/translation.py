"""Translation as data: pairs of texts, a model over them, how it writes and how it ends.

The model is an encoder-decoder, or any one machine of the lineage that reads the source and then goes on with the
target.
"""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from statewise.specs.base import Paths, Spec, default_kind
from statewise.specs.language_model import TOKENIZER_HELP
from statewise.specs.model import AnyMixerSpec
from statewise.specs.run import RunSpec
from statewise.specs.seq2seq import LinearEncoderSpec, Seq2SeqSpec
from statewise.specs.train import ForcingSpec, TeacherForcing

SacreTokens = Literal["13a", "intl", "zh", "char"]
BleuTokens = Literal["auto", SacreTokens]


class PairDataSpec(Spec):
    layout_of_files: ClassVar[tuple[str, ...]] = (
        *Spec.layout_of_table,
        "source_column",
        "target_column",
        "empty",
    )

    train: Paths = Field(
        (),
        description="files of pairs, or of sources with `target` beside them; without `target`, plain text files are "
        "sources and then as many targets; empty: embedded pairs",
    )
    target: Paths = Field((), description="targets of `train`, line by line")
    embedded: Literal["phrases", "copy", "reverse"] = Field(
        "phrases", description="which texts, when `train` is empty; copy, reverse: 2 to 10 letters in random order"
    )
    longer: int = Field(
        1, ge=1, le=100, description="copy, reverse: held-out texts have 10 times this many letters; 1: 2 to 10"
    )
    validation: Paths = Field((), description="files held out, as `train`; empty: a share of `train`")
    validation_target: Paths = Field((), description="targets of `validation`, line by line")
    held_out: float = Field(
        0.1, gt=0, lt=1, description="share held out when `validation` is empty; equal sources stay together"
    )
    format: Literal["auto", "csv", "tsv", "quoted-tsv", "jsonl", "scan", "gettext"] = Field(
        "auto",
        description="how a file of pairs is written; auto: by its ending; scan: lines of 'IN: … OUT: …'; gettext: "
        "`train` are folders of .mo catalogs, or nothing: those of the installed packages",
    )
    language: str | None = Field(None, description="gettext: of which language the catalogs are, such as de or pt_BR")
    header: Literal["auto", "yes", "no"] = Field("auto", description="auto: where a column is named")
    delimiter: str | None = Field(None, min_length=1, description="between columns; default: a comma or a tab")
    encoding: str = Field("utf-8", description="of the files, such as latin-1 or utf-16")
    source_kind: Literal["text", "class", "vector"] = Field(
        "text", description="what a source is: a text, the name of a class, or numbers"
    )
    target_kind: Literal["text", "series"] = Field("text", description="what a target is: a text, or numbers in time")
    levels: int = Field(128, ge=2, le=65_536, description="target_kind = series: each number is rounded to one of them")
    source_column: str | int | tuple[str | int, ...] = Field(
        0, description="column of the source, by name or by number from 0; of a vector also several"
    )
    target_column: str | int = Field(1, description="column of the target")
    empty: Literal["refuse", "skip", "keep"] = Field("refuse", description="pairs of which one side is empty")
    tokenizer: str = Field("word", min_length=1, description=TOKENIZER_HELP)
    vocab: int | None = Field(None, ge=2, description="largest vocabulary; default: that of the tokenizer")
    lower: bool = Field(False, description="read and write as if all were in lower case")
    min_count: int = Field(1, ge=1, description="rarer words are unknown")
    shared_vocab: bool = Field(False, description="one vocabulary, learned from both sides")
    target_tokenizer: str | None = Field(None, min_length=1, description="default: as for the source")
    target_vocab: int | None = Field(None, ge=2, description="default: as for the source")
    target_lower: bool | None = Field(None, description="default: as for the source")
    target_min_count: int | None = Field(None, ge=1, description="default: as for the source")
    bleu: BleuTokens = Field(
        "auto",
        description="how sacrebleu parts the target's words for BLEU; auto: 13a, but zh or char where no spaces do",
    )
    reverse: bool = Field(False, description="read the source from its end (Sutskever et al. 2014)")
    longest: int = Field(200, ge=1, description="tokens of a source or target")
    beyond: Literal["cut", "leave-out", "refuse"] = Field(
        "leave-out", description="longer training pairs; what is evaluated or translated is cut, never left out"
    )

    @model_validator(mode="after")
    def _two_sides(self) -> Self:
        for source, target in (("train", "target"), ("validation", "validation_target")):
            if getattr(self, target) and not getattr(self, source):
                raise ValueError(f"{target} is set, but {source} is not; name the sources too")
        if self.target and self.validation and not self.validation_target:
            raise ValueError("train has a target beside it, validation has none; set validation_target")
        if self.target and self.format != "auto":
            raise ValueError(f"format = {self.format!r} is for files of pairs; leave it out where target is set")
        if (self.format == "gettext") != (self.language is not None):
            raise ValueError("format = 'gettext' and language go together; set both or neither")
        if isinstance(self.source_column, tuple) and (self.source_kind != "vector" or not self.source_column):
            raise ValueError("source_column names several columns, which only a vector has; set source_kind = 'vector'")
        if (self.longer > 1 or self.embedded != "phrases") and (self.train or self.source_kind != "text"):
            raise ValueError("embedded and longer choose embedded texts; leave them out, or train and source_kind")
        if self.longer > 1 and self.embedded == "phrases":
            raise ValueError(f"longer = {self.longer}, but phrases have one length; set embedded = 'copy' or 'reverse'")
        if self.embedded != "phrases" and 10 * self.longer >= self.longest:
            raise ValueError(f"longer = {self.longer} goes beyond longest = {self.longest}; raise longest")
        if self.source_kind != "text":
            for name in ("shared_vocab", "reverse"):
                if getattr(self, name):
                    raise ValueError(f"{name} is for sources that are texts, but source_kind is {self.source_kind!r}")
        if self.target_kind == "series" and self.shared_vocab:
            raise ValueError("shared_vocab is for targets that are texts, but target_kind is 'series'")
        own = ("target_tokenizer", "target_vocab", "target_lower", "target_min_count")
        said = [name for name in own if getattr(self, name) is not None]
        if self.shared_vocab and said:
            raise ValueError(f"{said[0]} is set, but with shared_vocab both sides have one vocabulary")
        return self


class TokenObjectiveSpec(Spec):
    smoothing: float = Field(0.0, ge=0, lt=1, description="share of the target that is spread over all tokens")


class DecodingSpec(Spec):
    """How a translation is searched for."""

    beam: int = Field(5, ge=1, description="hypotheses kept open; 1: the likeliest token at every step")
    length_penalty: float = Field(
        0.6, ge=0, description="0 ranks by probability, which favours short ones (Wu et al. 2016)"
    )
    coverage_penalty: float = Field(0.0, ge=0, description="costs source tokens that were not looked at")
    n_best: int = Field(1, ge=1, description="hypotheses given for each source")
    max_ratio: float = Field(
        1.5,
        gt=0,
        description="longest output: this times the source's tokens (for a class or a vector: the longest target of "
        "training), plus `extra`",
    )
    extra: int = Field(10, ge=0, description="see `max_ratio`")
    min_length: int = Field(0, ge=0, description="tokens of the shortest output")
    unknown: bool = Field(False, description="whether the unknown word may be written")
    align: bool = Field(False, description="whether predictions tell each token's weights over the source")
    watch: int = Field(
        100, ge=0, description="held-out sources translated greedily at each evaluation while training; 0: none"
    )
    draws: int = Field(
        20, ge=0, description="outputs drawn for each source by `evaluate`, to calibrate their lengths; 0: none"
    )

    @model_validator(mode="after")
    def _best_of_those_kept(self) -> Self:
        if self.n_best > self.beam:
            raise ValueError(f"n_best = {self.n_best} is more than beam = {self.beam}; widen the beam")
        if self.min_length > self.extra:
            raise ValueError(
                f"min_length = {self.min_length} may exceed the longest output; set extra at least so high"
            )
        return self


class TerminationSpec(Spec):
    """How a target ends."""

    kind: Literal["end", "bernoulli", "remaining"] = Field(
        "end",
        description="one more symbol to choose (end), a yes or no at every step (bernoulli), or the length first and "
        "then the steps to go as an input (remaining)",
    )


TranslatorSpec = Annotated[Annotated[Seq2SeqSpec | AnyMixerSpec, Field(discriminator="kind")], default_kind("seq2seq")]


class TranslationSpec(RunSpec):
    file_settings: ClassVar[tuple[str, ...]] = ("train", "target", "validation", "validation_target")

    task: Literal["translation"] = "translation"
    data: PairDataSpec = PairDataSpec()
    model: TranslatorSpec = Field(
        Seq2SeqSpec(), description="seq2seq; or one machine that reads the source and continues with the target"
    )
    objective: TokenObjectiveSpec = TokenObjectiveSpec()
    forcing: ForcingSpec = Field(TeacherForcing(), description="teacher, free, or a schedule")
    decoding: DecodingSpec = DecodingSpec()
    termination: TerminationSpec = TerminationSpec()

    @property
    def name(self) -> str:
        if isinstance(self.model, Seq2SeqSpec):
            return f"{self.model.encoder.known_as}-{self.model.decoder.known_as}-translation"
        end = "" if self.termination.kind == "end" else f"-{self.termination.kind}"
        return f"{self.model.known_as}{end}-translation"

    @model_validator(mode="before")
    @classmethod
    def _what_follows_from_the_model(cls, table: Any) -> Any:
        """Defaults that depend on the model and the source.

        One machine has one vocabulary; a class or a vector needs no layers; without an end symbol the beam is 1.
        """
        if not isinstance(table, dict):
            return table
        kind = _said(table.get("model"), "kind", "seq2seq")
        source, target = (_said(table.get("data"), f"{side}_kind", "text") for side in ("source", "target"))
        if kind == "seq2seq" and source != "text":
            model = _filled(table.get("model"), "context", "both", Seq2SeqSpec())
            encoder = _filled(_said(model, "encoder", None), "kind", "linear", LinearEncoderSpec())
            if isinstance(model, dict):
                model = {**model, "encoder": encoder}
            table = {**table, "model": model}
        elif kind != "seq2seq" and source == target == "text":
            table = {**table, "data": _filled(table.get("data"), "shared_vocab", True, PairDataSpec())}
        if _said(table.get("termination"), "kind", "end") != "end":
            table = {**table, "decoding": _filled(table.get("decoding"), "beam", 1, DecodingSpec())}
        return table

    @model_validator(mode="after")
    def _parts_agree(self) -> Self:
        if self.train.judge in ("bleu", "exact", "length_exact") and not self.decoding.watch:
            raise ValueError(f"train.judge = {self.train.judge!r} needs translations; set decoding.watch above 0")
        if isinstance(self.model, Seq2SeqSpec):
            self._encoder_decoder_agrees(self.model)
        else:
            self._one_machine_agrees(self.model)
        return self

    def _encoder_decoder_agrees(self, model: Seq2SeqSpec) -> None:
        if self.termination.kind != "end":
            raise ValueError(
                f"termination.kind = {self.termination.kind!r} is for one machine that reads and writes; an "
                "encoder-decoder ends by a symbol: leave it out, or set model.kind to gru, transformer, …"
            )
        if model.encoder.kind == "linear" and self.data.source_kind == "text" and model.source == "last":
            raise ValueError(
                "model.encoder.kind = 'linear' reads every token by itself, so the last one is no summary; set "
                "model.source = 'mean', or data.source_kind to 'class' or 'vector'"
            )
        if model.share_embeddings and not self.data.shared_vocab:
            raise ValueError("model.share_embeddings needs one vocabulary; set data.shared_vocab = true")
        for name in ("coverage_penalty", "align"):
            if getattr(self.decoding, name) and model.context != "attention":
                raise ValueError(f"decoding.{name} needs a decoder that looks; set model.context = 'attention'")
        for side, part in (("encoder", model.encoder), ("decoder", model.decoder)):
            if part.longest is not None and part.longest <= self.data.longest:
                raise ValueError(
                    f"model.{side} has {part.longest} learned positions, but data.longest = {self.data.longest} and "
                    "an end symbol need more; raise its context or lower data.longest"
                )
        look = model.attention
        if look.score == "location" and look.longest <= self.data.longest:
            raise ValueError(
                f"model.attention.longest = {look.longest} positions are fewer than data.longest = "
                f"{self.data.longest} and an end symbol; raise one or lower the other"
            )

    def _one_machine_agrees(self, model: AnyMixerSpec) -> None:
        if self.data.source_kind != "text" or self.data.target_kind != "text":
            raise ValueError(
                f"model.kind = {model.kind!r} reads a source and continues with the target, so both are texts; for a "
                "class, a vector or a series set model.kind = 'seq2seq'"
            )
        if not self.data.shared_vocab:
            raise ValueError(
                f"model.kind = {model.kind!r} reads the source and continues with the target, so both have one "
                "vocabulary; leave data.shared_vocab out, or set it to true"
            )
        for name in ("coverage_penalty", "align"):
            if getattr(self.decoding, name):
                raise ValueError(f"decoding.{name} needs a decoder that looks; set model.kind = 'seq2seq'")
        need = 2 * (self.data.longest + 1)
        if model.longest is not None and model.longest < need:
            raise ValueError(
                f"model has {model.longest} learned positions, but a source and a target of data.longest = "
                f"{self.data.longest} with what stands between them take {need}; raise model.context or lower "
                "data.longest"
            )


def _said(part: Any, name: str, default: Any) -> Any:
    return part.get(name, default) if isinstance(part, dict) else getattr(part, name, default)


def _filled(part: Any, name: str, value: Any, default: Spec) -> Any:
    """`part` with `name` set to `value` unless it was given."""
    if part is None:
        part = default
    if isinstance(part, dict):
        return {name: value, **part}
    if isinstance(part, Spec) and name not in part.model_fields_set:
        return {**part.model_dump(exclude_unset=True), name: value}
    return part
