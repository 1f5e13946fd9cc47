import pytest

from fedpace.core.commands import Aggregate, Drop, Train
from fedpace.core.errors import ConfigError
from fedpace.core.events import Failed, Joined
from fedpace.policies.fedasync import FedAsync, FedAsyncSettings
from fedpace.policies.shared.staleness import Staleness

from .conftest import of


def test_every_update_moves_the_model_at_once_and_its_client_goes_on_with_the_new_one(stage):
    on = stage(FedAsync, clients=3)
    assert {one.client for one in of(Train, on.first)} == {0, 1, 2}
    for version, client in enumerate((2, 0, 2, 1), start=1):
        commands = on.arrive(float(version), client)
        (step,) = of(Aggregate, commands)
        assert step.rule == "mix"
        assert [(one.client, one.version) for one in of(Train, commands)] == [(client, version)]


def test_the_mixing_weight_is_alpha_times_the_factor_of_its_staleness(stage):
    """Arrivals with staleness 0, 1, 2 and, for the client that came first, 2 again."""
    on = stage(FedAsync, clients=3, alpha=0.6)
    weights = [
        of(Aggregate, on.arrive(float(at), client))[0].weights[0]
        for at, client in enumerate((0, 1, 2, 0), start=1)
    ]
    assert weights == pytest.approx([0.6, 0.6 * 2**-0.5, 0.6 * 3**-0.5, 0.6 * 3**-0.5])


@pytest.mark.parametrize(
    ("staleness", "weights"),
    [
        (Staleness("constant"), [0.9, 0.9, 0.9]),
        (Staleness("hinge", slope=2.0, free=1), [0.9, 0.9, 0.9 / 3]),
    ],
)
def test_other_factors(stage, staleness, weights):
    on = stage(FedAsync, clients=3, staleness=staleness)
    found = [of(Aggregate, on.arrive(1.0 + client, client))[0].weights[0] for client in range(3)]
    assert found == pytest.approx(weights)


def test_fedcompass_s_variant_adds_changes_by_share_of_samples(stage):
    on = stage(FedAsync, clients=2, samples=300, apply="delta", weigh="samples")
    on.tell(Joined(0.5, 5, 600))
    (step,) = of(Aggregate, on.arrive(1.0, 0))
    assert step.rule == "sum"
    assert step.weights == pytest.approx((0.9 * 300 / 1200,))


def test_updates_that_are_too_old_are_dropped_and_make_no_version(stage):
    on = stage(FedAsync, clients=3, max_staleness=1)
    on.arrive(1.0, 0)
    on.arrive(2.0, 1)
    commands = on.arrive(3.0, 2)
    assert [one.reason for one in of(Drop, commands)] == ["staleness 2 is over 1"]
    assert [(one.client, one.version) for one in of(Train, commands)] == [(2, 2)]


def test_only_as_many_train_as_concurrency_says(stage):
    on = stage(FedAsync, clients=6, concurrency=2)
    for at in range(1, 30):
        on.arrive(float(at), min(on.open_tasks()))
        assert len(on.open_tasks()) == 2
    failing = on.open_tasks()[min(on.open_tasks())]
    on.tell(Failed(40.0, failing.client, failing.task, "crashed"))
    assert len(on.open_tasks()) == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alpha": 0.0}, "alpha is 0.0"),
        ({"alpha": 1.1}, "alpha is 1.1; set it above 0, and to 1 at most"),
        ({"max_staleness": -1}, "max_staleness is -1"),
        ({"concurrency": 0}, "concurrency is 0"),
        ({"epochs": 0}, "epochs is 0"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        FedAsyncSettings(**settings)


def test_more_concurrency_than_clients_is_refused(stage):
    with pytest.raises(ConfigError, match="concurrency is 9, but 3 clients are in the fleet"):
        stage(FedAsync, clients=3, concurrency=9)
