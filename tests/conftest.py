import pytest


@pytest.fixture
def small():
    """A config that trains for real in a second or two; tests change what they are about."""
    return {
        "clients": 12,
        "task": {"kind": "fashion-mnist", "model": "mlp"},
        "partition": {"kind": "dirichlet", "alpha": 0.5},
        "fleet": {"kind": "phones", "behaviour": {"jitter": 0.1}},
        "train": {"lr": 0.1},
        "policy": "timelyfl",
        "policies": {
            "timelyfl": {"n": 8, "k": 4},
            "fedbuff": {"concurrency": 8, "k": 4},
            "fedcompass": {"q_min": 5, "q_max": 25},
            "adel": {
                "budget_s": 3000.0,
                "times": "steady",
                "constants": {"gradient": 1.0, "noise": 4.0, "smoothness": 1.0},
                "train": {"lr": 0.5, "steps": 1},
            },
            "uniform": {"train": {"steps": 20}},
            "no_straggler": {"train": {"steps": 20}},
            "dbfl": {"start": 10, "train": {"steps": 20}},
            "dynamic_tau": {"tau_max": 20, "train": {"steps": 1}},
            "salf": {"deadline_s": 30.0, "train": {"lr": 0.5, "steps": 1}},
            "sync": {"n": 6, "over_selection": 1.3},
        },
        "stop": {"rounds": 6},
        "evaluate": {"every_rounds": 2},
    }


def pytest_collection_modifyitems(config, items):
    """Slow tests first: one that begins last would keep a single worker busy at the end.

    Tests of nightly size are left out unless `-m` speaks of them.
    """
    if "nightly" not in config.getoption("markexpr"):
        large = [item for item in items if item.get_closest_marker("nightly")]
        config.hook.pytest_deselected(items=large)
        items[:] = [item for item in items if not item.get_closest_marker("nightly")]
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
