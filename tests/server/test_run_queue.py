"""The queue: first come, first served for one owner, fair between owners."""

from core.server.queue import RunQueue


def queue_of(*arrivals: str, max_per_owner: int | None = None) -> RunQueue:
    """A queue of runs such as ``a1``, whose owner is the letter."""
    queue = RunQueue(max_per_owner=max_per_owner)
    for name in arrivals:
        queue.add(name, name[0])
    return queue


def test_runs_of_one_owner_start_in_order_of_arrival():
    assert queue_of("a1", "a2", "a3").order({}) == ["a1", "a2", "a3"]


def test_owners_alternate_however_many_runs_each_queues():
    assert queue_of("a1", "a2", "a3", "b1", "c1", "b2").order({}) == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_owners_with_runs_in_training_queue_behind_others():
    queue = queue_of("a1", "b1", "b2", "c1")
    assert queue.order({"a": 1}) == ["b1", "c1", "a1", "b2"]
    assert queue.position("a1", {"a": 1}) == 3
    assert queue.next({"a": 1}) == "b1"


def test_the_limit_per_owner_holds_even_if_workers_are_free():
    queue = queue_of("a1", "a2", max_per_owner=1)
    assert queue.next({"a": 1}) is None
    queue.add("b1", "b")
    assert queue.next({"a": 1}) == "b1"
    assert queue.next({}) == "a1"


def test_a_removed_run_is_not_in_the_queue():
    queue = queue_of("a1", "b1")
    queue.remove("a1")
    assert "a1" not in queue
    assert (len(queue), queue.order({}), queue.next({})) == (1, ["b1"], "b1")
    queue.remove("b1")
    assert queue.next({}) is None


def test_pools_take_turns_whatever_their_size():
    queue = queue_of("x1", "y1", max_per_owner=1)
    for number in range(6):
        queue.add(f"{number}a", str(number), "class")
    assert queue.order({}) == ["x1", "0a", "y1", "1a", "2a", "3a", "4a", "5a"]
    assert queue.order({}, {"class": 2})[:4] == ["x1", "y1", "0a", "1a"]
    assert queue.order({}, {"": 2})[:4] == ["0a", "1a", "x1", "2a"]
    assert queue.next({"x": 1, "y": 1}, {"": 2}) == "0a"
