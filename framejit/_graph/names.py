"""What guards say, as the user wrote it."""
import re


def in_words(guard):
    """A guard's text without the compiler's own names."""
    text = re.sub(r"<dict object>\['(\w+)'\]", r"\1", guard)
    text = re.sub(r"\bG\.captured\.__globals__\['(\w+)'\]", r"\1", text)
    text = re.sub(r"\b(?:G\.captured|L\.self)\b", "self", text)
    text = re.sub(r"\._(?:modules|parameters|buffers)\['([^']*)'\]", r".\1", text)
    return re.sub(r"\b[LG]\.(?=\w)", "", text)
