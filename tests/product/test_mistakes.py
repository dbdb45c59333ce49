"""Mistakes a person makes at the command line, each answered by one screen that names it and helps."""

import shutil
from functools import partial
from pathlib import Path

import pytest
from command import call, run

import statewise

nightly = partial(pytest.param, marks=pytest.mark.slow)
# The command, then what the answer must hold: the wrong value, and the valid ones, the nearest or the fix.
MISTAKES = [
    # verbs and options
    ("trian lstm", "'trian'", "did you mean 'train'?", "verify"),
    ("Train lstm", "'Train'", "did you mean 'train'?"),
    ("modles", "'modles'", "did you mean 'models'?"),
    (
        "runs/lstm",
        "'runs/lstm'",
        "generate, import, inspect, lab, models, predict, reproduce, serve, settings, train, verify",
    ),
    ("--verson", "--verson", "--version"),
    ("--bogus", "--bogus", "try: statewise --help"),
    ("models extra", "'extra'", "elman, "),
    ("models lstm gru", "gru", "try: statewise models --help"),
    ("models --jsn", "--jsn", "--json"),
    ("train lstm gru", "gru", "try: statewise train --help"),
    ("train lstm --txt text.txt", "no option --txt; did you mean --data text.txt?"),
    ("train lstm --data", "--data", "requires an argument", "try: statewise train --help"),
    # options that are settings
    ("train lstm --width 32", "no option --width; it is a setting: --set model.width=32"),
    ("train lstm --width=32", "no option --width; it is a setting: --set model.width=32"),
    ("train lstm --width", "it is a setting: --set model.width=VALUE"),
    ("train lstm --dropout 0.1", "it is a setting: --set model.dropout=0.1"),
    ("train lstm --hidden-size 64", "it is a setting: --set model.width=64"),
    ("train lstm --layers 2", "it is a setting: --set model.depth=2"),
    ("train lstm --schedule", "--set train.schedule=constant|cosine|linear|plateau"),
    ("train lstm --learning-rate 0.1", "no option --learning-rate; did you mean --lr 0.1?"),
    ("train lstm --batch-size 8", "did you mean --batch 8?"),
    ("train lstm --epochs 3", "did you mean --steps N? (optimiser steps, not epochs)"),
    ("train lstm --stpes 3", "did you mean --steps?"),
    ("train lstm --model.width 3", "it is a setting: --set model.width=3"),
    ("train --width 8 translation", "--set model.encoder.width=8 or --set model.decoder.width=8"),
    ("train translation --beam-size 4", "--set decoding.beam=4"),
    ("train classification --text-column review", "--set data.text=review"),
    ("compare memory --lab --static", "leave one of the two out"),
    ("compare --width 32", "it is a setting: --set base.model.width=32"),
    ("compare memory --lr 0.1", "it is a setting: --set base.train.lr=0.1"),
    ("compare --metric accuracy", "it is a setting: --set metric=accuracy"),
    ("train lstm --bogus 3", "no option --bogus", "try: statewise train --help"),
    # plain options
    ("train lstm --steps many", "--steps", "'many'", "valid integer"),
    ("train lstm --steps -1", "train.steps = -1", "greater than or equal to 0"),
    ("train lstm --lr 0", "train.lr = 0", "greater than 0"),
    ("train lstm --device gpu", "'gpu'", "auto, cpu, cuda"),
    ("train lstm --steps 3 --set train.steps=4", "--steps 3 and --set train.steps=4 contradict each other"),
    ("train lstm --seed 3 --set seed=4", "--seed 3 and --set seed=4 contradict each other"),
    ("train --resume --out runs/lstm --batch 8", "keeps its task, seed, data, model, batch", "train again"),
    ("evaluate runs/lstm --device gpu", "'gpu'", "auto, cpu, cuda"),
    ("settings lsmt", "'lsmt'", "did you mean 'lstm'?"),
    ("verify lstm gru", "gru", "try: statewise verify --help"),
    ("train lstm --set seed=1 model.width=8", "--set takes one setting", "--set seed=1 --set model.width=8"),
    ("evaluate runs/lstm -s data.a=1 data.b=2", "--set takes one setting", "--set data.a=1 --set data.b=2"),
    # recipes
    ("train lsmt", "'lsmt'", "did you mean 'lstm'?", "elman, "),
    ("train LSTM", "'LSTM'", "did you mean 'lstm'?"),
    ("train perceptron", "'perceptron'", "elman, "),
    ("train missing.toml", "'missing.toml'", "does not exist", "elman, "),
    ("train bad.toml", "'bad.toml'", "line 1", "correct the file"),
    ("train key.toml", "model.widht", "did you mean 'width'?"),
    ("train scalar.toml", "model = 3", "table"),
    ("train latin.toml", "'latin.toml'", "UTF-8", "correct the file"),
    ("train binary.toml", "'binary.toml'", "not valid TOML", "correct the file"),
    ("train folder", "'folder'", "is a folder", "to train on its files: --data folder", "elman, "),
    ("train text.txt", "'text.txt'", "statewise train lstm --data text.txt"),
    # settings
    ("train lstm --set train.lr", "'train.lr'", "path=value"),
    ("train lstm --set =3", "'=3'", "path=value"),
    ("train lstm --set train.lr=fast", "train.lr = 'fast'", "valid number"),
    ("train lstm --set train.lr=-1", "train.lr = -1", "greater than 0"),
    ("train lstm --set train.lr=nan", "train.lr = nan", "finite"),
    ("train lstm --set train.steps=1.5", "train.steps = 1.5", "valid integer"),
    ("train lstm --set train.steps=-1", "train.steps = -1", "greater than or equal to 0"),
    ("train lstm --set train.stepz=3", "train.stepz", "did you mean 'steps'?"),
    ("train lstm --set tran.steps=3", "tran", "did you mean 'train'?"),
    ("train lstm --set steps=3", "steps", "did you mean 'train.steps'?"),
    ("train lstm --set width=3", "width", "did you mean 'model.width'?"),
    ("train lstm --set model=lstm", "model = 'lstm'", "model.kind="),
    ("train lstm --set model.kind=lsmt", "'lsmt'", "did you mean 'lstm'?", "elman, "),
    ("train lstm --set model.widht=12", "model.widht", "did you mean 'width'?"),
    ("train lstm --set model.width=0", "model.width = 0", "greater than or equal to 1"),
    ("train lstm --set model.width=wide", "model.width = 'wide'", "valid integer"),
    ("train lstm --set model.depth=0", "model.depth = 0", "greater than or equal to 1"),
    ("train lstm --set model.dropout=1", "model.dropout = 1", "less than 1"),
    ("train lstm --set model.projection=300", "projection 300", "smaller than width 256"),
    ("train lstm --set model.residual=true --set model.embedding=12", "embedding 12", "leave `embedding` out"),
    ("train lstm --set model.norm=batch", "'batch'", "'layer'"),
    ("train lstm --set model.init=xavier", "'xavier'", "'orthogonal'"),
    ("train gru --set model.reset=middle", "'middle'", "'after' or 'before'"),
    ("train gru --set model.peephole=true", "model.peephole", "reset"),
    ("train elman --set model.activation=sigmoid", "'sigmoid'", "'tanh' or 'relu'"),
    ("train lstm --set seed=-1", "seed = -1", "greater than or equal to 0"),
    ("train lstm --set train.optimizer=adam", "'adam'", "'adamw'"),
    ("train lstm --set train.schedule=stairs", "'stairs'", "'cosine'"),
    ("train lstm --set train.truncation=rando", "'rando'", "did you mean 'random'?"),
    ("train lstm --set train.truncation=random:x", "'x'", "valid integer"),
    ("train lstm --set train.truncation=0", "length = 0", "greater than or equal to 1"),
    (
        "train lstm --set train.truncation=unbiased:8 --set train.truncation.keep=2",
        "train.truncation.keep = 2",
        "less than or equal to 1",
    ),
    ("train lstm --set train.precision=float16", "'float16'", "'bfloat16'"),
    ("train lstm --set train.device=gpu", "'gpu'", "auto, cpu, cuda"),
    ("train lstm --set train.batch=0", "train.batch = 0", "greater than or equal to 1"),
    ("train lstm --set train.clip=0", "train.clip = 0", "greater than 0"),
    ("train lstm --set data.held_out=1", "data.held_out = 1", "less than 1"),
    ("train lstm --set data.direction=backwards", "'backwards'", "'forward' or 'reverse'"),
    ("train lstm --set data.order=shuffle", "'shuffle'", "'sequential', 'random' or 'shuffled'"),
    ("train lstm --set data.vocab=1", "data.vocab = 1", "greater than or equal to 2"),
    # tokenizers
    ("train lstm --data text.txt --set data.tokenizer=chars", "'chars'", "did you mean 'char'?", "bpe, byte"),
    ("train lstm --data text.txt --set data.tokenizer=tokenizer.json", "tokenizer.json'", "damaged", "char, byte"),
    ("train lstm --data text.txt --set data.tokenizer=bpe --set data.vocab=10", "vocab 10", "at least 257"),
    # texts
    ("train lstm --data txet.txt", "txet.txt'", "does not exist", "did you mean 'text.txt'?"),
    ("train lstm --data nowhere/text.txt", "nowhere/text.txt'", "No such file", "check the path"),
    ("train lstm --data empty.txt", "empty.txt'", "holds no text", "UTF-8 text"),
    ("train lstm --data binary.bin", "binary.bin'", "binary file", "plain UTF-8 text"),
    ("train lstm --data latin1.txt", "latin1.txt'", "not UTF-8", "byte offset 3", "iconv"),
    ("train lstm --data utf16.txt", "utf16.txt'", "UTF-16", "iconv"),
    ("train lstm --data empty", "empty'", "holds no text", "UTF-8 text"),
    ("train lstm --data tiny.txt", "batch 32", "larger than the training text", "a batch of at most"),
    ("train lstm --data - --data -", "'-'", "twice", "name it once"),
    ("train lstm --data text.txt --set data.validation=gone.txt", "gone.txt'", "does not exist"),
    # folders
    ("train lstm --data text.txt --out runs/lstm", "'runs/lstm'", "already holds a run", "--resume"),
    ("train lstm --data text.txt --out afile", "'afile'", "is a file", "--out DIR"),
    ("train lstm --data text.txt --out folder", "'folder'", "other files in it", "--out DIR"),
    ("train lstm --data text.txt --out afile/inside", "'afile/inside'", "Not a directory", "--out DIR"),
    ("train --resume --out nowhere", "'nowhere'", "nothing to resume", "check --out"),
    ("train --resume --out folder", "'folder'", "no checkpoint", "train again from the start: --out DIR"),
    ("train --resume --out runs/damaged", "'runs/damaged'", "was changed after", "train again"),
    ("train lstm --resume", "'lstm'", "--resume", "leave it out"),
    ("train --resume --out runs/lstm --set model.width=8", "keeps its task, seed, data, model", "train again"),
    # generate
    ("generate", "'RUN'", "try: statewise generate --help"),
    ("generate lstm", "'lstm'", "did you mean 'runs/lstm'?"),
    ("generate runs/lsmt", "'runs/lsmt'", "did you mean 'runs/lstm'?"),
    ("generate runs", "'runs'", "not a run folder", "runs/lstm"),
    ("generate folder", "'folder'", "not a run folder", "runs/lstm"),
    ("generate text.txt", "'text.txt'", "not a folder", "runs/lstm"),
    ("generate runs/damaged", "'runs/damaged'", "was changed after", "train again"),
    ("generate runs/lstm --tokens -1", "tokens = -1", "0 or more"),
    ("generate runs/lstm --tokens many", "--tokens", "'many'", "valid integer"),
    ("generate runs/lstm --temperature -1", "temperature = -1", "0 (greedy)"),
    ("generate runs/lstm --temperature nan", "temperature = nan", "0 (greedy)"),
    ("generate runs/lstm --temperature hot", "--temperature", "'hot'", "valid number"),
    ("generate runs/lstm --top-p 2", "top_p = 2", "at most 1"),
    ("generate runs/lstm --top-k 0", "top_k = 0", "at least 1"),
    ("generate runs/lstm --min-p -0.1", "min_p = -0.1", "between 0 and 1"),
    ("generate runs/lstm --repetition 0", "repetition = 0", "positive"),
    ("generate runs/lstm --seed -1", "seed = -1", "between 0 and"),
    ("generate runs/lstm --state gone.state", "'gone.state'", "--save-state"),
    ("generate runs/lstm --state folder", "'folder'", "--save-state"),
    ("generate runs/lstm --state broken.state", "'broken.state'", "not a saved state"),
    ("generate runs/lstm --state gru.state", "'gru.state'", "GRUState", "the model that saved it"),
    ("generate runs/lstm --save-state gone/x.state", "'gone/x.state'", "a folder that exists"),
    ("generate runs/lstm --save-state folder", "'folder'", "name a file"),
    # evaluate
    ("evaluate nowhere", "'nowhere'", "runs/lstm"),
    ("evaluate runs/lstm --data txet.txt", "'txet.txt'", "did you mean 'text.txt'?"),
    ("evaluate runs/lstm --data empty.txt", "'empty.txt'", "holds no text"),
    ("evaluate runs/lstm --data binary.bin", "'binary.bin'", "binary file", "plain UTF-8"),
    ("evaluate runs/lstm --data gone.txt --json", "'gone.txt'", "does not exist"),
    ("evaluate runs/classifier --data lines.txt", "'lines.txt'", "label-first"),
    ("evaluate runs/classifier --data rows.tsv --set decoding.beam=2", "decoding: unknown key"),
    ("evaluate runs/classifier --set model.width=9", "model.width=9", "train again", "data.text, data.label"),
    ("predict runs/classifier reviews.csv", "'text'", "it has: id, review, sentiment", "--set data.text=review"),
    (
        "train classification --data reviews.csv",
        "there are no columns 'text' and 'label' in",
        "reviews.csv; it has: id, review, sentiment",
        "if the text is in 'review' and the label is in 'sentiment'",
        "--set data.text=review --set data.label=sentiment",
    ),
    ("train classification --data typo.csv", "no column 'label'", "--set data.label=lable"),
    ("train classification --data lines.txt", "lines.txt'", "--set data.format=label-first"),
    ("train classification --data rows.tsv --set data.text=9", "--set data.text=COLUMN --set data.header=yes"),
    ("train translation --data pairs.csv --set data.source_column=de", "'de'", "--set data.source_column=german"),
    ("train translation --data one.txt", "one.txt'", "--data a.de --data a.en", "--set data.format=tsv"),
    ("train tagging --data words.conllu --set data.tag=pos", "'pos'", "--set data.tag=upos"),
    ("train tagging --data tagged.txt --set data.tag=5", "there is no column 5 for the tag", "--set data.tag=0"),
    ("train forecasting --data series.csv --set data.time=when", "'when'", "--set data.time=date"),
    ("train forecasting --data series.csv --set data.id=shop", "'shop'", "--set data.id=store"),
    ("train forecasting --data series.csv --set data.targets=slaes", "'slaes'", "--set data.targets=sales"),
    ("train forecasting --data dates.csv", "no column left to forecast", "--set data.targets=COLUMN"),
    ("train forecasting --data series.csv", "column 'store' holds 'a'", "--set data.id=store"),
    ("train forecasting --data series.csv --set data.targets=sales", "have the same time", "--set data.id=COLUMN"),
    # predict
    ("predict", "'RUN'", "try: statewise predict --help"),
    ("predict runs/classifier", "'FILE'", "try: statewise predict --help"),
    ("evaluate runs/classifier --data rows.tsv --exposure", "never reads its own output", "recursive forecasts"),
    ("evaluate runs/classifier --folds 2", "has no forecasts", "leave out --folds"),
    ("evaluate runs/classifier --stationarity", "no order in time", "--stationarity"),
    ("predict runs/classifier rows.tsv --fill", "no missing values to fill in", "leave out --fill"),
    ("predict runs/lstm text.txt", "does not predict", "it can evaluate and generate"),
    ("predict nowhere rows.tsv", "'nowhere'", "runs/lstm"),
    ("predict runs/classifier rwos.tsv", "rwos.tsv'", "does not exist", "did you mean 'rows.tsv'?"),
    ("predict runs/classifier binary.bin", "binary.bin line 1", "binary file"),
    ("predict runs/classifier rows.tsv --out folder", "'folder'", "name a file"),
    ("predict runs/classifier rows.tsv --out no/where.txt", "'no/where.txt'", "a folder that exists"),
    ("predict runs/classifier rows.tsv --jsn", "--jsn", "--json"),
    ("generate runs/classifier", "needs a prompt", "give one: --prompt TEXT"),
    # reproduce
    ("reproduce imdb-bilstn", "'imdb-bilstn'", "did you mean 'imdb-bilstm'?"),
    ("reproduce imdb-bilstm", "--data is missing", "statewise reproduce imdb-bilstm --data DIR"),
    ("reproduce imdb-bilstm --data nowhere", "'nowhere'", "name the folder that holds the data"),
    (
        "reproduce imdb-bilstm --data folder",
        "'folder'",
        "'*train*.tsv*'",
        "It holds notes.txt",
        "--set data.train=FILE",
    ),
    # tasks
    ("train lstm --set task=classificaton", "'classificaton'", "did you mean 'classification'?", "tagging"),
    ("train classification --data rwos.tsv", "rwos.tsv'", "did you mean 'rows.tsv'?"),
    ("train classification --data rows.tsv --set train.judge=acuracy", "'acuracy'", "did you mean 'accuracy'?"),
    ("train classification --set objective.weights=even", "'even'", "'balanced'"),
    ("train classification --set objective.smoothing=1", "objective.smoothing = 1", "less than 1"),
    ("train classification --set objective.kind=crf", "objective.kind", "'crf'"),
    ("train classification --set reader.summary=first", "'first'", "'last', 'mean', 'max' or 'attention'"),
    ("train classification --set reader.score=dot", "reader.score = 'dot'", "set reader.summary = 'attention'"),
    ("train classification --set model.kind=markov", "'markov'", "lstm"),
    ("train classification --set data.kind=image", "'image'", "'text', 'values', 'grid' or 'vector'"),
    ("train classification --set data.kind=values", "no embedded values", "--data FILE"),
    ("train classification --set decoding.beam=2", "decoding", "unknown key"),
    ("train classification --data hub:", "'hub:'", "hub:NAME:SPLIT"),
    ("train digits --set reader.summary=mean", "reader.*", "model.summary"),
    ("train tagging --set objective.kind=crff", "'crff'", "did you mean 'crf'?"),
    ("train tagging --set reader.summary=mean", "reader.summary has no meaning"),
    ("train translation --set decoding.n_best=9", "n_best = 9", "widen the beam"),
    ("train translation --set forcing.kind=teachr", "'teachr'", "did you mean 'teacher'?"),
    ("train tree --set model.kind=nray", "'nray'", "did you mean 'nary'?", "child_sum"),
    ("train forecasting --set forecast.horizon=0", "forecast.horizon = 0", "greater than or equal to 1"),
    ("train forecasting --set objective.kind=gausian", "'gausian'", "did you mean 'gaussian'?"),
    ("train forecasting --set data.series=sine", "'sine'", "'noisy_sine'"),
    ("train forecasting --set train.window=8", "train.window has no meaning", "leave it out"),
    # verify
    ("verify", "nothing to verify", "--all"),
    ("verify lsmt", "'lsmt'", "did you mean 'lstm'?"),
    ("verify runs/lstm --all", "'runs/lstm'", "leave one of them out"),
    ("verify folder", "'folder'", "not a run folder"),
    ("verify runs/damaged", "'runs/damaged'", "was changed after"),
    # compare
    ("compare linage", "'linage'", "did you mean 'lineage'?"),
    ("compare --only lsmt", "--only lsmt", "did you mean 'lstm'? valid: elman, gated_delta, gru, lstm, markov-1"),
    # lab and serve
    ("lab nowhere", "'nowhere'", "runs/lstm"),
    ("lab --out folder", "'folder'", "is a folder, expected a file"),
    ("lab --out .", "'.'", "is a folder, expected a file"),
    ("lab --exact", "float16 weights", "leave out --exact"),
    ("lab --runtime ort:folder", "name a run, or leave out --runtime"),
    ("lab --live", "a live page needs a run", "statewise lab RUN --live"),
    # export and import
    ("export runs/lstm --to onx", "'onx' is not one of 'onnx', 'pt2', 'hf', 'gguf'; given: 'onx'"),
    ("export runs/lstm --to hf --out folder", "'folder'", "choose another folder"),
    ("export runs/classifier --to hf", "no layout in other libraries", "export a language model"),
    ("import nowhere", "'nowhere' is not a folder", "config.json"),
    ("import runs/lstm", "'runs/lstm' is a run already", "statewise generate"),
    ("import other --out runs/lstm", "'runs/lstm' already holds a run\nchoose another folder: --out DIR"),
    ("generate other", "'other' is not a run folder", "statewise import other"),
    # data
    ("data bild text.txt", "'bild' is not one of 'build'", "try: statewise data --help"),
    ("data build text.txt", "--out", "try: statewise data --help"),
    ("data build txet.txt --out t", "'txet.txt'", "did you mean 'text.txt'?"),
    ("data build text.txt --out folder", "'folder'", "name an empty folder: --out FOLDER"),
    ("data build text.txt --out t --tokenizer bpee", "'bpee'", "did you mean 'bpe'?"),
    ("data build text.txt --out t --set model.width=3", "model.width=3", "--set data.NAME=VALUE"),
    # book
    ("book chek 1.1", "'chek' is not one of 'check'", "try: statewise book --help"),
]


