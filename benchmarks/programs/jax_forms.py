"""Forms of the programs that somebody would write in JAX: loops are its own, and what is written in place is a new array."""
import jax
import jax.numpy as jnp
from jax import lax

from . import arrays
from .registry import form

jax.config.update("jax_enable_x64", True)


def jax_form(function, **options):
    """Registers what is written as the form of a program, compiled by JAX with these options."""
    return lambda written: form("jax", function)(jax.jit(written, **options))


@jax_form(arrays.heat)
def heat(u, rate, steps):
    def step(_, u):
        return u.at[1:-1, 1:-1].add(rate * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]))
    return lax.fori_loop(0, steps, step, u)


@jax_form(arrays.wave)
def wave(before, now, courant, steps):
    def step(_, state):
        before, now = state
        after = jnp.zeros_like(now).at[1:-1].set(2 * now[1:-1] - before[1:-1] + courant * (now[2:] - 2 * now[1:-1] + now[:-2]))
        return now, after
    return lax.fori_loop(0, steps, step, (before, now))[1]


@jax_form(arrays.fdtd)
def fdtd(ez, hx, hy, steps):
    def step(t, state):
        ez, hx, hy = state
        hx = hx.at[:, :-1].add(-0.5 * (ez[:, 1:] - ez[:, :-1]))
        hy = hy.at[:-1, :].add(0.5 * (ez[1:, :] - ez[:-1, :]))
        ez = ez.at[1:-1, 1:-1].add(0.5 * (hy[1:-1, 1:-1] - hy[:-2, 1:-1] - hx[1:-1, 1:-1] + hx[1:-1, :-2]))
        ez = ez.at[ez.shape[0] // 2, ez.shape[1] // 2].add(jnp.sin(0.1 * t))
        return ez, hx, hy
    return lax.fori_loop(0, steps, step, (ez, hx, hy))


@jax_form(arrays.shallow_water)
def shallow_water(h, u, v, dt, steps):
    def step(_, state):
        h, u, v = state
        u = u - dt * 9.81 * (jnp.roll(h, -1, axis=0) - jnp.roll(h, 1, axis=0)) / 2
        v = v - dt * 9.81 * (jnp.roll(h, -1, axis=1) - jnp.roll(h, 1, axis=1)) / 2
        flow_x, flow_y = h * u, h * v
        h = h - dt * (jnp.roll(flow_x, -1, axis=0) - jnp.roll(flow_x, 1, axis=0) + jnp.roll(flow_y, -1, axis=1) - jnp.roll(flow_y, 1, axis=1)) / 2
        return h, u, v
    return lax.fori_loop(0, steps, step, (h, u, v))


@jax_form(arrays.jacobi)
def jacobi(u, tolerance, most):
    def unfinished(state):
        return (state[2] > tolerance) & (state[1] < most)

    def step(state):
        u, steps, _ = state
        new = u.at[1:-1, 1:-1].set(0.25 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]))
        return new, steps + 1, jnp.abs(new - u).max()
    return lax.while_loop(unfinished, step, (u, 0, 1.0))[:2]


@jax_form(arrays.n_body)
def n_body(position, velocity, mass, dt, steps):
    def step(_, state):
        position, velocity = state
        apart = position[None, :, :] - position[:, None, :]
        squared = (apart ** 2).sum(axis=2) + 0.01
        pull = mass / (squared * jnp.sqrt(squared))
        velocity = velocity + dt * (apart * pull[:, :, None]).sum(axis=1)
        return position + dt * velocity, velocity
    return lax.fori_loop(0, steps, step, (position, velocity))


@jax_form(arrays.k_means, static_argnums=1)
def k_means(points, count, steps):
    def step(_, state):
        centres, _ = state
        nearest = ((points[:, None, :] - centres[None, :, :]) ** 2).sum(axis=2).argmin(axis=1)
        sums = jax.ops.segment_sum(points, nearest, count)
        sizes = jax.ops.segment_sum(jnp.ones(len(points)), nearest, count)[:, None]
        return jnp.where(sizes > 0, sums / jnp.maximum(sizes, 1), centres), nearest
    return lax.fori_loop(0, steps, step, (points[:count], jnp.zeros(len(points), int)))


@jax_form(arrays.power_iteration)
def power_iteration(a, x, steps):
    def step(_, state):
        y = a @ state[1]
        value = jnp.sqrt((y * y).sum())
        return value, y / value
    return lax.fori_loop(0, steps, step, (0.0, x))


@jax_form(arrays.conjugate_gradient)
def conjugate_gradient(a, b, tolerance):
    def unfinished(state):
        return (state[4] < 10 * len(b)) & (jnp.sqrt(state[3]) >= tolerance)

    def step(state):
        x, r, p, squared, count = state
        ap = a @ p
        alpha = squared / (p @ ap)
        x, r = x + alpha * p, r - alpha * ap
        new = r @ r
        return x, r, r + new / squared * p, new, count + 1
    return lax.while_loop(unfinished, step, (jnp.zeros_like(b), b, b, b @ b, 0))[0]


@jax_form(arrays.logistic_regression)
def logistic_regression(features, labels, rate, steps):
    def step(_, weights):
        predicted = 1 / (1 + jnp.exp(-(features @ weights)))
        return weights - rate * (features.T @ (predicted - labels)) / len(labels)
    return lax.fori_loop(0, steps, step, jnp.zeros(features.shape[1]))
