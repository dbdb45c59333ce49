"""A prompt goes on from the state of a known beginning: found at any length, right for every model, bounded."""

import numpy as np
import pytest
import torch

import statewise as sw
from statewise.core import leaves, map_state
from statewise.decoding import TextStream
from statewise.models import LINEAGE, CountingMachine, build_sample
from statewise.serving import Job
from statewise.serving.prefix import BLOCK, PrefixCache, Prompt
from statewise.serving.prompt import Group, PromptReader, Text

VOCAB = 11


def model_of(name: str):
    spec = next(row.spec for row in LINEAGE if row.name == name)
    model = build_sample(spec, vocab=VOCAB)
    return model if isinstance(model, CountingMachine) else model.double().eval()


def prompt(seed: int, length: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, VOCAB, length)


def after(model, tokens: np.ndarray, state=None):
    with torch.no_grad():
        return model.absorb(torch.from_numpy(tokens[None]), state)


def keep(cache: PrefixCache, tokens: np.ndarray, state, owner: str = "") -> None:
    cache.keep(Prompt(tokens, owner), len(tokens), state)


@pytest.mark.parametrize("name", [row.name for row in LINEAGE])
@pytest.mark.parametrize("shared", [1, 40, BLOCK, BLOCK + 1, 3 * BLOCK - 1])
def test_reading_on_from_a_known_beginning_is_reading_everything(name: str, shared: int) -> None:
    model = model_of(name)
    cache = PrefixCache(model.init_state(1), most_bytes=1 << 30)
    first, second = prompt(1, 3 * BLOCK), prompt(2, 3 * BLOCK + 20)
    second[:shared] = first[:shared]
    if shared < len(first):
        second[shared] = (first[shared] + 1) % VOCAB
    ends = range(BLOCK, len(first) + 1, BLOCK) if cache.is_fixed else [len(first)]
    for end in ends:
        cache.keep(Prompt(first), end, after(model, first[:end]))
    found = cache.find(Prompt(second), most=len(second) - 1)
    assert found.shared == shared
    assert found.length == (shared if not cache.is_fixed else shared // BLOCK * BLOCK)
    if found.state is None:
        return
    whole = after(model, second)
    continued = after(model, second[found.length :], found.state)
    for (path, a), (_, b) in zip(leaves(continued), leaves(whole), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9, msg=lambda text, path=path: f"{path}: {text}")
    if cache.is_fixed:  # what parted is kept, and found the next time
        cache.keep(Prompt(second), shared, after(model, second[:shared]))
        assert cache.find(Prompt(second), most=len(second) - 1).length == shared


def test_the_whole_prompt_but_its_last_token_is_the_most() -> None:
    model = model_of("lstm")
    cache = PrefixCache(model.init_state(1), most_bytes=1 << 20)
    tokens = prompt(0, 10)
    cache.keep(Prompt(tokens), 9, after(model, tokens[:9]))
    keep(cache, tokens, after(model, tokens))
    assert cache.find(Prompt(tokens), most=9).length == 9
    assert cache.find(Prompt(tokens[:9]), most=8).length == 0
    assert cache.find(Prompt(np.append(tokens, 3)), most=10).length == 10


def test_owners_do_not_see_each_other() -> None:
    model = model_of("lstm")
    cache = PrefixCache(model.init_state(1), most_bytes=1 << 20)
    tokens = prompt(0, 70)
    keep(cache, tokens, after(model, tokens), "a")
    assert cache.find(Prompt(tokens, "a"), most=70).length == 70
    assert cache.find(Prompt(tokens, "b"), most=70) == (None, 0, 0)


def test_it_stays_within_its_bytes_and_forgets_the_least_used() -> None:
    model = model_of("lstm")
    state = after(model, prompt(0, 5))
    prompts = [prompt(seed, 80) for seed in range(5)]
    cache = PrefixCache(model.init_state(1), most_bytes=1 << 20)
    keep(cache, prompts[0], map_state(torch.Tensor.clone, state))
    one = cache.bytes
    numbers = sum(leaf.numel() * leaf.element_size() for _, leaf in leaves(state)) + 80 * 8
    assert numbers + 1000 < one < 2 * numbers + 5000  # a small state is mostly objects
    cache = PrefixCache(model.init_state(1), most_bytes=3 * one)
    for tokens in prompts[:3]:
        keep(cache, tokens, map_state(torch.Tensor.clone, state))
    assert cache.find(Prompt(prompts[0]), most=80).length == 80  # used again, so it is not the next to go
    for tokens in prompts[3:]:
        keep(cache, tokens, map_state(torch.Tensor.clone, state))
    assert [cache.find(Prompt(tokens), most=80).length for tokens in prompts] == [80, 0, 0, 80, 80]
    assert cache.bytes == 3 * one
    for tokens in prompts[:3]:
        keep(cache, tokens, map_state(torch.Tensor.clone, state))
    keep(cache, prompt(9, 100_000), state)
    assert cache.bytes <= 3 * one
    assert len(cache._links) <= 4  # links go with what they lead to


def test_of_equal_prompts_that_come_at_once_the_later_ones_are_known() -> None:
    run = sw.load("shakespeare-transformer", device="cpu")
    reader = PromptReader(run, alone=False, prefix_bytes=1 << 24, shared=False)
    for _ in range(70):
        text = Text(Job("m", [1], print), 0.0, TextStream(run.tokenizer.decode))
        reader.groups.append(Group([text], None, prompt(1, 20), 0))
    (first, _), (second, _) = *reader.read(), *reader.read()
    assert len(first) == 64  # of a list no more at once
    assert [group.texts[0].first.cached for group in second] == [18] * 6
    assert not reader.groups