@pytest.fixture(scope="module")
def museum(world: Path) -> Path:
    """The tiny world, with one of everything that people point at by mistake."""
    (world / "empty.txt").touch()
    (world / "tiny.txt").write_text("hello")
    (world / "afile").write_text("x")
    (world / "binary.bin").write_bytes(bytes(range(256)))
    (world / "latin1.txt").write_bytes("café au lait ".encode("latin1") * 40)
    (world / "utf16.txt").write_text("hello " * 50, encoding="utf-16")
    (world / "bad.toml").write_text('[model\nkind = "lstm"\n')
    (world / "key.toml").write_text('[model]\nkind = "lstm"\nwidht = 12\n')
    (world / "scalar.toml").write_text("model = 3\n")
    (world / "latin.toml").write_bytes("# café".encode("latin1"))
    (world / "binary.toml").write_bytes(b"\0\1\2")
    (world / "tokenizer.json").write_text('{"model": 3')
    (world / "broken.state").write_text("no state")
    statewise.save_state(statewise.build("gru", vocab=9, width=8).init_state(1), world / "gru.state")
    rows = "label\ttext\n" + "good\ta warm film\nbad\ta dull film\n" * 6
    (world / "rows.tsv").write_text(rows)
    (world / "lines.txt").write_text("a warm film\n")
    (world / "one.txt").write_text("ein Haus\n")
    reviews = "".join(f"{i},a {'warm' if i % 2 else 'dull'} film number {i},{i % 2}\n" for i in range(12))
    (world / "reviews.csv").write_text(f"id,review,sentiment\n{reviews}")
    (world / "typo.csv").write_text("text,lable\n" + "a film,good\na bore,bad\n" * 6)
    (world / "pairs.csv").write_text("number,german,english\n1,ein gro\u00dfes Haus,a house\n2,ein Hund bellt,a dog\n")
    (world / "words.conllu").write_text("1\tMary\t_\tPROPN\t_\t_\t_\t_\t_\t_\n\n")
    (world / "tagged.txt").write_text("Mary PROPN\nruns VERB\n\n")
    days = "".join(f"2024-01-{day:02},{shop},{day}\n" for day in range(1, 21) for shop in ("a", "b"))
    (world / "series.csv").write_text(f"date,store,sales\n{days}")
    (world / "dates.csv").write_text("date\n2024-01-01\n2024-01-02\n")
    if not (world / "runs/classifier").exists():
        small = [word for one in ("model.width=8", "model.embedding=8", "train.steps=1") for word in ("--set", one)]
        said = call(
            "train",
            "classification",
            "--data",
            str(world / "rows.tsv"),
            *small,
            "--out",
            str(world / "runs/classifier"),
        )
        assert said.code == 0, said.err
    (world / "other").mkdir(exist_ok=True)
    (world / "other/config.json").write_text("{}")
    (world / "empty").mkdir(exist_ok=True)
    (world / "folder").mkdir(exist_ok=True)
    (world / "folder" / "notes.txt").write_text("x")
    shutil.copytree(world / "runs/lstm", world / "runs/damaged", dirs_exist_ok=True)
    for weights in (world / "runs/damaged").rglob("model.safetensors"):
        data = bytearray(weights.read_bytes())
        data[-1] ^= 1
        weights.write_bytes(data)
    return world


