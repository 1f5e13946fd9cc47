import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpace.core.commands import Probe, Work
from fedpace.core.model import ModelProfile
from fedpace.fleet.fleet import Pace
from fedpace.sim.timeline import Batches, Link, carry_out, link, progress_since_probe, rates

MODEL = ModelProfile.even(10, 1000, forward_share=0.5)
PACE = Pace(sample_s=0.1, down_bytes_s=100.0, up_bytes_s=50.0, latency_s=1.0)
WAY = Link(latency_s=1.0, down_s=11.0, up_s=21.0)
shapes = st.builds(Batches, st.integers(1, 40), st.integers(1, 200))


def sizes(batches, count):
    """The sizes of the first batches, written out."""
    epoch = [batches.size] * (batches.samples // batches.size)
    if batches.samples % batches.size:
        epoch.append(batches.samples % batches.size)
    return (epoch * (count // len(epoch) + 1))[:count]


@given(shapes, st.integers(0, 100))
def test_batches_go_through_the_data_epoch_by_epoch(batches, count):
    assert batches.samples_in(count) == sum(sizes(batches, count))


@given(shapes, st.integers(0, 100), st.integers(0, 50))
def test_batches_from_any_one_on_have_their_sizes(batches, first, count):
    assert batches.sizes(first, count).tolist() == sizes(batches, first + count)[first:]


@given(shapes, st.integers(0, 100), st.floats(0, 0.999))
def test_only_whole_batches_count_as_done(batches, count, into_the_next):
    (next_size,) = sizes(batches, count + 1)[count:]
    assert batches.within(batches.samples_in(count) + into_the_next * next_size) == count


def test_the_link_pays_latency_each_way_and_bytes_by_direction():
    assert link(PACE, MODEL.total_bytes, free_links=False, free_download=False) == WAY
    assert link(PACE, MODEL.total_bytes, free_links=False, free_download=True) == Link(1.0, 0.0, 21.0)
    assert link(PACE, MODEL.total_bytes, free_links=True, free_download=False) == Link(0.0, 0.0, 0.0)
    assert WAY.upload_s(0.5) == 11.0


def test_a_client_measures_the_full_model():
    measured = rates(Batches(20, 50), PACE, WAY)
    assert measured.batch_s == pytest.approx(2.0)
    assert (measured.batches, measured.down_s, measured.up_s, measured.latency_s) == (
        3,
        11.0,
        21.0,
        1.0,
    )
    assert rates(Batches(20, 5), PACE, WAY).batch_s == pytest.approx(0.5)  # fewer samples than a batch


def test_a_whole_epoch_costs_its_samples_and_a_shallow_one_its_share():
    whole = carry_out(Work(20, epochs=1), Batches(20, 50), PACE, WAY, MODEL, 0, begins_at=100.0)
    assert (whole.result.steps, whole.result.samples, whole.result.cut) == (3, 50, False)
    assert whole.arrives_at == pytest.approx(100 + 5 + 21)
    shallow = carry_out(Work(20, epochs=2, depth=1), Batches(20, 50), PACE, WAY, MODEL, 0, 100.0)
    assert shallow.arrives_at == pytest.approx(100 + 2 * 5 * 0.55 + 1 + 2)
    assert (shallow.result.steps, shallow.result.samples) == (6, 50)


def test_a_client_behind_its_stop_time_sends_whole_batches_that_end_before_it():
    work = Work(20, epochs=1, stop_at=104.5)
    cut = carry_out(work, Batches(20, 100), PACE, WAY, MODEL, 0, begins_at=100.0)
    assert (cut.result.steps, cut.result.samples, cut.result.cut) == (2, 40, True)
    assert cut.arrives_at == pytest.approx(104 + 21)


def test_a_stop_time_that_falls_on_the_end_of_the_work_cuts_nothing():
    work = Work(20, epochs=1, stop_at=100.0 + 0.1 * 100)
    assert not carry_out(work, Batches(20, 100), PACE, WAY, MODEL, 0, begins_at=100.0).result.cut


def test_one_batch_is_done_even_if_it_is_late():
    work = Work(20, epochs=1, stop_at=100.5)
    assert carry_out(work, Batches(20, 100), PACE, WAY, MODEL, 0, begins_at=100.0).result.steps == 1


def test_batches_since_the_probe_count_and_are_full_model_batches():
    outcome = carry_out(Work(20, epochs=1, depth=1), Batches(20, 100), PACE, WAY, MODEL, 2, 100.0)
    assert (outcome.result.full_steps, outcome.result.steps) == (2, 5)
    assert outcome.arrives_at == pytest.approx(100 + 3 * 2 * 0.55 + 3)


def since_probe(told_at, epochs=1, steps=None, **probe):
    work = Work(20, epochs=None if steps else epochs, steps=steps)
    request = Probe(0, 1, 0, 20, **probe)
    return progress_since_probe(request, work, Batches(20, 100), 0.1, 100.0, 102.0, told_at)


def test_a_probed_client_goes_on_and_finishes_the_batch_it_is_in():
    assert since_probe(told_at=102.0) == (1, 102.0)
    done, at = since_probe(told_at=105.0)
    assert (done, at) == (3, pytest.approx(106.0))


def test_a_batch_that_nobody_wants_is_left_where_it_is():
    assert since_probe(told_at=105.0, steps=2) == (2, 105.0)
    assert since_probe(told_at=109.0, steps=1) == (4, 109.0)  # what is done stays done


def test_a_client_told_to_wait_after_its_probe_waits():
    assert since_probe(told_at=150.0, go_on=False) == (1, 150.0)
    assert since_probe(told_at=101.0, go_on=False) == (1, 102.0)


def test_a_probe_that_takes_no_time_trains_nothing():
    request = Probe(0, 1, 0, 20, go_on=False)
    found = progress_since_probe(
        request, Work(20, epochs=1), Batches(20, 100), 0.1, 100.0, 100.0, 101.0
    )
    assert found == (0, 101.0)


def test_going_on_ends_at_the_most_epochs():
    assert since_probe(told_at=150.0, epochs=1, max_epochs=2) == (10, 150.0)
