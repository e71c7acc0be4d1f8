import pytest

from cli.running import Said
from dualnewton.cli import main


@pytest.fixture
def command(capsys, tmp_path, monkeypatch):
    """Run a command in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Said(left.value.code, captured.out, captured.err)

    return run
