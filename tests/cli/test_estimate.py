"""`estimate` and `index --dry-run` on the command line: what they print, and that they keep what they paid for and write nothing else."""

import pytest

from tests.cli.shell import FILES, project, sh
from tests.forecast.world import bytes_of
from tests.modelserver.script import WORK


def test_an_estimate_comes_before_the_index(tmp_path):
    """A sample is read, the rest is told in calls, tokens and minutes; the index asks for the others only, as many as were said."""
    with project(tmp_path) as server:
        told = sh(f"graphrag-local estimate {tmp_path} --sample 2 --json").json
        sampled = len(server.requests(*WORK))
        done = sh(f"graphrag-local index {tmp_path} --json").json
        asked = len(server.requests(*WORK)) - sampled

    assert sampled == told["sample"]["calls"] == 2
    assert (told["changes"]["new"], told["documents"], told["chunks"]) == (sorted(FILES), 3, 3)
    assert told["extraction"]["calls"] == done["last_build"]["by_stage"]["extraction"]["calls"] == 1
    low, high = told["rest"]["calls"]
    assert low <= asked - 1 <= high
    assert told["minutes"][0] <= told["minutes"][1]
    assert done["last_build"]["replayed"] >= 2


def test_an_estimate_without_a_sample_asks_nothing(tmp_path):
    """People are told documents, calls, tokens, and what is not known; the collection is not asked about, and there is no ledger."""
    with project(tmp_path) as server:
        told = sh(f"graphrag-local estimate {tmp_path} --sample 0")
        asked = server.requests(*WORK)

    assert told.code == 0
    assert asked == []
    assert not (tmp_path / "index" / "ledger.sqlite").exists()
    lines = told.out.splitlines()
    assert lines[0] == "documents: 3 new, 0 the same; 3 chunks in all"
    assert "new: letters/larsen.txt" in told.out
    assert next(line for line in lines if line.startswith("extraction: ")).startswith("extraction: 3 calls, ")
    assert any(line.startswith("then: ") and "reports 0 to" in line for line in lines)
    assert any(line.startswith("note: How long") for line in lines)


def test_a_dry_run_tells_what_would_be_done(spoilt, server):
    """New, edited, renamed and gone documents by name, and what would be asked; nothing is asked, and not a byte of the index changes."""
    (spoilt / "input" / "minutes.md").rename(spoilt / "input" / "old-minutes.md")
    (spoilt / "input" / "news.html").unlink()
    (spoilt / "input" / "new.txt").write_text("Ada Brandt met Piet Larsen.\n")
    before, asked = bytes_of(spoilt / "index"), len(server.requests(*WORK))
    told = sh(f"graphrag-local index {spoilt} --dry-run")
    data = sh(f"graphrag-local index {spoilt} --dry-run --json").json

    assert told.code == 0
    assert "documents: 1 new, 1 renamed, 1 gone, 1 the same; 3 chunks in all" in told.out
    assert "renamed: minutes.md -> old-minutes.md" in told.out
    assert "extraction: 1 call, " in told.out
    assert (data["changes"]["renamed"], data["extraction"]["calls"]) == ([["minutes.md", "old-minutes.md"]], 1)
    assert len(server.requests(*WORK)) == asked
    assert bytes_of(spoilt / "index") == before


def test_a_dry_run_works_while_the_server_is_away(spoilt):
    """What was found out about the server before is enough; a server that nobody knows leaves the changes."""
    (spoilt / "input" / "new.txt").write_text("Ada Brandt met Piet Larsen.\n")
    elsewhere = sh(f"graphrag-local index {spoilt} --dry-run --json --set engine.url=http://127.0.0.1:9/v1 --set engine.clock_scale=100").json

    assert elsewhere["changes"]["new"] == ["new.txt"]
    assert elsewhere["extraction"] is None
    assert "cannot be opened" in elsewhere["notes"][0]


@pytest.mark.parametrize("option", ["estimate --sample -1", "index --budget-tokens 0"])
def test_limits_that_mean_nothing_are_wrong_use(tmp_path, option):
    """The command line refuses them."""
    command, rest = option.split(" ", 1)
    assert sh(f"graphrag-local {command} {tmp_path} {rest}").code == 2


def test_a_budget_stops_the_run_and_the_next_one_goes_on(tmp_path):
    """Exit code 130, a sentence with the tokens used; the replies that came are not asked for again."""
    with project(tmp_path) as server:
        stopped = sh(f"graphrag-local index {tmp_path} --budget-tokens 1")
        paid = len(server.requests(*WORK))
        done = sh(f"graphrag-local index {tmp_path} --json").json

    assert stopped.code == 130
    assert "The budget of 1 tokens is spent" in stopped.err
    assert paid >= 1
    assert done["published"]
    assert done["last_build"]["replayed"] >= paid
