"""`tap=off` costs nothing: the compiled graph is the one of a model in which no tap was ever written."""

import ast
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from glassformer import models
from glassformer.models.tap import Record
from tests.conftest import tiny_config, tiny_model


class WithoutTaps(ast.NodeTransformer):
    """tap("site", value) becomes value."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "tap":
            return node.args[1]
        return node


class Stripper(SourceFileLoader):
    """Reads a module of the models without its taps."""

    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> Any:  # type: ignore[override]
        return compile(ast.fix_missing_locations(WithoutTaps().visit(ast.parse(data))), path, "exec")

    def get_code(self, fullname: str) -> Any:  # never from the cache, and never into it
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


class StrippedModels(MetaPathFinder):
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if not fullname.startswith("glassformer.models.") or ".fast" in fullname:
            return None  # in fast/ there are no taps
        source = Path(models.__file__).parent / f"{fullname.rpartition('.')[2]}.py"
        return spec_from_file_location(fullname, source, loader=Stripper(fullname, str(source)))


@pytest.fixture
def untapped() -> Iterator[ModuleType]:
    """The models package with every tap call taken out of its source."""
    saved = {name: module for name, module in sys.modules.items() if name.startswith("glassformer.models.")}
    finder = StrippedModels()
    try:
        for name in saved:
            del sys.modules[name]
        sys.meta_path.insert(0, finder)
        yield import_module("glassformer.models.build")
    finally:
        sys.meta_path.remove(finder)
        for name in list(sys.modules):
            if name.startswith("glassformer.models."):
                del sys.modules[name]
        sys.modules.update(saved)


def graph_of(model: torch.nn.Module, tokens: torch.Tensor) -> list[tuple[str, str]]:
    """The operations that the compiler is given, in order."""
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, _: list[Any]) -> Any:
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    torch.compile(model, backend=backend, fullgraph=True)(tokens)
    assert len(graphs) == 1
    return [(node.op, str(node.target)) for node in graphs[0].graph.nodes]


def test_off_adds_no_operation_to_the_compiled_graph(untapped: ModuleType) -> None:
    tokens = torch.randint(23, (2, 8))
    torch.manual_seed(0)
    bare = untapped.Decoder(tiny_config())
    assert graph_of(tiny_model(), tokens) == graph_of(bare, tokens)


def test_the_stripped_source_really_has_no_taps(untapped: ModuleType) -> None:
    """Else the test above could not fail."""
    shown: list[str] = []

    def tap(site: str, x: torch.Tensor) -> torch.Tensor:
        shown.append(site)
        return x

    untapped.Decoder(tiny_config())(torch.randint(23, (1, 4)), tap=tap)
    assert shown == []
    tiny_model()(torch.randint(23, (1, 4)), tap=tap)
    assert len(shown) == 2 * 9 + 3


def test_a_tap_reads_and_edits_also_when_compiled() -> None:
    model, tokens = tiny_model(), torch.randint(23, (2, 8))
    plain = model(tokens)
    record = Record("1.z")
    torch.testing.assert_close(model(tokens, tap=record), plain)
    assert list(record.values) == ["1.z"]

    def ablate(site: str, x: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(x) if site == "1.mlp_out" else x

    edited = model(tokens, tap=ablate)
    assert not torch.allclose(edited, plain)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(tokens, tap=ablate), edited)
