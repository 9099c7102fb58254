"""Modules from finished graphs: real parameters and buffers at dotted paths, one method a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import torch

from ._torch_api import script_module

if TYPE_CHECKING:
    from .graph_builder import GraphBuilder

__all__ = ["assemble", "parameter_paths"]


class _Part(torch.nn.Module):
    """A submodule that only holds parameters, buffers and further parts."""


def _place(root: torch.nn.Module, path: str, tensor: torch.Tensor, trainable: bool) -> None:
    *parents, leaf = path.split(".")
    for name in parents:
        if name not in root._modules:
            root.add_module(name, _Part())
        root = root.get_submodule(name)
    if trainable:
        root.register_parameter(
            leaf, torch.nn.Parameter(tensor, requires_grad=tensor.is_floating_point() or tensor.is_complex())
        )
    else:
        root.register_buffer(leaf, tensor)


def _access(path: str) -> str:
    text = "self"
    for name in path.split("."):
        text = f"getattr({text}, {name!r})"
    return text


def assemble(name: str, methods: dict[str, GraphBuilder], check: bool = False) -> torch.jit.ScriptModule:
    """A ScriptModule of class `name` with one method a builder; attributes at equal paths are shared.

    check: go over the graphs again; what a builder made alone was checked node by node.
    """
    base = type(name, (torch.nn.Module,), {"__module__": "__main__"})()
    placed: dict[str, int] = {}
    for builder in methods.values():
        for path, (_, tensor, trainable) in builder.attributes.items():
            if placed.setdefault(path, id(tensor)) != id(tensor):
                raise ValueError(f"two methods bring different tensors for the attribute {path!r}")
            if path not in dict(base.named_parameters()) and path not in dict(base.named_buffers()):
                _place(base, path, tensor, trainable)
    module = script_module(base)
    for method, builder in methods.items():
        _define(module, method, builder, check)
    return module


def _define(module: torch.jit.ScriptModule, method: str, builder: GraphBuilder, check: bool) -> None:
    """Define a method that calls the graph's function, then put the graph in place of the call: the file holds it itself.

    A copy by insertGraph and not PyTorch's inlining pass: the pass leaves a bare pointer to the function in every node, and
    an error at run time follows it, when the function is long gone.
    """
    _graph_of_method = builder.function(check=check)  # define() finds it among this frame's locals
    arguments = [f"{value.name}: {value.type_text}" for value in builder.inputs]
    passed = [_access(name) if attribute else name for name, attribute in builder.signature]
    source = f"def {method}({', '.join(['self', *arguments])}):\n    return _graph_of_method({', '.join(passed)})\n"
    module.define(source)
    graph = getattr(module, method).graph
    call = graph.findNode("prim::CallFunction")
    function, *given = call.inputs()
    with graph.insert_point_guard(call):
        (result,) = graph.insertGraph(_graph_of_method.graph, given)
    call.output().replaceAllUsesWith(result)
    call.destroy()
    function.node().destroy()


def parameter_paths(params: Any) -> list[str]:
    """A dotted path for every leaf of a pytree, unique and free of names that torch.nn.Module uses itself."""
    paths: list[str] = []
    for keys, _ in jax.tree_util.tree_flatten_with_path(params)[0]:
        names = [jax.tree_util.keystr((key,), simple=True).replace(".", "_") or "_" for key in keys]
        names = [name + "_" if hasattr(torch.nn.Module(), name) else name for name in names or ["params"]]
        path = ".".join(names)
        while any(path == other or path.startswith(other + ".") or other.startswith(path + ".") for other in paths):
            path += "_"
        paths.append(path)
    return paths
