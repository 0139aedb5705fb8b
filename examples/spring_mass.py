"""Finds the springs of a chain of masses from how it was seen to move: the simulation is NumPy with a loop, derived as it stands.

    python examples/training.py spring_mass

Eager has no derivative of a simulation. It takes the complex step, which is exact to rounding and calls the simulation once for
each spring; framejit.value_and_grad calls it once.
"""
import numpy as np

import training

MASSES, STEPS_OF_TIME, STEP = 12, 40, 0.05
TITLE = f"the {MASSES + 1} springs of a chain of {MASSES} masses from {STEPS_OF_TIME} positions, NumPy, gradient descent"
STEPS = 150
# float64, both derivatives exact to rounding, and 150 steps in which errors shrink as the fit converges.
TOLERANCE = 1e-9
RATE = 200.0


def simulate(stiffness, start, xp=np):
    """Positions at each time of masses between two walls, let go at `start`; leapfrog."""
    position, velocity, seen = start, 0 * start * stiffness[:-1], []
    for _ in range(STEPS_OF_TIME):
        stretch = xp.diff(position, prepend=0.0, append=0.0)
        force = stiffness * stretch
        velocity = velocity + STEP * (force[1:] - force[:-1])
        position = position + STEP * velocity
        seen.append(position)
    return xp.stack(seen)


def loss(stiffness, start, seen, xp=np):
    return xp.mean((simulate(stiffness, start, xp) - seen) ** 2)


def truth():
    """(springs, start, positions that were seen)"""
    random = np.random.default_rng(0)
    springs, start = 5 + 10 * random.random(MASSES + 1), random.standard_normal(MASSES)
    return springs, start, simulate(springs, start)


def by_complex_steps(stiffness, start, seen):
    gradient = np.empty_like(stiffness)
    for i in range(len(stiffness)):
        moved = stiffness.astype(complex)
        moved[i] += 1e-30j
        value = loss(moved, start, seen)
        gradient[i] = value.imag / 1e-30
    return value.real, gradient


def trainer(loss_and_gradient):
    _, start, seen = truth()
    stiffness = np.full(MASSES + 1, 10.0)

    def step(number):
        nonlocal stiffness
        value, gradient = loss_and_gradient(stiffness, start, seen)
        stiffness = stiffness - RATE * np.asarray(gradient)
        return float(value)

    return step


def systems():
    return training.numpy_systems(trainer, loss, by_complex_steps)
