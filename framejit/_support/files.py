"""Files that are there whole or not at all."""
import contextlib
import os
import tempfile


def write_whole(path, data):
    """Writes bytes beside `path` and renames the file: whoever reads the path finds the old one or the new one.

    Raises OSError in the words of the caller, who knows no other file.
    """
    path, beside = os.fspath(path), None
    try:
        handle, beside = tempfile.mkstemp(prefix=f".{os.path.basename(path)}.", dir=os.path.dirname(os.path.abspath(path)))
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(beside, 0o666 & ~_mask())
        os.replace(beside, path)
    except BaseException as error:
        if beside is not None:
            with contextlib.suppress(OSError):
                os.unlink(beside)
        if isinstance(error, OSError) and error.filename is not None:
            raise type(error)(error.errno, error.strerror, path) from None
        raise


def _mask():
    mask = os.umask(0)
    os.umask(mask)
    return mask
