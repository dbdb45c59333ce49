"""The one place where a spec becomes a way to translate."""

import torch

from statewise.specs import Seq2SeqSpec, TranslationSpec
from statewise.tasks.translation.decoder_only import DecoderOnly
from statewise.tasks.translation.encoder_decoder import EncoderDecoder
from statewise.tasks.translation.examples import Languages
from statewise.tasks.translation.translator import Translator


def make_translator(spec: TranslationSpec, languages: Languages, device: torch.device) -> Translator:
    match spec.model:
        case Seq2SeqSpec():
            return EncoderDecoder(spec, languages, device)
        case _:
            return DecoderOnly(spec, languages, device)
