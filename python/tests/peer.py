"""The tests of dp-accounting 0.6.0, with the import renamed to this package, in a temporary folder. None of them is in this repository."""

import ast
import importlib.metadata
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
import zipfile

VERSION = "0.6.0"


def sources():
    """The files of the wheel by their path: of the installed package, or of the wheel that UNDERTONE_DP_ACCOUNTING names.

    Returns `None` if neither is at hand.
    """
    wheel = os.environ.get("UNDERTONE_DP_ACCOUNTING")
    if wheel:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.endswith(".py")]
            return {name: archive.read(name).decode() for name in names}
    try:
        installed = importlib.metadata.distribution("dp-accounting")
    except importlib.metadata.PackageNotFoundError:
        return None
    if installed.version != VERSION:
        return None
    paths = [path for path in installed.files or [] if path.suffix == ".py"]
    return {path.as_posix(): path.read_text() for path in paths}


def renamed(text):
    """A test that imports this package, and its own helpers from beside it."""
    text = re.sub(r"^from dp_accounting(\.pld)? import (test_util|privacy_accountant_test)$", r"import \2", text, flags=re.M)
    text = re.sub(r"^import dp_accounting$", "from undertone_dp import dp_accounting", text, flags=re.M)
    return re.sub(r"^(from|import) dp_accounting\b", r"\1 undertone_dp.dp_accounting", text, flags=re.M)


def functions(text):
    """The test functions of a file as `Class.function`."""
    classes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    return [
        f"{owner.name}.{node.name}"
        for owner in classes
        for node in owner.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test")
    ]


def function_of(case, known):
    """The function that a case with its parameters in its name belongs to."""
    fitting = [name for name in known if case.startswith(name)]
    return max(fitting, key=len) if fitting else None


def outcomes(folder):
    """`passed` or `failed` by `file Class.function`, of all tests of the wheel; a function passes if all its cases do."""
    found = {}
    tests = {}
    for path, text in sources().items():
        name = pathlib.PurePosixPath(path).name
        if name.endswith("_test.py") or name == "test_util.py":
            (folder / name).write_text(renamed(text))
            tests[name.removesuffix(".py")] = functions(text)
    report = folder / "report.xml"
    command = [sys.executable, "-m", "pytest", "--quiet", "-p", "no:cacheprovider", f"--junitxml={report}", str(folder)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if not report.exists():
        raise RuntimeError(f"pytest wrote no report: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    for case in ElementTree.parse(report).iter("testcase"):
        file, _, owner = case.get("classname", "").rpartition(".")
        function = function_of(f"{owner}.{case.get('name')}", tests.get(file, []))
        if function is None:
            # A test that a class has from the base of all accountants' tests.
            file = "privacy_accountant_test"
            function = function_of(f"PrivacyAccountantTest.{case.get('name')}", tests[file])
        key = f"{file}.py {function}"
        has_failed = case.find("failure") is not None or case.find("error") is not None
        if has_failed or found.get(key) == "failed":
            found[key] = "failed"
        elif case.find("skipped") is None:
            found[key] = "passed"
        else:
            found.setdefault(key, "skipped")
    missing = {f"{file}.py {name}" for file, names in tests.items() for name in names} - set(found)
    return found | dict.fromkeys(missing, "missing")
