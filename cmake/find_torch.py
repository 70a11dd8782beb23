"""Prints the folder of the CMake package of this Python's torch, for src/engine/CMakeLists.txt.

It does not import torch: that takes seconds, and fails where pip builds a wheel. There pip hides
the packages of the environment from `import`, but not the folder in which they are.
"""
import importlib.util
import pathlib
import re
import sys
import sysconfig

OLDEST = (2, 11)


def folders():
    """The folders that may be torch's, the likeliest one first."""
    spec = importlib.util.find_spec("torch")
    found = list(spec.submodule_search_locations or ()) if spec else []
    found += [f"{sysconfig.get_path(kind)}/torch" for kind in ("purelib", "platlib")]
    return [pathlib.Path(folder) for folder in found]


def main():
    oldest = ".".join(map(str, OLDEST))
    wanted = f"pip install 'torch>={oldest}'"
    torch = next((path for path in folders() if (path / "version.py").is_file()), None)
    if torch is None:
        sys.exit(f"Tenuto needs torch {oldest} or newer, and this Python has none ({wanted})")
    stated = re.search(r"^__version__ *=.*?['\"](\d+)\.(\d+)([^'\"]*)",
                       (torch / "version.py").read_text(), re.M)
    if stated and (int(stated[1]), int(stated[2])) < OLDEST:
        version = f"{stated[1]}.{stated[2]}{stated[3]}"
        sys.exit(f"Tenuto needs torch {oldest} or newer, and {torch} has {version} ({wanted})")
    package = torch / "share" / "cmake" / "Torch"
    if not package.is_dir():
        sys.exit(f"torch in {torch} has no CMake package ({package}); a wheel of torch has one")
    print(package)


if __name__ == "__main__":
    main()
