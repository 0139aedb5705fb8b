"""The serving example answers as eager does, from several threads, and compiles nothing once it has started."""
import sys

import pytest

import framejit

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")

import serving  # noqa: E402


@pytest.fixture(autouse=True)
def one_thread():
    """As the example does, but only for a test."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def sizes_of_all_kinds():
    """The smallest and the largest number of rows, and some between."""
    return [serving.rows(count, "tiny") for count in (64, 1, 2, 3, 17, 1, 63, 64, 32, 2)] + list(serving.requests(30, "tiny"))


@pytest.mark.parametrize("system", serving.SYSTEMS)
def test_answers_are_eager_s_and_nothing_is_compiled(system):
    net, arriving, answers = serving.encoder("tiny"), sizes_of_all_kinds(), {}

    def answered(number, request, result):
        answers[number] = request, result

    with serving.SYSTEMS[system](net, "tiny") as answer:
        served = serving.serve(answer, iter(arriving), len(arriving), 3, answered)
    assert set(served.made.values()) == {0}, served.made
    assert sorted(answers) == list(range(len(arriving))) and (0 < served.latencies).all() and (served.latencies < 1000).all()
    for request, result in answers.values():
        torch.testing.assert_close(result, net(request), rtol=1e-4, atol=1e-5)


def test_a_request_of_another_kind_is_an_error():
    """Which shows that the compiled server could not have compiled without being noticed."""
    net = serving.encoder("tiny")
    other = serving.rows(3, "tiny").double()
    with serving.compiled(net, "tiny") as answer, pytest.raises(framejit.RecompileError):
        serving.serve(answer, iter([other]), 1, 1)
    with serving.exported(net, "tiny") as answer, pytest.raises(framejit.GraphError, match="f64"):
        serving.serve(answer, iter([other]), 1, 1)


def test_what_is_printed(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["serving.py", "--requests", "20", "--threads", "2", "--model", "tiny"])
    serving.main()
    title, _, *systems = capsys.readouterr().out.splitlines()
    assert title == "20 requests of 1 to 64 rows to the model tiny, 2 threads"
    assert [line.split()[0] for line in systems] == ["compiled", "exported"]
    assert all(line.endswith(" nothing") for line in systems)
