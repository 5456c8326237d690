"""The house rules that no linter knows, checked like any other behaviour."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "streamwell"
MODULES = sorted(path for path in SOURCE.rglob("*.py") if path.stat().st_size)
MAX_FILE_LINES = 300
MAX_FUNCTION_LINES, GOOD_FUNCTION_LINES, MAX_LONG_SHARE = 60, 40, 0.02


def functions_of(path: Path) -> list[tuple[str, int]]:
    """Name and length in lines of every function of a file."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [
        (f"{path.relative_to(SOURCE)}:{node.name}", (node.end_lineno or 0) - node.lineno + 1)
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_module_fits_on_the_desk(path: Path) -> None:
    """Every module opens with a docstring and has at most 300 lines."""
    text = path.read_text(encoding="utf-8")

    assert ast.get_docstring(ast.parse(text))
    assert text.count("\n") <= MAX_FILE_LINES


def test_functions_are_short() -> None:
    """No function is over 60 lines, and at most 2 % are over 40."""
    functions = [function for path in MODULES for function in functions_of(path)]
    long = [name for name, lines in functions if lines > GOOD_FUNCTION_LINES]

    assert [] == [name for name, lines in functions if lines > MAX_FUNCTION_LINES]
    assert len(long) <= MAX_LONG_SHARE * len(functions), long


def test_no_dangerous_calls() -> None:
    """Nothing is unpickled or evaluated, and no weights come through `torch.load`."""
    forbidden = {"eval", "exec", "load_pickle", "pickle", "marshal"}
    found = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.Name) and node.id in forbidden)
        or (isinstance(node, ast.Attribute) and ast.unparse(node) == "torch.load")
    ]

    assert [] == found


def test_every_test_states_its_behaviour() -> None:
    """Every test has a docstring."""
    silent = [
        f"{path.name}:{node.name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and not ast.get_docstring(node)
    ]

    assert [] == silent


def test_names_of_test_files_differ() -> None:
    """pytest imports them by their names alone, over all folders."""
    names = [path.name for path in (ROOT / "tests").rglob("*.py") if path.name != "conftest.py"]

    assert [] == sorted({name for name in names if names.count(name) > 1} - {"__init__.py"})
