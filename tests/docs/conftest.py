"""What the documentation and the examples run in: an environment that has the core dependencies and nothing else."""

from collections.abc import Iterator

import pytest
from user_environment import WARM, User, make_environment, variables, write_commands
from warm import serving


@pytest.fixture(scope="session")
def user(tmp_path_factory: pytest.TempPathFactory) -> User:
    """Whose every command starts as it does for everybody."""
    commands = make_environment(tmp_path_factory.mktemp("user"))
    return User(commands / "python", variables(commands))


@pytest.fixture(scope="session")
def warm_user(user: User, tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """Whose commands are forks of one process that has imported everything (`warm.py`)."""
    with serving(user.python, user.variables) as place:
        # -S and -E: the caller needs nothing that is installed.
        words = {"statewise": f'-S -E "{WARM}" call "{place}"'}
        folder = write_commands(tmp_path_factory.mktemp("bin"), user.python, words)
        yield User(user.python, variables(folder, user.python.parent), place)
