"""Output in the middle: what comes before and after it is compiled, and it appears in its place."""


def print_between(x):
    y = x * 2 + 1
    print("half way")
    return (y - 3) * y


def print_in_loop(x):
    for step in range(4):
        x = x * 2 + 1
        print("step", step)
        x = x - 3
    return x
