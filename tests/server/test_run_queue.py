"""Who is next: first come, first served for one owner, turns between several."""

from core.server.queue import RunQueue


def queue_of(*arrivals: str, max_per_owner: int | None = None) -> RunQueue:
    """A queue of runs such as ``a1``, whose owner is the letter."""
    queue = RunQueue(max_per_owner=max_per_owner)
    for name in arrivals:
        queue.add(name, name[0])
    return queue


def test_runs_of_one_owner_start_in_the_order_in_which_they_came():
    assert queue_of("a1", "a2", "a3").order({}) == ["a1", "a2", "a3"]


def test_owners_take_turns_however_many_runs_one_of_them_queues():
    assert queue_of("a1", "a2", "a3", "b1", "c1", "b2").order({}) == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_an_owner_whose_run_trains_waits_for_those_who_have_none():
    queue = queue_of("a1", "b1", "b2", "c1")
    assert queue.order({"a": 1}) == ["b1", "c1", "a1", "b2"]
    assert queue.position("a1", {"a": 1}) == 3
    assert queue.next({"a": 1}) == "b1"


def test_no_owner_has_more_in_training_than_allowed_though_places_are_free():
    queue = queue_of("a1", "a2", max_per_owner=1)
    assert queue.next({"a": 1}) is None
    queue.add("b1", "b")
    assert queue.next({"a": 1}) == "b1"
    assert queue.next({}) == "a1"


def test_a_run_that_waits_no_more_is_in_no_order():
    queue = queue_of("a1", "b1")
    queue.remove("a1")
    assert "a1" not in queue
    assert (len(queue), queue.order({}), queue.next({})) == (1, ["b1"], "b1")
    queue.remove("b1")
    assert queue.next({}) is None
