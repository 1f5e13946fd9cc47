"""The example project on a real SuperLink with two SuperNodes, on this machine."""

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'fedpace[flower]'")

from fedpace.core.commands import Aggregate, Train
from fedpace.core.events import Arrived, Joined, Left, Profiled
from fedpace.core.journal import JOURNAL, part_path, read, replay
from fedpace.runs import config as configs
from fedpace.runs.simulate import open_result
from tests.flower.deployment import EXAMPLE, deployed, wait_for

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def flower(tmp_path_factory):
    with deployed(tmp_path_factory.mktemp("flower")) as deployment:
        deployment.start_link()
        deployment.start_node(0)
        deployment.start_node(1)
        yield deployment


def told(journal, kind):
    return [message for message in journal if isinstance(message, kind)]


def check_replay(folder, policy):
    table = configs.read(EXAMPLE / "two_nodes" / "config.toml", [f"policy={policy}"])
    plan = configs.policy_plan(configs.load(table), policy)
    replay(folder / JOURNAL, plan.kind(plan.settings, open_result(folder).journal.header.context))


def test_updates_are_used_as_they_come(flower, tmp_path):
    said = flower.run(tmp_path, policy='"fedbuff"', **{"stop.rounds": 4})
    result = open_result(tmp_path)
    assert sorted(one.samples for one in told(result.journal, Joined)) == [6000, 6000], said
    arrived = told(result.journal, Arrived)
    assert {one.client for one in arrived} == {0, 1}
    assert all(one.result.steps == 188 and not one.result.cut for one in arrived)
    assert result.accuracy[-1][1] > result.accuracy[0][1] + 0.2
    assert "over: 4 rounds are over" in said
    assert (tmp_path / "weights.pt").exists()
    check_replay(tmp_path, "fedbuff")


def test_work_is_fitted_to_the_time_that_messages_leave(flower, tmp_path):
    """Batches of one sample make tasks of seconds; there is time for messages of a busy machine."""
    train = {"train.batch_size": 1, "train.lr": 0.01}
    rounds = {"stop.rounds": 2, "flower.message_s": 14.0}
    said = flower.run(tmp_path, policy='"timelyfl"', **train, **rounds)
    result = open_result(tmp_path)
    profiled = told(result.journal, Profiled)
    assert {one.client for one in profiled} == {0, 1}, said
    assert all(one.rates.down_s > one.rates.up_s >= 7.0 for one in profiled)
    assert all(one.rates.batches == 6000 for one in profiled)
    arrived = told(result.journal, Arrived)
    assert arrived, said
    given = {one.task: one.work for one in told(result.journal, Train)}
    for one in arrived:
        assert one.at < given[one.task].stop_at + one.rates.up_s + 10.0
    check_replay(tmp_path, "timelyfl")


def test_a_supernode_that_is_killed_has_left_and_one_with_its_data_takes_its_place(flower, tmp_path):
    """Flower takes a minute to notice. The run is stopped in the end, and can be gone on with."""
    number = flower.start_run(tmp_path, policy='"fedbuff"', **{"stop.rounds": 1000})

    def so_far(kind):
        path = part_path(tmp_path / JOURNAL)
        return told(read(path)[1], kind) if path.exists() else []

    wait_for(lambda: len({one.client for one in so_far(Arrived)}) == 2, 120, "an update of each")
    names = (tmp_path / "clients.json").read_text()
    flower.kill_node(1)
    wait_for(lambda: so_far(Left), 120, "news of the killed node")
    rounds = len(so_far(Aggregate))
    flower.start_node(1)
    wait_for(lambda: len(so_far(Joined)) == 3, 90, "the new node")
    wait_for(lambda: so_far(Arrived)[-1].client == so_far(Joined)[-1].client, 90, "its first update")
    assert [one.client for one in so_far(Left)] == [so_far(Joined)[-1].client]
    assert (tmp_path / "clients.json").read_text() == names
    assert len(so_far(Aggregate)) > rounds > 2
    flower.stop_run(number)
    wait_for(lambda: (tmp_path / "snapshot.pt").exists(), 30, "the snapshot")
