"""Convolutions of few elements, with bias and relu, and steps of small convolutional networks: eager torch and framejit in turns.

    env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE python benchmarks/convolutions.py [--threads 1]

Of each the least of several calls in microseconds and eager's time over ours: forward alone, then with the derivatives by image, weight and bias. A
name says images × channels in → channels out, the image's sides, and millions of products of elements; up to about one million they are a
product of ours (tracer/frontends/torch/convolutions.cpp). The steps are forward, cross entropy, backward, and plain gradient descent.
"""
import argparse
import copy
import functools
import os

from turns import in_turns, use_threads

SIZES = [(1, 3, 16, 16), (1, 16, 16, 16), (1, 32, 32, 8), (1, 64, 64, 4), (4, 3, 16, 16), (8, 8, 8, 8), (16, 1, 8, 8), (16, 8, 16, 4), (32, 8, 16, 4),
         (64, 1, 8, 8), (1, 64, 64, 8), (16, 3, 16, 16), (16, 8, 16, 16), (16, 32, 32, 8)]


def networks(nn):
    def block(inputs, outputs, *more):
        return nn.Conv2d(inputs, outputs, 3, padding=1), *more, nn.ReLU(), nn.MaxPool2d(2)

    yield "two convolutions, 16 images of 8×8", nn.Sequential(*block(1, 8), *block(8, 16), nn.Flatten(), nn.Linear(64, 10)), (16, 1, 8, 8)
    yield ("the same with batch norm", nn.Sequential(*block(1, 8, nn.BatchNorm2d(8)), *block(8, 16, nn.BatchNorm2d(16)), nn.Flatten(), nn.Linear(64, 10)),
           (16, 1, 8, 8))
    yield "two convolutions, 64 images of 8×8", nn.Sequential(*block(1, 8), *block(8, 16), nn.Flatten(), nn.Linear(64, 10)), (64, 1, 8, 8)
    yield ("one dimension, 16 of 3×64", nn.Sequential(nn.Conv1d(3, 8, 5, padding=2), nn.ReLU(), nn.Conv1d(8, 8, 5, stride=4), nn.ReLU(), nn.Flatten(),
                                                      nn.Linear(120, 10)), (16, 3, 64))


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options.add_argument("--seconds", type=float, default=1.0)
    options = options.parse_args()
    use_threads(options.threads)

    import torch

    import framejit
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)

    def row(name, eager, ours):
        times = in_turns([eager, ours], options.seconds)
        return f"{name} {1e6 * times[0]:8.1f} {1e6 * times[1]:8.1f} {times[0] / times[1]:6.2f}"

    def convolved(x, weight, bias):
        return torch.relu(torch.conv2d(x, weight, bias, padding=1))

    print(f"load {os.getloadavg()[0]:.1f} before; {options.threads} thread(s)")
    for images, inputs, outputs, side in SIZES:
        framejit.reset()  # as a function that is given images of one size
        compiled = framejit.compile(convolved)
        given = torch.randn(images, inputs, side, side), torch.randn(outputs, inputs, 3, 3), torch.randn(outputs)
        leaves = [tensor.clone().requires_grad_() for tensor in given]
        torch.testing.assert_close(compiled(*given), convolved(*given), rtol=1e-3, atol=1e-3)
        cotangent = torch.ones_like(convolved(*given))

        def derived(function):
            return torch.autograd.grad(function(*leaves), leaves, cotangent)

        name = f"{images}×{inputs}→{outputs} {side}×{side}, {images * inputs * outputs * side * side * 9 / 1e6:.2f}"
        line = row(f"{name:>34}", functools.partial(convolved, *given), functools.partial(compiled, *given))
        print(row(line + "  derived", functools.partial(derived, convolved), functools.partial(derived, compiled)), flush=True)
    for name, model, shape in networks(torch.nn):
        x, y = torch.randn(shape), torch.randint(10, shape[:1])
        other = copy.deepcopy(model)

        def step(model, call, optimizer):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(call(x), y).backward()
            optimizer.step()

        steps = [functools.partial(step, one, call, torch.optim.SGD(one.parameters(), lr=0.01))
                 for one, call in ((model, model), (other, framejit.compile(other)))]
        print(row(f"step of {name:>40}", *steps), flush=True)
    print(f"load {os.getloadavg()[0]:.1f} after")


if __name__ == "__main__":
    main()
