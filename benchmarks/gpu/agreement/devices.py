"""The same runs on the CPU and on the GPU: whether they decide the same, and what they learn."""

from collections.abc import Iterator

from benchmarks.gpu.journals import accuracies, messages
from benchmarks.gpu.parts import Row
from benchmarks.gpu.runs import device, fedpace_run

ADEL = {
    "policies.adel.budget_s": 4000,
    "policies.adel.constants.gradient": 1.0,
    "policies.adel.constants.noise": 4.0,
    "policies.adel.constants.smoothness": 1.0,
}
"""Constants that are given: a plan by measured ones follows the rounding of what it was measured on."""


def devices(*policies: str, rounds: int = 10) -> Iterator[Row]:
    """The CNN on the shipped images, 40 clients, in float32."""
    from fedpace.core.events import Measured
    from fedpace.core.facts import Evaluated
    from fedpace.core.host import cores

    for policy in policies or ("timelyfl", "fedbuff", "adel"):
        settings = {
            "clients": 40,
            "policy": policy,
            "task.kind": "fashion-mnist",
            "task.model": "mnist-cnn",
            "partition.kind": "dirichlet",
            "train.batch_size": 32,
            "train.lr": 0.05,
            "train.precision": "float32",
            "evaluate.every_rounds": 2,
            "stop.rounds": rounds,
            **(ADEL if policy == "adel" else {}),
        }
        found = []
        for options in (("--device=cpu", f"--workers={min(cores(), 12)}"), (f"--device={device()}",)):
            with fedpace_run(settings, *options) as run:
                found.append(messages(run.out))
        told = [[one for one in some if not isinstance(one, Evaluated | Measured)] for some in found]
        apart = sum(a != b for a, b in zip(*told, strict=False)) + abs(len(told[0]) - len(told[1]))
        what = f"{policy}, {rounds} rounds on CPU and GPU"
        yield Row(
            f"{what}, lines of the journal that differ of {len(told[0])}", "float32", apart, "", 0, True
        )
        scores = zip(accuracies(found[0]), accuracies(found[1]), strict=False)
        away = max(abs(one - other) for one, other in scores)
        yield Row(f"{what}, largest difference of accuracy", "float32", away, "", 0.03, True)
