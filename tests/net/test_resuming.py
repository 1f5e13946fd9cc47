"""A served run goes on with other operational settings, and its journal says so."""

from fedpace.core.events import Failed, Joined, Left
from fedpace.core.facts import Changed
from fedpace.report.summary import summarise
from tests.net.children import CRASHED, QUICK

ON = 10**6


def test_operational_settings_may_change_and_each_change_is_a_fact(build):
    run = build("fedbuff", 2, ON, QUICK, k=1)
    server = run.serve()
    run.clients(2, step_s=0.01)
    run.reached(3)
    run.stop(server)
    run.config["serve"] |= {"silent_s": 30.0, "norm_bound": 1e-9, "snapshot_every_s": 0.5}
    run.config["clients"] = 3
    run.config["evaluate"] = {"every_rounds": 50}
    server = run.serve()
    run.wait_for(lambda: run.of(Failed), "nothing is refused by the new bound")
    server.kill()  # what was accepted under the old bound stays accepted when it is made again
    run.config["serve"] |= {"norm_bound": 1e9, "quarantine_s": 0.01}
    run.config["stop"] = {"rounds": 10**5}
    server = run.serve()
    run.client("third", step_s=0.01)
    run.wait_for(lambda: 2 in {one.client for one in run.of(Joined)}, "there is no third place")
    before = run.rounds()
    run.reached(before + 5)
    run.stop(server)
    changed = [(one.key, one.was, one.now) for one in run.of(Changed)]
    assert sorted(changed[:5]) == [
        ("clients", 2, 3),
        ("evaluate.every_rounds", None, 50),
        ("serve.norm_bound", None, 1e-9),
        ("serve.silent_s", 20.0, 30.0),
        ("serve.snapshot_every_s", 30.0, 0.5),
    ]
    assert sorted(changed[5:]) == [
        ("serve.norm_bound", 1e-9, 1e9),
        ("serve.quarantine_s", 600.0, 0.01),
        ("stop.rounds", ON, 10**5),
    ]
    assert summarise(run.path, unfinished=True).rounds == run.rounds()


def test_a_setting_that_would_make_another_run_of_it_is_refused_by_its_name(build):
    run = build("sync", 1, ON, QUICK)
    server = run.serve()
    run.clients(1)
    run.reached(2)
    run.stop(server)
    run.config["train"] |= {"lr": 0.5}
    run.config["serve"] |= {"slack": 0.5}
    server = run.serve(ready=False)
    assert server.ended() == CRASHED
    assert "serve.slack is 0.5 here but 0.05" in server.log
    assert "train.lr is 0.5 here but 0.1" in server.log
    assert not run.of(Left)
