"""What `make bench-gpu` runs, here on a CPU and small: that it goes, not how quick it is."""

import inspect
import json
import sys
from functools import partial
from pathlib import Path

import pytest
from benchmarks.architectures import speech
from benchmarks.gpu import architectures, collect, needs, parts, rates, runs
from benchmarks.gpu.__main__ import main, show
from benchmarks.gpu.agreement import same
from benchmarks.gpu.parts import BY_NAME_ONLY, PARTS, Part, Row

from fedpace.learn.many.stacks import plan, stacked

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("part", [*PARTS, *BY_NAME_ONLY], ids=lambda part: part.name)
def test_a_part_names_a_function_that_is_there(part):
    module, _, name = part.function.partition(":")
    assert f"def {name}(" in (ROOT / "benchmarks/gpu" / f"{module.replace('.', '/')}.py").read_text()
    assert part.about_s <= part.most_s


def test_parts_have_names_of_their_own():
    names = [one.name for one in (*PARTS, *BY_NAME_ONLY)]
    assert len(set(names)) == len(names)


def test_a_rate_is_measured_in_every_way_of_training(monkeypatch):
    monkeypatch.setattr(rates, "CLIENTS", 4)
    for method in ("stacked", "one-by-one", "eager"):
        (row,) = rates.rate("mlp", method, "float32", samples=32)
        assert (row.precision, row.unit) == ("float32", "samples/s")
        assert row.value > 100


def test_methods_that_no_setting_has_are_put_in_and_taken_out_again():
    usual, calls = (plan.usable, stacked.CudaCapture), inspect.signature(stacked.CudaCapture)
    with rates.changed("grouped+eager"):
        assert not plan.usable("cuda")
        capture = stacked.CudaCapture(*calls.parameters)  # takes what the real one takes
        assert capture(len) is len
    assert (plan.usable, stacked.CudaCapture) == usual


def test_fedbuff_is_measured_beside_the_synchronous_rate(monkeypatch):
    monkeypatch.setattr(rates, "CLIENTS", 12)
    rate, over = rates.fedbuff_over_sync("mlp", 32, "float32", rounds=4)
    assert rate.value > 100
    assert 0.05 < over.value < 20
    assert over.aim == 0.85


def test_updates_of_stacks_are_told_apart_from_those_one_by_one():
    found = {row.what.rpartition(", ")[2]: row for row in same.same("mlp", clients=3, samples=40)}
    assert found["median"].value < 1e-3
    assert found["updates with other bits when made again"].value == 0


def test_stacks_of_an_architecture_are_measured_over_one_by_one(monkeypatch):
    gru = architectures.Architecture("GRU", 2, partial(speech, frames=12))
    monkeypatch.setattr(architectures, "MODELS", (gru,))
    found = list(architectures.architectures("float32", clients=2, steps=1, turns=1))
    assert [row.aim for row in found] == [None, None, 8, 1e-3]
    assert found[-1].value < 1e-3


def test_a_command_is_timed_round_by_round():
    settings = {"clients": 4, "policy": "sync", "task.kind": "timing", "stop.rounds": 3}
    with runs.fedpace_run(settings, "--device=cpu") as run:
        assert len(run.rounds) == 3
        assert 0 < run.rounds[0] <= run.rounds[1] <= run.rounds[2] <= run.all_s
        assert (run.out / "journal.jsonl").is_file()
    wrong = settings | {"policy": "nobody"}
    with pytest.raises(SystemExit, match="policy 'nobody'"), runs.fedpace_run(wrong):
        pass


def fake(tmp_path, name, body, about_s=0.0, most_s=60.0):
    """A part whose process runs `body`, which has its file of rows as `rows`."""
    script = tmp_path / f"{name}.py"
    script.write_text(f"import sys, time\nrows = sys.argv[-1]\n{body}\n")
    return Part(name, str(script), (), about_s, most_s)


def test_what_did_not_fit_or_failed_is_listed_and_rows_survive(tmp_path, monkeypatch):
    row = json.dumps(Row("it", "tf32", 2.0, "s", 3.0, True).plain())
    add = f"open(rows, 'a').write({row!r} + chr(10))"
    made = [
        fake(tmp_path, "good", add),
        fake(tmp_path, "bad", f"{add}\nsys.exit('mnist is not there')"),
        fake(tmp_path, "endless", f"{add}\ntime.sleep(600)", most_s=2),
        fake(tmp_path, "dear", add, about_s=1e6),
    ]
    monkeypatch.setattr(
        collect, "command_of", lambda part, rows: [sys.executable, part.function, str(rows)]
    )
    out = tmp_path / "new" / "gpu.json"
    found = collect.collect(made, 300, out)
    assert json.loads(out.read_text()) == found
    assert [one["part"] for one in found["figures"]] == ["good", "bad", "endless"]
    assert {one["part"]: one["why"] for one in found["not_run"]} == {
        "bad": "failed: mnist is not there",
        "endless": "ended after 2 s",
        "dear": found["not_run"][-1]["why"],
    }
    assert "needs about 1000000 s" in found["not_run"][-1]["why"]
    assert set(found) >= {"machine", "torch", "triton", "commit", "date", "within_s", "took_s"}
    assert "it, tf32: 2 s (aim: at most 3)" in collect.table(found)
    assert "not run: bad (failed: mnist is not there)" in collect.table(found)


def test_what_is_missing_is_named_in_one_line(tmp_path, monkeypatch):
    assert needs.missing(("json", "no_such_module")) == ["no_such_module"]
    found = needs.complaint(("json", "nothing_a", "nothing_b"))
    assert "has no nothing_a, nothing_b; pip install --target FOLDER nothing_a nothing_b" in found
    assert needs.complaint(("json",), "cpu") is None
    (tmp_path / "needs_more.py").write_text("import no_such_module.part")
    monkeypatch.syspath_prepend(tmp_path)
    assert needs.missing(("needs_more",)) == ["no_such_module"]
    with pytest.raises(SystemExit, match="there is no part 'nothing'; known are same,"):
        parts.part_of("nothing")
    with pytest.raises(SystemExit, match="there is no rate of 'resnet'; models are mnist-cnn"):
        next(rates.rate("resnet", "stacked", "tf32"))
    monkeypatch.setitem(rates.SAMPLES, "mlp", 4)
    with pytest.raises(SystemExit, match=r"rate: .*precision"):
        show(parts.part_of("rate"), ["mlp", "stacked", "tf33"], None)
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit, match=r"gpu.json cannot be written \(.*\); name another"):
        main(["--cpu", "--out", str(tmp_path / "file" / "gpu.json"), "same"])
