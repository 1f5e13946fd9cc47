"""What a script or a notebook defines itself reaches child processes, or the error says what does."""

import pickle
import subprocess
import sys
import types

import pytest

from fedpace.core.children.packing import CannotBeSent, pack, without_main

SCRIPT = """
import multiprocessing
from fedpace.core.children.packing import pack, without_main

print("script runs", flush=True)


class Own:
    def number(self):
        return 42


packed = pack(Own(), "it", "workers=1")
spawn = multiprocessing.get_context("spawn")
ours, theirs = spawn.Pipe()
from answering import answer
child = spawn.Process(target=answer, args=(theirs,))
with without_main(hidden=not packed.needs_main):
    child.start()
ours.send_bytes(packed.data)
print(ours.recv())
child.join()
"""


@pytest.fixture
def no_cloudpickle(monkeypatch):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)


def in_main(monkeypatch, **attributes):
    """A function that a main module of these attributes has defined."""
    main = types.ModuleType("__main__")
    vars(main).update(attributes)
    exec("def double(x):\n    return 2 * x", vars(main))
    monkeypatch.setitem(sys.modules, "__main__", main)
    return main.double


def test_what_a_module_has_goes_by_name_and_needs_no_main():
    packed = pack(subprocess.run, "it", "workers=1")
    assert not packed.needs_main
    assert pickle.loads(packed.data) is subprocess.run


def test_what_a_notebook_has_cannot_go_by_name(monkeypatch, no_cloudpickle):
    double = in_main(monkeypatch)
    with pytest.raises(CannotBeSent, match=r"the task is defined in a notebook.*or use workers=1"):
        pack(double, "the task", "workers=1")


def test_what_a_script_has_goes_by_name_if_its_runs_are_kept_apart(
    monkeypatch, no_cloudpickle, tmp_path
):
    script = tmp_path / "script.py"
    double = in_main(monkeypatch, __file__=str(script))
    script.write_text("print('runs')")
    with pytest.raises(CannotBeSent, match=r"script.py, .* under `if __name__ == '__main__':`"):
        pack(double, "the task", "jobs=1")
    script.write_text("if __name__ == '__main__':\n    print('runs')")
    assert pack(double, "the task", "jobs=1").needs_main


def test_a_lambda_is_told_what_works(no_cloudpickle):
    with pytest.raises(CannotBeSent, match="at module level, install cloudpickle, or use jobs=1"):
        pack(lambda: 1, "the task", "jobs=1")


def test_with_cloudpickle_all_of_it_goes_by_value(monkeypatch):
    pytest.importorskip("cloudpickle", reason="sends by value, of the extra notebook")
    double = in_main(monkeypatch)
    packed = pack((double, lambda: 1), "the task", "jobs=1")
    assert not packed.needs_main
    again, one = pickle.loads(packed.data)
    assert (again(4), one()) == (8, 1)


def test_what_holds_a_lock_is_refused_with_cloudpickle_too():
    pytest.importorskip("cloudpickle", reason="sends by value, of the extra notebook")
    import threading

    with pytest.raises(CannotBeSent, match=r"cannot pickle '_thread.lock'.*or use jobs=1"):
        pack(threading.Lock(), "the task", "jobs=1")


def test_main_is_hidden_only_while_a_process_starts():
    main = sys.modules["__main__"]
    with without_main(hidden=True):
        assert not hasattr(sys.modules["__main__"], "__file__")
    assert sys.modules["__main__"] is main
    with without_main(hidden=False):
        assert sys.modules["__main__"] is main


def test_a_script_that_keeps_nothing_apart_runs_once(tmp_path):
    pytest.importorskip("cloudpickle", reason="sends by value, of the extra notebook")
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "answering.py").write_text(ANSWERING)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == ["script", "runs", "42"], done.stderr


ANSWERING = """
import pickle


def answer(line):
    line.send(pickle.loads(line.recv_bytes()).number())
"""
