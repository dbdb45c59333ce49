"""The average of the weights: its definition, and that it is what is judged and kept."""

import torch
from tiny_task import TokenTask, spec, tiny

from statewise.training import fit
from statewise.training.optimizer import Average


def test_a_moving_average_is_its_definition() -> None:
    model = tiny("elman")
    average = Average(dict(model.named_parameters()), decay=0.9)
    average.start()
    values = {name: [p.detach().clone()] for name, p in model.named_parameters()}
    for _ in range(30):
        with torch.no_grad():
            for name, p in model.named_parameters():
                p.add_(torch.randn_like(p))
                values[name].append(p.detach().clone())
        average.add()
    for name, seen in values.items():
        expected = seen[0]
        for count, value in enumerate(seen[1:], start=2):
            share = max(1 / count, 0.1)  # a plain mean until it has as many steps as it remembers
            expected = expected + share * (value - expected)
        torch.testing.assert_close(average.mean[name], expected, rtol=0, atol=1e-12)


def test_the_average_is_judged_and_the_weights_go_on() -> None:
    model, task = tiny("elman"), TokenTask(nats=[3.0] * 8)
    after: list[dict[str, torch.Tensor]] = []
    fit(
        model,
        task,
        spec(average=0.5, steps=4, evaluate_every=2),
        on_step=lambda step: after.append({name: p.detach().clone() for name, p in model.named_parameters()}),
    )
    for name, p in model.named_parameters():
        assert torch.equal(p, after[-1][name]), "training goes on with the weights, not with their average"
        assert not torch.equal(task.seen[-1][name], after[-1][name])
