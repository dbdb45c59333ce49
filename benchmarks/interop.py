"""A run in other people's programs: how far their logits are from ours, and whether greedy texts are equal.

    python benchmarks/interop.py RUN... [--llama PROBE] [--vllm PYTHON] [--json FILE]

`--llama`: the program that benchmarks/llama_probe.cpp is compiled to, for the run as GGUF. `--vllm`: the interpreter of
an environment with vLLM, for the run as a Hugging Face folder. 20 prompts, 100 tokens each; differences of logits are
relative to the largest where that is above 1, those of vLLM are of log-probabilities.
"""

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from command_line import console, options, readable, write
from rich.table import Table

import statewise as sw
from statewise.interop import export_gguf

PROMPTS = (
    "The Time Traveller (for so it will be convenient) said 42 things.", "I", " a  b\n\n c", "'tis don't we'll",
    "naïve café",
    "x = 3.14159;\n\ty += 100_000", "日本語 text", "ROMEO:", "under the", "machine was", "What", "he and I", "a",
    "when we had", "fire", "at last the", "palace of green porcelain", "It was", "And so", "THE END",
)  # fmt: skip
TOKENS = 100
VLLM = """
import json, sys
import vllm
if __name__ == "__main__":
    rows = json.load(open(sys.argv[1]))
    model = vllm.LLM(model=sys.argv[2], dtype="float32", enforce_eager=True, max_model_len=512)
    wanted = vllm.SamplingParams(temperature=0, max_tokens=len(rows[0]["tokens"]), ignore_eos=True, logprobs=1)
    found = model.generate([{"prompt_token_ids": row["given"]} for row in rows], wanted)
    answers = []
    for one in found:
        tokens = list(one.outputs[0].token_ids)
        logs = [at[token].logprob for at, token in zip(one.outputs[0].logprobs, tokens)]
        answers.append({"tokens": tokens, "logs": logs})
    json.dump({"version": vllm.__version__, "answers": answers}, open(sys.argv[3], "w"))
"""


@torch.no_grad()
def ours(run: Any, prompt: str) -> dict[str, Any]:
    """What we read, the greedy tokens after it, and all logits."""
    given = [run.begin_id, *run.tokenizer.encode(prompt).tolist()]
    logits_BTV, state = run.model(torch.tensor([given]))
    every, tokens = [logits_BTV[0]], []
    for _ in range(TOKENS):
        tokens.append(int(every[-1][-1].argmax()))
        logits_BTV, state = run.model(torch.tensor([tokens[-1:]]), state)
        every.append(logits_BTV[0])
    return {"given": given, "tokens": tokens, "logits_TV": torch.cat(every).numpy()}


def with_llama(run: Any, probe: Path, folder: Path) -> dict[str, Any]:
    file = export_gguf(run, folder / "gguf")
    worst, alike, equal = 0.0, 0, 0
    for prompt in PROMPTS:
        # llama.cpp leaves out a character that a character model does not know; we read it as unknown.
        text = "".join(one for one in prompt if run.tokenizer.encode(one).tolist() != [run.tokenizer.unknown_id])
        expected = ours(run, text)
        (folder / "prompt").write_text(text, encoding="utf-8")
        words = [str(probe), str(file), str(folder / "prompt"), str(TOKENS), str(folder / "logits")]
        lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
        given, tokens = (list(map(int, line.split())) for line in lines)
        alike, equal = alike + (given == expected["given"]), equal + (tokens == expected["tokens"])
        if (given, tokens) == (expected["given"], expected["tokens"]):
            true_TV = expected["logits_TV"]
            found_TV = np.fromfile(folder / "logits", np.float32).reshape(true_TV.shape)
            worst = max(worst, float(np.abs(found_TV - true_TV).max() / max(1.0, np.abs(true_TV).max())))
    return {"program": "llama.cpp", "read alike": alike, "equal texts": equal, "difference": worst}


def with_vllm(run: Any, python: Path, folder: Path) -> dict[str, Any]:
    sw.export_hugging_face(run, folder / "hf", native=True)
    expected = [ours(run, prompt) for prompt in PROMPTS]
    rows = [{"given": one["given"], "tokens": one["tokens"]} for one in expected]
    (folder / "rows.json").write_text(json.dumps(rows))
    (folder / "ask.py").write_text(VLLM)
    words = [str(python), *(str(folder / name) for name in ("ask.py", "rows.json", "hf", "found.json"))]
    subprocess.run(words, capture_output=True, check=True)
    found = json.loads((folder / "found.json").read_text())
    worst, equal = 0.0, 0
    for one, answer in zip(expected, found["answers"], strict=True):
        equal += answer["tokens"] == one["tokens"]
        if answer["tokens"] == one["tokens"]:
            log_TV = torch.from_numpy(one["logits_TV"][len(one["given"]) - 1 : -1]).double().log_softmax(-1)
            logs_T = log_TV.gather(1, torch.tensor(one["tokens"])[:, None])[:, 0]
            worst = max(worst, float((logs_T - torch.tensor(answer["logs"])).abs().max()))
    return {
        "program": f"vLLM {found['version']}",
        "read alike": len(rows),
        "equal texts": equal,
        "difference": worst,
    }


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folders of language models")
    parser.add_argument("--llama", type=readable, metavar="PROBE", help="the compiled llama_probe")
    parser.add_argument("--vllm", type=readable, metavar="PYTHON", help="an interpreter with vLLM")
    asked = parser.parse_args()
    table, rows = Table("run", "program", "read alike", "equal texts", "difference"), []
    for name in asked.runs:
        run = sw.load(name, device="cpu")
        for program, compare in ((asked.llama, with_llama), (asked.vllm, with_vllm)):
            if program is None:
                continue
            with tempfile.TemporaryDirectory() as folder:
                row = {"run": name, **compare(run, program.absolute(), Path(folder))}
            rows.append(row)
            shown = [str(row[column]) for column in ("run", "program", "read alike", "equal texts")]
            table.add_row(*shown, f"{row['difference']:.1e}")
    console().print(table)
    write(asked.json, rows)


if __name__ == "__main__":
    main()
