"""Messages as messages of Flower, and the two apps with a Grid that is no network."""

import os
from pathlib import Path

import pytest

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["FLWR_DISABLE_UPDATE_CHECK"] = "1"
pytest.importorskip("flwr", reason="flwr is not installed: pip install 'fedpace[flower]'")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from fedpace.core.commands import Train, Work
from fedpace.core.errors import PeerError
from fedpace.core.events import Arrived, Joined
from fedpace.flower import client_app, server_app
from fedpace.flower.grid import FlowerGrid, from_records, to_records
from fedpace.flower.messages import HELLO, TRAIN, NodeMessage
from fedpace.remote.messages import Introduction, TaskOrder, from_json
from fedpace.runs.simulate import open_result
from tests.flower.nodes_here import SIZES, share, whole

ORDER = TaskOrder(Train(1, 3, 0, Work(8, steps=4, stop_at=9.0, stop_in="layer")), 5, "{}", -1.5)
MESSAGE = NodeMessage.of(ORDER, bytes(range(256)) * 5)


@pytest.fixture(autouse=True)
def task_of_flower(monkeypatch):
    """What Flower's processes know of themselves."""
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


class Grid:
    """Does at once what it is sent, with one ClientApp for all nodes."""

    def __init__(self, app, nodes):
        self.app, self.nodes = app, nodes
        self.out = {}
        self.sent = []

    def get_node_ids(self):
        return list(self.nodes)

    def push_messages(self, messages):
        for message in messages:
            number = f"{len(self.sent)}"
            message.metadata.__dict__["_message_id"] = number
            self.sent.append(message)
            self.out[number] = message
        return [message.metadata.message_id for message in messages]

    def pull_messages(self, message_ids):
        return [self._answer(self.out.pop(one)) for one in list(message_ids) if one in self.out]

    def _answer(self, message):
        node = message.metadata.dst_node_id
        context = Context(1, node, self.nodes[node], RecordDict(), {})
        try:
            return self.app(message, context)
        except Exception as error:
            return Message(Error(code=1, reason=str(error)), reply_to=message)


def test_a_message_survives_its_way_as_records():
    content = to_records(MESSAGE)
    assert set(content.config_records) == {"message"}
    assert from_records(content) == MESSAGE


def test_a_message_survives_what_flower_makes_of_it():
    message = Message(to_records(MESSAGE), dst_node_id=1, message_type=TRAIN, ttl=9.0)
    children = {one.object_id: one for one in message.children.values()}
    again = Message.inflate(message.deflate(), children=children)
    assert from_records(again.content) == MESSAGE
    assert from_json(TaskOrder, from_records(again.content).text) == ORDER


def test_records_without_a_text_are_an_empty_one():
    assert from_records(RecordDict()) == NodeMessage()
    with pytest.raises(PeerError, match="expected JSON"):
        from_records(RecordDict({"message": ConfigRecord({"json": 3})}))


@pytest.mark.parametrize("arrays", [1, 2])
def test_arrays_that_are_no_array_file_are_refused(arrays):
    array = Array(dtype="float32", shape=(1,), stype="numpy.ndarray", data=b"1234")
    content = RecordDict({"x": ArrayRecord({f"{one}": array for one in range(arrays)})})
    with pytest.raises(PeerError, match=f"there are {arrays} arrays"):
        from_records(content)


def test_an_error_of_a_node_and_a_strange_answer_are_told_as_such():
    def app(message, context):
        if message.metadata.message_type == HELLO:
            raise ValueError("no data here")
        array = Array(dtype="uint8", shape=(1,), stype="other", data=b"1")
        return Message(RecordDict({"x": ArrayRecord({"x": array})}), reply_to=message)

    flower = FlowerGrid(Grid(app, {7: {}}))
    assert flower.nodes() == [7]
    first = flower.push(7, HELLO, NodeMessage(), 5.0)
    second = flower.push(7, TRAIN, MESSAGE, 5.0)
    replies = {one.to: one for one in flower.pull([first, second])}
    assert replies[first].message is None
    assert replies[first].error == "Flower says: no data here (code 1)"
    assert "expected one of 'fedpace.arrays'" in replies[second].error


@pytest.mark.parametrize("ids", [[], [None]])
def test_a_message_that_is_not_taken_has_no_number(ids):
    grid = Grid(None, {})
    grid.push_messages = lambda messages: ids
    assert FlowerGrid(grid).push(7, HELLO, NodeMessage(), 5.0) is None


def own_share(context):
    return share(context.node_config["partition-id"])


def test_the_apps_run_a_policy_together(tmp_path):
    nodes = {900 + number: {"partition-id": number} for number in range(3)}
    grid = Grid(client_app(own_share), nodes)
    config = {"clients": 3, "train": {"batch_size": 8}, "stop": {"rounds": 9}}
    app = server_app(config, whole)
    run_config = {
        "policy": "sync",
        "stop.rounds": 2,
        "flower.out": str(tmp_path),
        "flower.poll_s": 0.01,
        "flower.message_s": 0.1,
        "flower.ttl_s": 60.0,
    }
    app(grid, Context(1, 0, {}, RecordDict(), run_config))
    result = open_result(Path(tmp_path))
    joined = [message for message in result.journal if isinstance(message, Joined)]
    assert [one.samples for one in joined] == list(SIZES)
    assert sum(isinstance(message, Arrived) for message in result.journal) == 6
    assert result.summary.label == "sync"
    assert {message.metadata.ttl for message in grid.sent} == {60.0}


def test_a_node_can_be_made_slower_but_not_faster():
    app = client_app(own_share)
    message = Message(RecordDict(), dst_node_id=1, message_type=HELLO)
    context = Context(1, 1, {"partition-id": 0, "slower": 0.5}, RecordDict(), {})
    with pytest.raises(Exception, match="can only be made slower"):
        app(message, context)


def test_what_a_node_says_of_itself_is_plain_records():
    app = client_app(own_share)
    message = Message(RecordDict(), dst_node_id=1, message_type=HELLO)
    reply = app(message, Context(1, 1, {"partition-id": 0, "name": "north"}, RecordDict(), {}))
    assert isinstance(reply.content["message"], ConfigRecord)
    assert from_json(Introduction, reply.content["message"]["json"]).name == "north"
