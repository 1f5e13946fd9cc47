import gc

from fedpace.core.host import few_collections


def test_the_collector_is_as_it_was_when_a_run_is_over():
    before = gc.get_threshold()
    try:
        with few_collections():
            assert gc.get_threshold()[0] > before[0]
            raise RuntimeError
    except RuntimeError:
        pass
    assert gc.get_threshold() == before
