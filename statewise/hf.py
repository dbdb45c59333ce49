"""Every model of the lineage in Hugging Face's `transformers`: import this module, and its Auto classes open them.

    import statewise.hf
    model = transformers.AutoModelForCausalLM.from_pretrained("exported")  # by `statewise export RUN --to hf`

`generate` carries the state as its cache. No code comes out of a folder: these classes are the only ones that run.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.core import rows
from statewise.models import build
from statewise.specs import LanguageModelSpec, UserError, parse_spec

try:
    from transformers import AutoConfig, AutoModelForCausalLM, GenerationMixin, PretrainedConfig, PreTrainedModel
    from transformers.utils import ModelOutput
except ImportError:
    raise UserError("transformers is not installed", fix="pip install transformers") from None


class StatewiseConfig(PretrainedConfig):  # type: ignore[misc]
    """`spec` is the table `[model]` of a run."""

    model_type = "statewise"

    def __init__(self, spec: dict[str, Any] | None = None, vocab_size: int = 256, **more: Any) -> None:
        self.spec = spec or {"kind": "lstm"}
        self.vocab_size = vocab_size
        # `generate` asks for these; a state has its own shape.
        self.num_hidden_layers = self.num_attention_heads = self.hidden_size = 1
        super().__init__(**more)


@dataclass
class StatewiseOutput(ModelOutput):  # type: ignore[misc]
    loss: Tensor | None = None
    logits: Tensor | None = None
    cache_params: Any = None  # the state


class StatewiseForCausalLM(PreTrainedModel, GenerationMixin):  # type: ignore[misc]
    config_class = StatewiseConfig
    base_model_prefix = "model"
    _is_stateful = True

    def __init__(self, config: StatewiseConfig) -> None:
        super().__init__(config)
        spec = parse_spec({"model": config.spec}, source="config.json")
        assert isinstance(spec, LanguageModelSpec)
        self.model = build(spec.model, vocab=config.vocab_size)
        if spec.model.kind != "markov" and spec.model.tie:
            self._tied_weights_keys = {"model.head.weight_VE": "model.embedding.weight"}
        self.post_init()

    def _init_weights(self, module: torch.nn.Module) -> None:
        """`build` has done it."""

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        cache_params: Any = None,
        labels: Tensor | None = None,
        **_: Any,
    ) -> StatewiseOutput:
        if attention_mask is not None and not bool(attention_mask.all()):
            raise ValueError("a state machine reads every token it is given: pass rows of one length, without padding")
        logits_BTV, state = self.model(input_ids, cache_params)
        loss = None
        if labels is not None:  # -100 is ignored, as everywhere in `transformers`
            loss = F.cross_entropy(logits_BTV[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return StatewiseOutput(loss=loss, logits=logits_BTV, cache_params=state)

    def prepare_inputs_for_generation(self, input_ids: Tensor, cache_params: Any = None, **_: Any) -> dict[str, Any]:
        new = input_ids if cache_params is None else input_ids[:, -1:]
        return {"input_ids": new, "cache_params": cache_params}

    def _update_model_kwargs_for_generation(
        self, outputs: StatewiseOutput, model_kwargs: dict[str, Any], **_: Any
    ) -> dict[str, Any]:
        return {**model_kwargs, "cache_params": outputs.cache_params}

    def _prepare_cache_for_generation(self, *_: Any, **__: Any) -> None:
        """The first call makes the state."""

    @staticmethod
    def _reorder_cache(state: Any, beam_idx: Tensor) -> Any:
        return rows(state, beam_idx)


AutoConfig.register("statewise", StatewiseConfig, exist_ok=True)
AutoModelForCausalLM.register(StatewiseConfig, StatewiseForCausalLM, exist_ok=True)
