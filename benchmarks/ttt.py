"""Test-time training, forward and backward: one Triton kernel against mini-batch by mini-batch in PyTorch.

    python benchmarks/ttt.py                 needs a CUDA device

The same as `python benchmarks/gpu_ops.py --only ttt`: errors against float64, then medians.
"""

import sys

from gpu_ops import main

if __name__ == "__main__":
    sys.argv[1:1] = ["--only", "ttt"]
    main()
