"""Plant faults one at a time, in a copy of this repository, and see which tests catch them.

    python tools/plant_faults.py [NAME ...]

For each fault: a line is changed, its tests run in the fast tier, and those of the nightly tier if nothing failed.
Prints a table; exits with 1 if a fault was missed. A fault whose line has changed says so: write it anew.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
# name: file in statewise, text, what replaces it, pytest arguments
FAULTS = {
    "ragged rows step once too often": (
        "core/state.py",
        "active_B = t < lengths_B",
        "active_B = t <= lengths_B",
        "tests/laws/test_laws.py -k elman",
    ),
    "GRU gates swapped": (
        "kernels/gru/naive.py",
        "(1 - z_BD) * n_BD + z_BD * h_BD",
        "z_BD * n_BD + (1 - z_BD) * h_BD",
        "tests/reference/test_torch_nn.py",
    ),
    "attention scores not scaled": (
        "kernels/attention/naive.py",
        "scale * (q_BHTK @ k_BHSK.mT)",
        "q_BHTK @ k_BHSK.mT",
        "tests/kernels/test_attention_forms.py",
    ),
    "Viterbi ends without the end's score": (
        "kernels/crf/naive.py",
        "(delta_BK + weights.end_K).max(1)",
        "delta_BK.max(1)",
        "tests/kernels/test_crf_by_enumeration.py",
    ),
    "layer norm forgets its epsilon": (
        "kernels/layer_norm/naive.py",
        "keepdim=True) + eps)",
        "keepdim=True))",
        "tests/kernels/test_triton.py -k layer_norm",
    ),
    "both directions leave padding in": (
        "encoders/bidirectional.py",
        "past_end(self.join(y_BTC), lengths_B)",
        "self.join(y_BTC)",
        "tests/laws/test_encoder_laws.py tests/reference/test_bidirectional.py tests/unit/test_reader.py",
    ),
    "alignment looks past the source's end": (
        "layers/alignment.py",
        "< lengths_B[:, None, None]",
        "<= lengths_B[:, None, None]",
        "tests/unit/test_attend.py",
    ),
    "a block leaves out its residual": (
        "models/stack.py",
        "y = x + y if self.residual else y\n            return",
        "return",
        "tests/unit/test_models.py",
    ),
    "the nucleus is one token short": (
        "decoding/sampling.py",
        "(probability_BV.cumsum(-1) - probability_BV) >= p",
        "probability_BV.cumsum(-1) >= p",
        "tests/unit/test_decoding_sampling.py",
    ),
    "gradients are clipped at twice the norm": (
        "training/update.py",
        "self.spec.clip, norm)",
        "2 * self.spec.clip, norm)",
        "tests/unit/test_training_step.py",
    ),
    "warm-up begins a step late": (
        "training/progress_state.py",
        "step / spec.warmup)",
        "(step - 1) / spec.warmup)",
        "tests/unit/test_training_schedule.py",
    ),
    "optimiser memory is not restored": (
        "training/optimizer.py",
        'optimizer.load_state_dict({"state": memory,',
        'optimizer.load_state_dict({"state": {},',
        "tests/product/test_resume.py tests/unit/test_training_checkpoint.py",
    ),
    "held-out rows are learned from too": (
        "data/split.py",
        "HeldOut(np.flatnonzero(~held_N)",
        "HeldOut(np.arange(count)",
        "tests/unit/test_data_held_out.py",
    ),
    "decoding drops the first token": (
        "data/tokenizer.py",
        "self._backend.decode(kept,",
        "self._backend.decode(kept[1:],",
        "tests/unit/test_data_tokenizer.py",
    ),
    "files are not flushed to disk": (
        "disk/write.py",
        "        sync(temporary)\n",
        "",
        "tests/unit/test_disk.py",
    ),
    "Holm's correction is Bonferroni's": (
        "comparison/statistics.py",
        "(len(there) - rank) * p",
        "len(there) * p",
        "tests/unit/test_comparison_statistics.py",
    ),
    "percentages are tenfold": (
        "display/number.py",
        "{value * 100:",
        "{value * 1000:",
        "tests/unit/test_figures_drawn.py",
    ),
    "a reversal is judged as a copy": (
        "inspection/attention/alignment.py",
        "list(range(length))[::-1]",
        "list(range(length))",
        "tests/learning/test_alignment_lens.py tests/unit/test_inspection_translators.py",
    ),
    "everything may be held out": (
        "specs/language_model.py",
        "held_out: float = Field(0.1, gt=0, lt=1,",
        "held_out: float = Field(0.1, gt=0, le=1,",
        "tests/product/test_mistakes.py -k held_out",
    ),
    "a mistake exits with 1": (
        "cli/__init__.py",
        '{_notes(error)}", 2)',
        '{_notes(error)}", 1)',
        "tests/product/test_mistakes.py",
    ),
    "accuracy counts one row too many": (
        "tasks/metric/label.py",
        "hits / len(true)",
        "hits / (len(true) + 1)",
        "tests/unit/test_metric_language.py",
    ),
    "MASE scales by a period of one": (
        "tasks/metric/series.py",
        "mase_scale(train_TC, period=period)",
        "mase_scale(train_TC, period=1)",
        "tests/reference/test_metric_series.py",
    ),
    "GRU's fast backward loses a term": (
        "kernels/gru/batched.py",
        "dh_before_BD.addcmul_(dh_BD, z_BD).addmm_(",
        "dh_before_BD.addmm_(",
        "tests/kernels/test_fused_against_naive.py -k gru",
    ),
}


def run(copy: Path, arguments: str, tier: str) -> str:
    """The first test that fails, or nothing."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", tier, *arguments.split()]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
    failed = re.search(r"^(?:FAILED|ERROR) tests/(\S+)", done.stdout, re.MULTILINE)
    return failed.group(1) if failed else "" if done.returncode in (0, 5) else done.stdout[-500:] + done.stderr[-500:]


def main() -> int:
    missed = 0
    print("| fault | file | caught by | tier |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "repository"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache"))
        for name in sys.argv[1:] or FAULTS:
            file, old, new, arguments = FAULTS[name]
            path = copy / "statewise" / file
            before = path.read_text() if path.exists() else ""
            if before.count(old) != 1:
                print(f"| {name} | {file} | its text is there {before.count(old)} times, expected once | |", flush=True)
                missed += 1
                continue
            path.write_text(before.replace(old, new))
            tier = "fast"
            if not (caught := run(copy, arguments, "not slow")):
                tier, caught = "nightly", run(copy, arguments, "slow or not slow")
            path.write_text(before)
            missed += not caught
            print(f"| {name} | {file} | {caught or 'NOTHING'} | {tier if caught else ''} |", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
