"""Both sides of a branch on data are compiled; the branch itself is one instruction in Python."""


def branch(x):
    if x.mean() > 0:
        y = x * 2
        z = y.sum()
    else:
        y = x + 1
        z = y.mean()
    return z
