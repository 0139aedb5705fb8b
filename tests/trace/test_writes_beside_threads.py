"""Pieces that write Python objects let other threads run while they compute, and write what is right then."""
import threading
import time

import numpy as np
import pytest

import framejit

LARGE = np.linspace(0.1, 3, 400_000)


class Service:
    def __init__(self):
        self.calls, self.total, self.scale, self.last, self.log = 0, 0.0, 2.0, None, []


def handle(service, x):
    service.calls += 1
    for _ in range(6):
        x = np.sin(x) + np.cos(x)
    return x


def warmed(f, *arguments):
    compiled = framejit.compile(f)
    for _ in range(4):
        compiled(*arguments)
    return compiled


def beside(call, other, done=lambda: None):
    """Runs `other` on another thread while `call` computes, again and again until it has run within a call."""
    within = []

    def watch():
        while not ended.is_set():
            started.wait()
            if running[0]:
                other()
                within.append(running[0])
            time.sleep(0)

    ended, started, running = threading.Event(), threading.Event(), [False]
    thread = threading.Thread(target=watch)
    thread.start()
    started.set()
    running[0] = True
    result = call()
    running[0] = False
    ended.set()
    thread.join()
    return result, len(within)


def test_a_counter_that_another_thread_moves_loses_nothing():
    service = Service()
    c = warmed(handle, service, LARGE)
    service.calls, added = 0, [0]

    def other():
        service.calls += 1  # as eager's: between two instructions of the compiled thread, or while it computes
        added[0] += 1

    expected, calls = handle(Service(), LARGE), 12
    for _ in range(calls):
        found, _ = beside(lambda: c(service, LARGE), other)
        assert np.allclose(found, expected)
    assert added[0] > 0
    assert service.calls == calls + added[0]


def test_many_threads_count_each_call():
    service = Service()
    c = warmed(handle, service, LARGE)
    service.calls = 0
    results = []
    threads = [threading.Thread(target=lambda: results.extend(c(service, LARGE)[0] for _ in range(10))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 40 and len(set(results)) == 1
    assert service.calls == 40


def test_what_the_program_reads_is_read_again():
    """Another scale while it computes: the result is of one of the two, and the log says of which."""

    def scaled(service, x):
        y, scale = x, service.scale
        for _ in range(6):
            y = np.sin(y) * scale
        service.log.append(scale)
        return y

    service = Service()
    c = warmed(scaled, service, LARGE)

    def other():
        service.scale = 3.0 if service.scale == 2.0 else 2.0

    for _ in range(10):
        service.log.clear()
        found, _ = beside(lambda: c(service, LARGE), other)
        (used,) = service.log
        check = Service()
        check.scale = used
        assert np.allclose(found, scaled(check, LARGE))


def test_an_object_of_another_kind():
    def keeps(service, x):
        y = np.exp(np.sin(x)) + np.cos(x) * 2
        service.last = y if service.last is None else service.last + y
        return y

    service = Service()
    c = warmed(keeps, service, LARGE)
    expected = np.exp(np.sin(LARGE)) + np.cos(LARGE) * 2
    for _ in range(10):
        service.last = None

        def other():
            if service.last is None:
                service.last = np.ones_like(LARGE)

        found, within = beside(lambda: c(service, LARGE), other)
        assert np.allclose(found, expected)
        # The last: the other thread looked before the call's write, and wrote after it.
        assert any(np.allclose(service.last, last) for last in (expected, expected + 1, np.ones_like(LARGE)))


def test_arrays_in_place_are_written_once():
    def steps(service, x, state):
        service.calls += 1
        y = np.tanh(np.sin(x) + state)
        state += y * 0.5
        return y

    service, state = Service(), np.zeros_like(LARGE)
    c = warmed(steps, service, LARGE, state)
    for _ in range(10):
        before, calls = state.copy(), service.calls
        other_calls = [0]

        def other():
            service.calls += 1
            other_calls[0] += 1

        found, _ = beside(lambda: c(service, LARGE, state), other)
        assert np.allclose(found, np.tanh(np.sin(LARGE) + before))
        assert np.allclose(state, before + found * 0.5)
        assert service.calls == calls + 1 + other_calls[0]


def test_arrays_whose_writing_is_what_takes_long():
    """The piece has not let others run before it writes, and can't be undone afterwards."""
    def moves(service, x, k):
        service.calls += 1
        if service.scale == 1:
            x += k
        else:
            x += k
        x ^= 8
        x ^= 8

    service, x = Service(), np.zeros(4_000_000, np.int64)
    service.scale = 1
    c = warmed(moves, service, x, 1)
    for _ in range(10):
        x[:], calls = 0, service.calls

        def other():
            service.scale = 3 - service.scale

        beside(lambda: c(service, x, 1), other)
        assert (x == 1).all() and service.calls == calls + 1


def test_library_calls_let_others_run_too():
    def decomposed(service, x):
        service.calls += 1
        return np.linalg.svd(x, compute_uv=False) + 1

    service, x = Service(), np.random.default_rng(0).random((60, 60))
    c = warmed(decomposed, service, x)
    service.calls = 0
    threads = [threading.Thread(target=lambda: [c(service, x) for _ in range(20)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert service.calls == 80


def test_a_training_step_lets_others_run():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 256), torch.nn.GELU())
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)

    def step(x):
        optimizer.zero_grad()
        loss = net(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss

    x = torch.randn(1024, 256)
    c = warmed(step, x)
    ticks = [0]

    def other():
        ticks[0] += 1

    within = sum(beside(lambda: c(x), other)[1] for _ in range(5))
    assert within > 20  # it was a switch or two for each call, before and behind the piece
    assert framejit.cache_info()["internal_errors"] == 0
