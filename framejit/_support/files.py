"""Files that are there whole or not at all."""
import contextlib
import os
import secrets


def write_whole(path, data):
    """Writes bytes beside `path` and renames the file: whoever reads the path finds the old one or the new one.

    Raises OSError in the words of the caller, who knows no other file.
    """
    path = os.fsdecode(path)
    beside = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.{secrets.token_hex(8)}")
    try:
        with open(beside, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        if isinstance(error, OSError) and error.filename is not None:
            raise type(error)(error.errno, error.strerror, path) from None
        raise
