"""The learning side of a simulated run, put together from its settings."""

from array import array
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from fedpace.core.commands import GLOBAL
from fedpace.core.errors import ConfigError
from fedpace.core.model import ModelProfile
from fedpace.data.partition import PartitionSettings, partition
from fedpace.data.shares import Shares
from fedpace.data.streams import StreamSettings, make_stream, order_of_arrival
from fedpace.learn import files
from fedpace.learn.many.choice import open_executor
from fedpace.learn.server.evaluate import Evaluator
from fedpace.learn.server.model_server import ModelServer, Recall
from fedpace.learn.server.store import ModelStore
from fedpace.learn.settings import ServerSettings, TrainSettings
from fedpace.learn.tasks.task import Task
from fedpace.learn.train.profile import Method
from fedpace.learn.train.trainer import Trainer
from fedpace.sim.lazy import LazyTraining


class Learning:
    """A task divided among clients, its trainer and its model's profile.

    profile: how it is found, or one that is known already; widths: shares of the channels that
    thinner models in it have; stream: how clients' samples arrive. samples: how many each client has.
    """

    def __init__(
        self,
        task: Task,
        clients: int,
        division: PartitionSettings,
        train: TrainSettings,
        profile: Method | ModelProfile,
        seed: int,
        device: str = "cpu",
        widths: Sequence[float] = (),
        stream: StreamSettings | None = None,
    ) -> None:
        if task.clients is None:
            labels = task.train[1].numpy()
            if division.kind != "iid" and (labels.ndim != 1 or labels.dtype.kind != "i"):
                raise ConfigError(
                    f"a {division.kind} partition needs one class a sample, but targets are "
                    f"{labels.dtype} of shape {labels.shape}; use partition.kind 'iid', or give clients"
                )
            task = task.divided(partition(labels, clients, division, seed))
        shares = Shares.of(task.clients or ())
        if len(shares) != clients:
            raise ConfigError(
                f"clients is {clients}, but the task is divided among {len(shares)}; make them equal"
            )
        self.samples = array("q", shares.sizes.tobytes())
        arrivals = None if stream is None else make_stream(stream, self.samples, seed)
        if arrivals is not None and not task.ordered:
            labels, content = task.train[1].numpy(), arrivals.settings.content
            task = task.divided(order_of_arrival(shares, labels, content, seed))
        self._task = task
        self._trainer = Trainer(task, train, seed, device, arrivals)
        self.profile: ModelProfile = (
            profile if isinstance(profile, ModelProfile) else self._trainer.profile(profile, widths)
        )

    def learner(
        self,
        server: ServerSettings,
        workers: int,
        stack: ExitStack,
        recall: Recall | None,
        cluster: bool = False,
    ) -> ModelServer:
        """A model server at the model's initial weights; `stack` ends its processes.

        cluster: workers are Ray's, instead of processes of this one.
        """
        trainer = self._trainer
        executor = stack.enter_context(open_executor(trainer, workers, cluster))
        evaluator = Evaluator(self._task, trainer.layout, trainer.new_model(), device=trainer.device)
        self._store = ModelStore(trainer.layout, trainer.initial(), server, evaluator, trainer.slim)
        models = ModelServer(self._store, LazyTraining(executor))
        if recall is not None:
            models.retrace(recall)
        return models

    def save(self, path: Path) -> None:
        """The global model as a state dict, ready for `model.load_state_dict`."""
        model = self._trainer.new_model()
        self._trainer.layout.bind(model).load(self._store.weights(GLOBAL))
        files.save(path, {name: value.clone() for name, value in model.state_dict().items()})