def test_there_are_enough_mistakes() -> None:
    assert len({command for command, *_ in MISTAKES}) == len(MISTAKES) >= 60


@pytest.mark.parametrize(
    ("command", "helps"), [(first, rest) for first, *rest in MISTAKES], ids=lambda value: str(value)
)
def test_a_mistake_is_answered(command: str, helps: list[str], museum: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(museum)
    _check(*call(*command.split()), helps)


@pytest.mark.parametrize(
    ("command", "helps"),
    [
        ("trian lstm", ["'trian'", "did you mean 'train'?"]),
        nightly("train lstm --set model.widht=12", ["model.widht", "did you mean 'width'?"]),
        nightly("train lstm --data binary.bin --out runs/never", ["binary.bin'", "binary file"]),
        nightly("generate runs/lstm --top-p 2", ["top_p = 2", "at most 1"]),
        nightly("generate runs/lstm --tokens many", ["'many'", "valid integer"]),
    ],
)
def test_a_mistake_is_answered_in_a_process_of_its_own(command: str, helps: list[str], museum: Path) -> None:
    _check(*run(*command.split(), cwd=museum), helps)


def test_no_verb_at_all_shows_the_help(world: Path) -> None:
    said = run(cwd=world)
    assert said.code == 2
    assert "Traceback" not in said.out + said.err
    assert "verify" in said.out + said.err


def test_resume_with_nothing_to_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _check(*call("train", "--resume"), ["nothing to resume", "--out"])


def _check(code: int, out: str, err: str, helps: list[str]) -> None:
    assert code == 2, err
    assert out == ""
    assert "Traceback" not in err
    assert len(err.splitlines()) <= 25
    assert "error: " in err
    for help_ in helps:
        assert help_ in err
