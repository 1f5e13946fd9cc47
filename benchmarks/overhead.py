"""What a whole simulated run costs over a hand-written FedAvg loop that does the same training.

Both train the same model on the same shares with the same batches a round, in turns; ours also keeps
virtual time, checks the contract, journals to disk and tests the model as often as the loop does.
"""

import copy
import tempfile
import time
from statistics import median

import numpy as np
import torch
from torch.nn.functional import cross_entropy

import fedpace
from fedpace.data.fashion import load_shipped
from fedpace.learn.many.executor import single_thread
from fedpace.learn.tasks.models import build_model
from fedpace.learn.tasks.task import Task

CLIENTS, ROUNDS, BATCH, LR = 20, 4, 20, 0.05


def model() -> torch.nn.Module:
    return build_model("cnn", 1, 10)


def by_hand(task: Task, shares: list[np.ndarray]) -> None:
    """Synchronous FedAvg as one would write it in a notebook."""
    inputs, targets = task.train
    server = model()
    for _ in range(ROUNDS):
        total = {name: torch.zeros_like(value) for name, value in server.state_dict().items()}
        for share in shares:
            client = copy.deepcopy(server)
            optimiser = torch.optim.SGD(client.parameters(), lr=LR)
            for batch in torch.from_numpy(np.random.permutation(share)).split(BATCH):  # noqa: NPY002
                optimiser.zero_grad()
                cross_entropy(client(inputs[batch]), targets[batch]).backward()
                optimiser.step()
            for name, value in client.state_dict().items():
                total[name] += value * (len(share) / len(inputs))
        server.load_state_dict(total)
    with torch.no_grad():
        (server(task.test[0]).argmax(1) == task.test[1]).float().mean().item()


def ours(task: Task, shares: list[np.ndarray], folder: str) -> None:
    config = {
        "clients": CLIENTS,
        "policy": "sync",
        "train": {"lr": LR, "batch_size": BATCH},
        "stop": {"rounds": ROUNDS},
        "evaluate": {"every_rounds": ROUNDS},
    }
    fedpace.simulate(config, task=task.divided(shares), out=folder, overwrite=True)


def main() -> dict[str, float]:
    single_thread()
    data = load_shipped()
    task = Task(model, (data.train_x, data.train_y), (data.test_x, data.test_y), scale=1 / 255)
    shares = [np.sort(s) for s in np.array_split(np.random.default_rng(0).permutation(12_000), CLIENTS)]
    spent: dict[str, list[float]] = {"hand": [], "ours": []}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(6):
            for name, run in (
                ("hand", lambda: by_hand(task, shares)),
                ("ours", lambda: ours(task, shares, folder)),
            ):
                began = time.perf_counter()
                run()
                if turn:  # the first warms up
                    spent[name].append(time.perf_counter() - began)
    samples = ROUNDS * 12_000
    ratios = [hand / mine for hand, mine in zip(spent["hand"], spent["ours"], strict=True)]
    for name, times in spent.items():
        print(f"{name:>6}: {samples / median(times):8.0f} samples a second")
    print(
        f"ours / hand-written: {median(ratios):.2f} times the speed "
        f"({min(ratios):.2f} to {max(ratios):.2f})"
    )
    return {"whole run, over a loop by hand": median(ratios)}


if __name__ == "__main__":
    main()
