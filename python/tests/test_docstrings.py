"""Every public name has a docstring whose example runs."""

import doctest
import inspect
import pathlib

import pytest
import undertone_dp as udp
from undertone_dp import _native

PAGES = pathlib.Path(__file__).parents[2]


def public():
    modules = [udp, udp.calibrate, udp.check, udp.gaussian, udp.zcdp, udp.sensitivity, udp.secagg]
    for module in modules:
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.ismodule(value) or isinstance(value, str):
                continue
            yield f"{module.__name__}.{name}", value
    for owner in [udp.Event, udp.Accountant, udp.GridPld, udp.Guarantee, udp.Participation, udp.Repetitions]:
        for name in vars(owner):
            if not name.startswith("_"):
                yield f"{owner.__name__}.{name}", getattr(owner, name)


def is_data(value):
    return inspect.isgetsetdescriptor(value) or value is udp.UndertoneError


@pytest.mark.parametrize(("name", "value"), list(public()), ids=lambda value: value if isinstance(value, str) else "")
def test_a_public_name_has_a_docstring_with_an_example_that_runs(name, value):
    text = inspect.getdoc(value)
    assert text, f"{name} has no docstring"
    examples = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
    if not is_data(value):
        assert examples.examples, f"{name} has no example"
    assert doctest.DocTestRunner(verbose=False).run(examples).failed == 0


def test_the_example_of_the_package_runs():
    examples = doctest.DocTestParser().get_doctest(udp.__doc__, {}, "undertone_dp", None, 0)
    assert examples.examples and doctest.DocTestRunner(verbose=False).run(examples).failed == 0


@pytest.mark.parametrize("page", ["README.md", "docs/guide/python.md", "docs/guide/python-runs.md", "python/README.md"])
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    (tmp_path / "examples").symlink_to(PAGES / "examples")
    monkeypatch.chdir(tmp_path)
    parts = (PAGES / page).read_text().split("```python\n")[1:]
    assert parts, f"{page} has no code"
    scope = {}
    for number, part in enumerate(parts, 1):
        exec(compile(part.split("```")[0], f"{page}, block {number}", "exec"), scope)


def test_nothing_native_is_public_by_accident():
    hidden = {name for name in vars(_native) if not name.startswith("_")}
    shown = {value.__name__ for _, value in public() if hasattr(value, "__name__")}
    assert hidden - shown - set(udp.__all__) == set()
