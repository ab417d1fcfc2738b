"""Runs the device tests where there is no pytest: `PYTHONPATH=src:tests python3 tests/device/run.py`.

Parts of names behind it choose some: `… run.py test_models decoding`.
"""

import importlib.util
import sys
import time
import traceback
from pathlib import Path


def main() -> int:
    passed = failed = 0
    for file in sorted(Path(__file__).parent.glob("test_*.py")):
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except ImportError as error:
            print(f"left out  {file.name}: {error}")
            continue
        for name, test in vars(module).items():
            wanted = not sys.argv[1:] or any(part in f"{file.stem}::{name}" for part in sys.argv[1:])
            if name.startswith("test_") and callable(test) and wanted:
                start = time.perf_counter()
                try:
                    test()
                    passed += 1
                    print(f"passed  {time.perf_counter() - start:6.1f} s  {file.stem}::{name}", flush=True)
                except Exception:
                    failed += 1
                    print(f"FAILED  {file.stem}::{name}\n{traceback.format_exc()}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
