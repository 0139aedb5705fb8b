"""What `framejit.minify` does, in the order in which it does it. main.py: the function. failing.py: whether a compiled call fails.
pieces.py: the graph that fails. shrinking.py: fewer operations, smaller arrays. arguments.py: arrays as Python text. script.py: the script.
"""
