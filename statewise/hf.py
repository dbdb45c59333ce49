"""Every model of the lineage in Hugging Face's `transformers`: import this module, and its Auto classes open them.

    import statewise.hf
    model = transformers.AutoModelForCausalLM.from_pretrained("exported")  # by `statewise export RUN --to hf`

`generate` carries the state as its cache. No code comes out of a folder: these classes are the only ones that run.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

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
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["cache_params"]

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
    _input_embed_layer = "embedding"
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
        use_cache: bool | None = None,
        return_dict: bool | None = None,
        **more: Any,  # `Trainer` sends what the loss is divided by, and asks here whether it may
    ) -> Any:
        real_BT = None if attention_mask is None else attention_mask[:, -input_ids.shape[1] :].bool()
        if real_BT is None or bool(real_BT.all()):
            logits_BTV, state = self.model(input_ids, cache_params)
        else:
            logits_BTV, state = self._read_padded(input_ids, real_BT, cache_params)
        loss = None if labels is None else self.loss_function(logits_BTV, labels, self.config.vocab_size, **more)
        found = StatewiseOutput(loss=loss, logits=logits_BTV, cache_params=None if use_cache is False else state)
        return found.to_tuple() if return_dict is False else found

    def _read_padded(self, tokens_BT: Tensor, real_BT: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Each row's own tokens, one after the other, wherever its padding stands. Logits of padding are 0."""
        order_BT = real_BT.int().argsort(dim=1, descending=True, stable=True)
        logits_BTV, after = self.model(tokens_BT.gather(1, order_BT), state, real_BT.sum(1))
        place_BT = order_BT.argsort(dim=1)
        return logits_BTV.gather(1, place_BT[:, :, None].expand_as(logits_BTV)), after

    def prepare_inputs_for_generation(
        self,
        input_ids: Tensor,
        cache_params: Any = None,
        attention_mask: Tensor | None = None,
        use_cache: bool | None = None,
        **_: Any,
    ) -> dict[str, Any]:
        if cache_params is None:
            return {"input_ids": input_ids, "attention_mask": attention_mask, "use_cache": use_cache}
        return {"input_ids": input_ids[:, -1:], "cache_params": cache_params, "use_cache": use_cache}

    def _prepare_cache_for_generation(self, *_: Any, **__: Any) -> None:
        """The first call makes the state."""

    @staticmethod
    def _reorder_cache(state: Any, beam_idx: Tensor) -> Any:
        return rows(state, beam_idx)


AutoConfig.register("statewise", StatewiseConfig, exist_ok=True)
AutoModelForCausalLM.register(StatewiseConfig, StatewiseForCausalLM, exist_ok=True)
