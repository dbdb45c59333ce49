"""A model as data: one spec per kind, told apart by `kind`."""

from typing import Annotated, Any, get_args

from pydantic import BeforeValidator, Field

from statewise.specs.attention import BasicAttentionSpec, TransformerSpec
from statewise.specs.autoregressive import LatentSpec, WindowSpec
from statewise.specs.custom import CustomSpec
from statewise.specs.linear import GatedDeltaSpec, LinearAttentionSpec, Mamba2Spec, MinGRUSpec, MinLSTMSpec
from statewise.specs.markov import MarkovSpec
from statewise.specs.recurrent import ElmanSpec, GRUSpec, LSTMSpec
from statewise.specs.simple import DeepRNNSpec, JordanSpec, LeakySpec, ReservoirSpec
from statewise.specs.test_time import TTTLinearSpec, TTTMLPSpec

ShippedMixerSpec = (
    LatentSpec
    | WindowSpec
    | ElmanSpec
    | LSTMSpec
    | GRUSpec
    | LeakySpec
    | ReservoirSpec
    | MinGRUSpec
    | MinLSTMSpec
    | BasicAttentionSpec
    | TransformerSpec
    | DeepRNNSpec
    | LinearAttentionSpec
    | JordanSpec
    | GatedDeltaSpec
    | Mamba2Spec
    | TTTLinearSpec
    | TTTMLPSpec
)
# A user's own class has no kind of its own: it is passed in.
AnyMixerSpec = ShippedMixerSpec | CustomSpec
AnyModelSpec = MarkovSpec | AnyMixerSpec
KINDS: tuple[str, ...] = tuple(spec.model_fields["kind"].default for spec in (MarkovSpec, *get_args(ShippedMixerSpec)))


def _default_kind(value: Any) -> Any:
    return {"kind": "lstm", **value} if isinstance(value, dict) else value


# What layers can be made of; and any model at all.
MixerSpec = Annotated[Annotated[AnyMixerSpec, Field(discriminator="kind")], BeforeValidator(_default_kind)]
ModelSpec = Annotated[Annotated[AnyModelSpec, Field(discriminator="kind")], BeforeValidator(_default_kind)]
