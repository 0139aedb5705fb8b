"""The word that was meant, for messages about one that does not exist."""


def did_you_mean(word, known):
    """"; did you mean 'graphs'?" of "graph", or "" where nothing that is known resembles the word."""
    import difflib  # only a mistake needs it

    plain = {name.lower().replace("-", "_"): name for name in known}
    close = difflib.get_close_matches(str(word).lower().replace("-", "_"), plain, 1)
    return f"; did you mean {plain[close[0]]!r}?" if close else ""
