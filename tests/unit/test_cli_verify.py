"""What `statewise verify --all` says while it runs."""

import pytest

from statewise.cli.verify import _followed
from statewise.tasks import Finding


def test_a_line_follows_each_model(capsys: pytest.CaptureFixture[str]) -> None:
    findings = [
        Finding("elman", "step", "float64", 0.0, True),
        Finding("elman", "split", "float64", 0.0, True),
        Finding("gru", "step", "float32", 1.0, False),
    ]
    followed = _followed(iter(findings), progress=True)
    assert [next(followed), next(followed)] == findings[:2]
    assert capsys.readouterr().err == ""
    assert next(followed) == findings[2]
    assert capsys.readouterr().err == "  1  elman: 2 checks passed\n", "before the next model is finished"
    assert list(followed) == []
    assert capsys.readouterr().err == "  2  gru: BROKEN: step (float32)\n"
    assert list(_followed(iter(findings), progress=False)) == findings
    assert capsys.readouterr().err == ""
