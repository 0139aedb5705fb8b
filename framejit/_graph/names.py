"""What values from outside are called: as the user wrote them."""
import re

_PLAIN = ("_modules", "_parameters", "_buffers")


def input_names(found):
    """By input: "x", "layers.0.weight", "options.rate"."""
    return [_input_name(text, steps) for text, steps in found["inputs"]]


def _input_name(text, steps):
    if steps is None:
        return text
    parts = []
    for kind, index, key in steps:
        if kind == "Slot" or kind == "Global":
            parts.append(str(key))
        elif kind in ("FunctionGlobals", "Function", "Cell", "InstanceDict"):
            continue
        elif kind == "ClosureCell":
            parts.append(f"closure{index}")
        elif key is not None and str(key) not in _PLAIN:
            parts.append(str(key))
        elif key is None:
            parts.append(str(index))
    if len(parts) > 1 and parts[0] in ("self", "captured"):
        parts = parts[1:]
    return ".".join(parts) or text


def in_words(guard):
    """A guard's text without the compiler's own names."""
    text = re.sub(r"<dict object>\['(\w+)'\]", r"\1", guard)
    text = re.sub(r"\bG\.captured\.__globals__\['(\w+)'\]", r"\1", text)
    text = re.sub(r"\b(?:G\.captured|L\.self)\b", "self", text)
    text = re.sub(r"\._(?:modules|parameters|buffers)\['([^']*)'\]", r".\1", text)
    return re.sub(r"\b[LG]\.(?=\w)", "", text)
