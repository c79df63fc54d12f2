"""The stubs of the native module state what its objects state of themselves, for editors. `python test_stubs.py --write` copies it."""

import ast
import inspect
import pathlib
import sys

import pytest
from undertone_dp import _native

STUBS = pathlib.Path(__file__).parents[1] / "undertone_dp" / "_native.pyi"


def said(thing):
    """The documentation of an object itself, and none that it inherits."""
    text = getattr(thing, "__doc__", None)
    return inspect.cleandoc(text) if isinstance(text, str) and text.strip() else None


def documented(node, thing=_native):
    """Each public class, function, method and property of the stubs that has words of its own, with these words."""
    for inner in node.body:
        if not isinstance(inner, (ast.ClassDef, ast.FunctionDef)) or inner.name.startswith("_"):
            continue
        member = inspect.getattr_static(thing, inner.name, None)
        if isinstance(member, (staticmethod, classmethod)):
            member = member.__func__
        if member is not None and said(member):
            yield inner, said(member)
        if isinstance(inner, ast.ClassDef) and member is not None:
            yield from documented(inner, member)


def quoted(text, indent):
    lines = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"').splitlines()
    if len(lines) == 1:
        return f'{indent}"""{lines[0]}"""'
    body = [f'{indent}"""{lines[0]}', *(f"{indent}{line}" if line else "" for line in lines[1:]), f'{indent}"""']
    return "\n".join(body)


def written(source):
    """The stubs with the words of the module."""
    lines = source.splitlines()
    tree = ast.parse(source)
    # From the end, so that the numbers of lines before stay.
    for node, text in sorted(documented(tree), key=lambda found: (-found[0].body[0].lineno, -found[0].body[0].col_offset)):
        indent = " " * (node.col_offset + 4)
        first = node.body[0]
        is_string = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
        is_ellipsis = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and first.value.value is ...
        if is_string:
            lines[first.lineno - 1 : first.end_lineno] = quoted(text, indent).splitlines()
        elif is_ellipsis and len(node.body) == 1:
            head = lines[first.lineno - 1]
            kept = head[: first.col_offset].rstrip()
            lines[first.lineno - 1 : first.end_lineno] = [*([kept] if kept else []), *quoted(text, indent).splitlines()]
        else:
            above = min([first.lineno, *(decorator.lineno for decorator in getattr(first, "decorator_list", []))]) - 1
            lines[above:above] = quoted(text, indent).splitlines()
    return "\n".join(lines) + "\n"


def test_the_stubs_have_the_words_of_the_module():
    source = STUBS.read_text()
    assert written(source) == source, "python tests/test_stubs.py --write brings the stubs up to date"
    assert sum(1 for _ in documented(ast.parse(source))) > 100


def test_a_difference_is_noticed():
    source = STUBS.read_text()
    words = said(_native.set_threads).splitlines()[0]
    assert source.count(words) == 1
    assert written(source.replace(words, "Something else.")) == source


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(pytest.main([__file__]))
    STUBS.write_text(written(STUBS.read_text()))
