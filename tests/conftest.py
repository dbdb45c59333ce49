"""One thread a test process: the suite runs several side by side, and tiny tensors gain nothing from more."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
