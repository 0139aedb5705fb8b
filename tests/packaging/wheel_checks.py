"""What a wheel must be so that a package index takes it and every Linux with glibc 2.28 or later runs it.

`python wheel_checks.py dist/*.whl` prints a summary, or what is wrong; ./run wheel ends with it.
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).parent.parent.parent
OLDEST_GLIBC = (2, 28)
MOST_BYTES = 20_000_000
SYSTEM_LIBRARIES = ("libc.so.", "libm.so.", "libdl.so.", "libpthread.so.", "libgcc_s.so.", "ld-linux")


def needed_libraries(extension):
    dynamic = subprocess.run(["readelf", "-d", "-W", extension], capture_output=True, text=True, check=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)


def newer_symbols(extension):
    """`name@GLIBC_2.34` for each that the extension asks of a glibc later than the oldest that it is for."""
    symbols = subprocess.run(["readelf", "--dyn-syms", "-W", extension], capture_output=True, text=True, check=True).stdout
    asked = re.findall(r" UND (\w+)@(GLIBC_([\d.]+))", symbols)
    return sorted(f"{name}@{version}" for name, version, number in asked if tuple(map(int, number.split("."))) > OLDEST_GLIBC)


def paths_of_the_build(extension):
    """Names of files below the checkout or the home folder, which say where the extension was built."""
    text = pathlib.Path(extension).read_bytes()
    folders = {str(folder).encode() for folder in (ROOT, ROOT.resolve(), pathlib.Path.home()) if len(folder.parts) > 1}
    return sorted({found.decode() for folder in folders for found in re.findall(re.escape(folder) + rb"/[\w./+-]*", text)})


def problems_of_extension(extension):
    problems = []
    if libraries := [name for name in needed_libraries(extension) if not name.startswith(SYSTEM_LIBRARIES)]:
        problems.append(f"the extension needs shared libraries that a machine may not have: {', '.join(libraries)}")
    if symbols := newer_symbols(extension):
        problems.append(f"the extension asks for what glibc {'.'.join(map(str, OLDEST_GLIBC))} does not have: {', '.join(symbols)}; "
                        "frame_hook/link/portable_glibc.c has a row or a function for each such name")
    if paths := paths_of_the_build(extension):
        problems.append(f"the extension says where it was built: {', '.join(paths[:5])}")
    return problems


def platform_tag(wheel):
    return pathlib.Path(wheel).stem.split("-")[-1]


def problems_of_tag(wheel):
    """Of a repaired wheel: a name may hold several tags, the oldest glibc's among them."""
    versions = [tuple(map(int, numbers)) for numbers in re.findall(r"manylinux_(\d+)_(\d+)_", platform_tag(wheel))]
    if versions and min(versions) <= OLDEST_GLIBC:
        return []
    return [f"its tag is {platform_tag(wheel)}, not manylinux_{'_'.join(map(str, OLDEST_GLIBC))} or older"]


def problems_of_wheel(wheel):
    """Of the file and of the extension in it; `problems_of_tag` is apart, as a wheel has its tag only when it is repaired."""
    wheel = pathlib.Path(wheel)
    problems = []
    if wheel.stat().st_size >= MOST_BYTES:
        problems.append(f"it has {wheel.stat().st_size / 1e6:.1f} MB, more than {MOST_BYTES / 1e6:.0f}")
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        names = archive.namelist()
        for licence in [ROOT / "LICENSE", *sorted((ROOT / "docs/licenses").iterdir())]:
            if not any(name.endswith(".dist-info/licenses/" + str(licence.relative_to(ROOT))) for name in names):
                problems.append(f"{licence.relative_to(ROOT)} is not in it")
        extensions = [name for name in names if re.fullmatch(r"framejit/_core\..*so", name)]
        if len(extensions) != 1:
            return [*problems, f"it has {len(extensions)} extensions"]
        return problems + problems_of_extension(archive.extract(extensions[0], folder))


def main(wheels):
    bad = False
    for wheel in map(pathlib.Path, wheels):
        problems = problems_of_wheel(wheel) + problems_of_tag(wheel)
        if problems:
            bad = True
            print(f"{wheel.name}: " + "\n  ".join(["not fit to be shipped", *problems]), file=sys.stderr)
            continue
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, runs with glibc {'.'.join(map(str, OLDEST_GLIBC))} or later\n"
              "  needs glibc's libraries and libgcc_s alone, names no folder of this machine, and has the licences of what is linked in")
    return int(bad)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
