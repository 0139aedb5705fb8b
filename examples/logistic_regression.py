"""Logistic regression in plain NumPy: the loss is written, framejit.value_and_grad derives it.

    python examples/training.py logistic_regression

Eager has the gradient written by hand, as NumPy's users do.
"""
import numpy as np
from sklearn.datasets import load_breast_cancer

import training

TITLE = "logistic regression in NumPy, 569 tumours of 30 measurements, gradient descent"
STEPS = 400
# float64: sums are taken in another order, and nothing divides by a gradient's size. Measured: 1e-16.
TOLERANCE = 1e-12
RATE, PENALTY = 0.5, 1e-3


def data():
    cancer = load_breast_cancer()
    x = (cancer.data - cancer.data.mean(0)) / cancer.data.std(0)
    return x, cancer.target * 2.0 - 1.0  # labels -1 and 1


def loss(parameters, x, y, xp=np):
    margin = y * (x @ parameters["weights"] + parameters["bias"])
    return xp.mean(xp.log1p(xp.exp(-margin))) + PENALTY * xp.sum(parameters["weights"] ** 2)


def loss_and_gradient_by_hand(parameters, x, y):
    margin = y * (x @ parameters["weights"] + parameters["bias"])
    slope = -y / (1 + np.exp(margin)) / len(y)
    value = np.mean(np.log1p(np.exp(-margin))) + PENALTY * np.sum(parameters["weights"] ** 2)
    return value, {"weights": x.T @ slope + 2 * PENALTY * parameters["weights"], "bias": np.sum(slope)}


def trainer(loss_and_gradient):
    x, y = data()
    parameters = {"weights": np.zeros(x.shape[1]), "bias": np.zeros(())}

    def step(number):
        value, gradient = loss_and_gradient(parameters, x, y)
        for name in parameters:
            parameters[name] = parameters[name] - RATE * gradient[name]
        return float(value)

    return step


def systems():
    return training.numpy_systems(trainer, loss, loss_and_gradient_by_hand)
