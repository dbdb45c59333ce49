"""`python -m statewise` is `statewise`; so `torchrun -m statewise train ...` works."""

from statewise.cli import main

if __name__ == "__main__":
    main()
