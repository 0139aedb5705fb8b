"""scikit-learn's handwritten digits (they ship with the package): 1797 images of 8x8, in shuffled batches."""
import numpy as np
import torch
from sklearn.datasets import load_digits

BATCH = 128


def batches(shape):
    """batch(step) -> (images of that shape, labels), the same for each that asks."""
    digits = load_digits()
    images = torch.from_numpy((digits.data / 16).astype(np.float32)).reshape(-1, *shape)
    labels = torch.from_numpy(digits.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))

    def batch(step):
        chosen = order[(torch.arange(BATCH) + step * BATCH) % len(order)]
        return images[chosen], labels[chosen]

    return batch
