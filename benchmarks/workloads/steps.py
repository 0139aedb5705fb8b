"""Many small arrays in one call."""
from libraries import normal, np, torch
from workloads import Workload, leaves


class AdamStep(Workload):
    """One step of Adam over 50 parameters, as a training loop written by hand has it."""
    name = "adam_step_50"
    sizes = {"tiny": (8, 8), "cache": (64, 64), "ram": (512, 512)}
    fresh = True

    def arguments(*shape):
        def fifty(seed, positive=False):
            made = [normal(*shape, seed=seed + i) for i in range(50)]
            return [m * m for m in made] if positive else made
        return fifty(0), fifty(50), fifty(100), fifty(150, True)

    @classmethod
    def traffic(cls, arguments, results):
        parameter = sum(a.nbytes for a in leaves(arguments[0]))
        return 7 * parameter  # parameters and both moments read and written, gradients read

    def numpy(parameters, gradients, means, squares):
        for p, g, m, v in zip(parameters, gradients, means, squares):
            m *= 0.9
            m += 0.1 * g
            v *= 0.999
            v += 0.001 * g * g
            p -= 0.001 * m / (np.sqrt(v) + 1e-8)
        return parameters

    def torch(parameters, gradients, means, squares):
        for p, g, m, v in zip(parameters, gradients, means, squares):
            m.mul_(0.9).add_(g, alpha=0.1)
            v.mul_(0.999).addcmul_(g, g, value=0.001)
            p.addcdiv_(m, v.sqrt().add_(1e-8), value=-0.001)
        return parameters

    def jax(parameters, gradients, means, squares):
        means = [0.9 * m + 0.1 * g for m, g in zip(means, gradients)]
        squares = [0.999 * v + 0.001 * g * g for v, g in zip(squares, gradients)]
        return [p - 0.001 * m / (v ** 0.5 + 1e-8) for p, m, v in zip(parameters, means, squares)], means, squares
