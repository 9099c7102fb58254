"""The one place that knows about PyTorch's private or deprecated corners.

torch.jit warns that it is deprecated in favour of torch.export; no removal date is set and both formats are shipped
here, so the warning is caught here and nowhere else. A torch release that moves a private name breaks this file.
"""

from __future__ import annotations

import builtins
import contextlib
import sys
import threading
import warnings
from collections.abc import Iterator

import torch

__all__ = [
    "TORCH_VERSION",
    "create_function",
    "inline",
    "named_tuple_type",
    "operator_schemas",
    "quiet",
    "script_module",
]

TORCH_VERSION: tuple[int, ...] = tuple(int(p) for p in torch.__version__.split("+")[0].split(".")[:3] if p.isdigit())


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence torch.jit's deprecation warnings, and only those."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*torch\.jit\.", category=DeprecationWarning)
        warnings.filterwarnings("ignore", message=r".*torch\.jit\.", category=FutureWarning)
        yield


def create_function(qualified_name: str, graph: torch._C.Graph) -> torch.jit.ScriptFunction:
    """A callable and savable function around a finished graph. Unqualified names save but do not load."""
    return torch._C._create_function_from_graph(qualified_name, graph)


_PARSING = threading.Lock()


def script_module(base: torch.nn.Module) -> torch.jit.ScriptModule:
    """A ScriptModule without methods that holds the parameters, buffers and submodules of `base`.

    One thread at a time: PyTorch parses the source of `__init__` here, and CPython 3.11's ast.parse counts its recursion
    for all threads together (SystemError: AST constructor recursion depth mismatch).
    """
    with quiet(), _PARSING:
        return torch.jit._recursive.create_script_module(base, lambda module: [], share_types=False)  # type: ignore[attr-defined]


def inline(graph: torch._C.Graph) -> None:
    """Replace calls of graph functions by their bodies, in place."""
    torch._C._jit_pass_inline(graph)


def operator_schemas(kind: str) -> list:
    """Every registered overload of an operator, functional and mutating."""
    return torch._C._jit_get_schemas_for_operator(kind)


def named_tuple_type(cls: type):
    """The TorchScript type of a typing.NamedTuple class, registered in the database that saved files name types from."""
    home = vars(sys.modules[cls.__module__])
    lookup = lambda name: home.get(name, getattr(builtins, name, None))
    return torch._C._resolve_type_from_object(cls, torch._jit_internal.fake_range(), lookup)  # type: ignore[attr-defined]
