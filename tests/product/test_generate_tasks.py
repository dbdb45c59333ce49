"""`generate` on a run of every task: it draws what the task writes, and answers where nothing is written."""

import json
import math
from pathlib import Path

import pytest
from command import call
from task_runs import make_run

from statewise.decoding import Sampling
from statewise.specs import UserError
from statewise.tasks import load
from statewise.tasks.forecasting import ForecastingRun


@pytest.mark.parametrize(
    "name",
    ["translator", "translator-transformer", "translator-prompted", "translator-prompted-length"],
)
def test_a_translator_draws_by_the_seed(name: str, tasks: Path) -> None:
    run = load(make_run(name, tasks), device="cpu")
    drawn = [run.generate("a b c d", sampling=Sampling(seed=seed)) for seed in (*range(8), 0)]
    assert len(set(drawn)) > 1
    assert drawn[0] == drawn[-1]
    assert len(run.generate("a b c d", tokens=2).replace(" ", "")) <= 2
    whole = next(text for text in drawn if len(text) > 2)
    cut = run.generate("a b c d", sampling=Sampling(seed=drawn.index(whole)), stop=["?", whole[2:]])
    assert cut == whole[: whole.index(whole[2:])]
    with pytest.raises(UserError, match="needs a prompt"):
        run.generate(" ")


@pytest.mark.parametrize("name", ["translator", "translator-prompted-transformer"])
def test_without_chance_it_is_the_greedy_translation(name: str, tasks: Path) -> None:
    run = load(make_run(name, tasks), device="cpu")
    (line,) = call("generate", str(run.path), "--prompt", "a b c", "--temperature", "0").out.splitlines()
    assert line == run.translate("a b c")


def test_what_writes_nothing_answers(tasks: Path, tmp_path: Path) -> None:
    said = call("generate", str(make_run("classifier", tasks)), "--prompt", "a warm film", "--json")
    assert json.loads(said.out)["text"] in ("good", "bad")
    tagged = call("generate", str(make_run("tagger-crf", tasks)), "--prompt", "the cat sees\na hen")
    (tmp_path / "words.txt").write_text("the\ncat\nsees\n\na\nhen\n")
    assert tagged.out == call("predict", str(make_run("tagger-crf", tasks)), str(tmp_path / "words.txt")).out
    tree = "(0 (1 1) (0 (0 0) (1 1)))"
    (tmp_path / "tree.txt").write_text(f"{tree}\n")
    answered = call("generate", str(make_run("tree", tasks)), "--prompt", tree)
    assert answered.out == call("predict", str(make_run("tree", tasks)), str(tmp_path / "tree.txt")).out
    refused = call("generate", str(make_run("grids", tasks)), "--prompt", "1 2 3")
    assert refused.code == 2
    assert "a prompt is a text" in refused.err
    state = call("generate", str(make_run("tree", tasks)), "--prompt", tree, "--save-state", str(tmp_path / "s"))
    assert (state.code, "no text to continue" in state.err) == (2, True)


def test_a_series_goes_on(tasks: Path) -> None:
    folder = make_run("recursive", tasks)
    run = load(folder, device="cpu")
    assert isinstance(run, ForecastingRun)
    lines = call("generate", str(folder), "--prompt", "20 21, 22 23", "-n", "3", "--temperature", "0").out.split()
    assert [float(x) for x in lines] == pytest.approx(run.forecast([20, 21, 22, 23], horizon=3).mean_HC[:, 0].tolist())
    after_the_data = call("generate", str(folder), "-n", "4", "--temperature", "0").out.split()
    predicted = [
        json.loads(line) for line in call("predict", str(folder), str(tasks / "series.csv"), "--json").out.splitlines()
    ]
    assert [float(x) for x in after_the_data] == pytest.approx([row["mean"] for row in predicted])
    for prompt, word in (("20 x", "'x'"), ("1e999 nan", None)):
        said = call("generate", str(folder), "--prompt", prompt)
        assert said.code == 2
        assert word is None or word in said.err


def test_a_series_is_drawn_where_there_is_a_distribution(tasks: Path) -> None:
    run = load(make_run("recursive", tasks), device="cpu")
    assert isinstance(run, ForecastingRun)
    past = "20 21 22 23 22 21"
    drawn = [run.generate(past, tokens=1, sampling=Sampling(seed=seed)) for seed in range(200)]
    assert drawn[3] == run.generate(past, tokens=1, sampling=Sampling(seed=3))
    (mean,) = run.generate(past, tokens=1, sampling=Sampling(temperature=0)).split()
    numbers = [float(one) for one in drawn]
    middle = sum(numbers) / len(numbers)
    spread = math.sqrt(sum((x - middle) ** 2 for x in numbers) / len(numbers))
    assert abs(middle - float(mean)) < 5 * spread / math.sqrt(len(numbers)), "draws lie around the mean"
    assert spread > 0
