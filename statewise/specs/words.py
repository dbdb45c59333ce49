"""How a word becomes a vector: by what it is, and by how it is spelled."""

from typing import Literal

from pydantic import Field

from statewise.specs.base import Spec
from statewise.specs.recurrent import GRUSpec, LSTMSpec


class WordsSpec(Spec):
    width: int | None = Field(None, ge=1, description="of a word's own vector; default: model.embedding")
    vocab: int = Field(50_000, ge=3, description="largest vocabulary of words; the most frequent are kept")
    min_count: int = Field(1, ge=1, description="rarer words are unknown")
    lower: bool = Field(True, description="a word's own vector does not know its case; its characters do")
    word_dropout: float = Field(
        0.1, ge=0, lt=1, description="share of words that are unknown in training, so that the unknown vector is learnt"
    )
    characters: int = Field(
        32, ge=0, description="units, in each direction, of what reads a word's characters; 0: nothing does"
    )
    character_kind: Literal["gru", "lstm"] = Field("gru", description="what reads a word's characters")
    character_width: int = Field(32, ge=1, description="of a character's vector")
    longest: int = Field(32, ge=2, description="characters of a word that are read; of a longer one both its ends")

    def speller(self) -> GRUSpec | LSTMSpec:
        """What reads a word's characters, from both ends."""
        return GRUSpec(width=self.characters) if self.character_kind == "gru" else LSTMSpec(width=self.characters)
