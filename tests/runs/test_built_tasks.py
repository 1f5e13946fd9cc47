"""Tasks that several runs of a process share."""

from fedpace.runs.assembly import BuiltTasks


class Ours:
    __module__ = "fedpace.learn.tasks.images"
    built = 0

    @classmethod
    def build(cls, settings, clients):
        cls.built += 1
        return [settings, clients, cls.built]


class Theirs(Ours):
    __module__ = "my_tasks"


def test_data_of_the_same_task_is_read_once():
    tasks, Ours.built = BuiltTasks(), 0
    first = tasks.build(Ours, {"model": "cnn"}, 10)
    assert tasks.build(Ours, {"model": "cnn"}, 10) is first
    assert tasks.build(Ours, {"model": "mlp"}, 10)[2] == 2
    assert tasks.build(Ours, {"model": "mlp"}, 20)[2] == 3


def test_a_task_of_ones_own_is_built_for_every_run():
    tasks, Theirs.built = BuiltTasks(), 0
    assert [tasks.build(Theirs, {}, 10)[2] for _ in range(2)] == [1, 2]
