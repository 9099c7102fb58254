"""The only file that touches jax._src, jax.extend, jax.interpreters or hijax.

Every difference between the supported JAX versions (0.10.2 to 0.12) is settled here, under one name each. A JAX
release that moves a private name breaks this file alone.
"""

from __future__ import annotations

import jax
import numpy as np

from .._versions import SUPPORTED, unsupported  # noqa: F401

JAX_VERSION: tuple[int, ...] = tuple(int(p) for p in jax.__version__.split(".")[:3] if p.isdigit())


# Lowering: what trace.py, lower.py and rules/ need: primitive objects, jaxpr surgery, source lines, physical types of keys.

import importlib as _importlib  # noqa: E402
from typing import Any as _Any  # noqa: E402

from jax._src import core as _core  # noqa: E402
from jax._src import source_info_util as _source_info_util  # noqa: E402
from jax._src.interpreters import mlir as _mlir  # noqa: E402
from jax._src.interpreters import partial_eval as _lowering_pe  # noqa: E402
from jax.extend.core import ClosedJaxpr as _ClosedJaxpr  # noqa: E402  (0.12 merged it with Jaxpr)

_PRIMITIVE_MODULES = tuple(
    "jax._src." + name
    for name in (
        "lax.lax lax.slicing lax.linalg lax.special lax.convolution lax.fft lax.ann lax.windowed_reductions "
        "lax.control_flow.loops lax.control_flow.conditionals lax.control_flow.solves lax.parallel lax.scaled_dot "
        "ad_checkpoint custom_derivatives custom_batching custom_partitioning core pjit ad_util interpreters.ad "
        "callback debugging dispatch shard_map ffi export._export random.prng random.random random.core prng random "
        "state_discharge state.discharge shard_alike shape_poly export.shape_poly error_check checkify cudnn.fusion "
        "cudnn.fused_attention_stablehlo cudnn.scaled_matmul_stablehlo"
    ).split()
)


def all_primitives() -> dict[str, _Any]:
    """Every primitive that JAX itself defines as a module attribute `<name>_p`, by attribute name, then by own name."""
    found: dict[str, _Any] = {}
    for module_name in _PRIMITIVE_MODULES:
        try:
            module = _importlib.import_module(module_name)
        except ImportError:  # modules move from release to release; the rules ask for names, not for modules
            continue
        for attribute, value in vars(module).items():
            if isinstance(value, _core.Primitive) and attribute.endswith("_p"):
                found.setdefault(attribute, value)
    for value in list(_mlir._lowerings):
        found.setdefault("=" + value.name, value)
    return found


Primitive = _core.Primitive
Literal = _core.Literal
DropVar = _core.DropVar


def is_key_dtype(dtype: _Any) -> bool:
    """Whether a dtype is one of PRNG keys (or another extended type)."""
    return jax.numpy.issubdtype(dtype, jax.dtypes.extended)


def physical_aval(aval) -> tuple[tuple[int, ...], _Any]:
    """Shape and dtype of the array that stands for `aval`: PRNG keys are uint32 with the key's words as last axes."""
    if is_key_dtype(aval.dtype):
        aval = _core.physical_aval(aval)  # type: ignore[assignment]
    physical: _Any = aval
    if physical.dtype == jax.dtypes.float0:
        return tuple(physical.shape), np.dtype(bool)
    return tuple(physical.shape), physical.dtype


def key_impl(dtype):
    """The PRNG implementation behind a key dtype: .seed, .split, .fold_in, .random_bits on raw uint32 arrays."""
    return dtype._impl


def open_jaxpr(jaxpr) -> tuple[_Any, list[_Any]]:
    """(jaxpr, constants) of a closed jaxpr, or of a jaxpr that carries its own constants (JAX 0.12)."""
    if isinstance(jaxpr, _ClosedJaxpr):
        return jaxpr.jaxpr, list(jaxpr.consts)
    return jaxpr, list(getattr(jaxpr, "consts", ()))


def dce(jaxpr, keep_outputs=True):
    """The jaxpr without equations whose results nobody reads, inside nested jaxprs too. Keeps inputs and outputs."""
    opened, consts = open_jaxpr(jaxpr)
    smaller, _ = _lowering_pe.dce_jaxpr(opened, [keep_outputs] * len(opened.outvars), instantiate=True)
    return smaller, consts


def close(jaxpr, consts):
    """The inverse of open_jaxpr."""
    return jaxpr if isinstance(jaxpr, _ClosedJaxpr) or hasattr(jaxpr, "consts") else _ClosedJaxpr(jaxpr, consts)


def source_line(source_info) -> str:
    """'file:line (function)' of the user's frame that made an equation, or ''."""
    frame = _source_info_util.user_frame(source_info.traceback)
    return "" if frame is None else f"{frame.file_name}:{frame.start_line} ({frame.function_name})"


def python_lowering(primitive):
    """The Python function that defines how JAX lowers `primitive`, and whether it gives many results; or None.

    JAX wraps such functions with mlir.lower_fun; the wrapped function is what can be traced to a jaxpr again. The
    default lowering is taken before those of single platforms, because those may call a vendor's library.
    """
    if primitive.name == "call_hi_primitive":  # a definition over pytrees that rides along as a parameter
        return _expand_hi_primitive, True
    tables = [_mlir._lowerings, _mlir._platform_specific_lowerings["cpu"]]
    for table in tables:
        entry = table.get(primitive)
        rule: _Any = getattr(entry, "rule", entry)
        if getattr(rule, "__qualname__", "").startswith("lower_fun.<locals>"):
            cells = dict(zip(rule.__code__.co_freevars, (c.cell_contents for c in rule.__closure__)))
            return cells["fun"], cells["multiple_results"]
    return None


def expansion_settings() -> tuple[_Any, ...]:
    """The JAX settings that change what a Python definition traces to."""
    names = (
        "jax_enable_x64",
        "jax_threefry_partitionable",
        "jax_default_matmul_precision",
        "jax_numpy_dtype_promotion",
    )
    return tuple(getattr(jax.config, name) for name in names)


def _expand_hi_primitive(*leaves, _prim):
    return jax.tree.leaves(_prim.expand(*jax.tree.unflatten(_prim.in_tree, leaves)))


DIGAMMA_AT_ZERO = float("-inf") if JAX_VERSION >= (0, 12) else float("nan")
"""XLA's digamma(0) and digamma(-0): changed between the supported versions."""

ABS_OF_INFINITY_IS_INFINITE = JAX_VERSION >= (0, 12)
"""XLA's absolute value of inf + nan i is inf; before, NaN."""

LOG2_BY_PARTS = JAX_VERSION >= (0, 12)
"""Both parts of a complex logarithm are scaled on their own; before, one complex number was divided by another."""


def scan_counts(eqn) -> tuple[int, int]:
    """(number of constants, number of carries) of a scan equation: 0.12 keeps them in flat trees."""
    params = eqn.params
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    consts, carry, _ = params["ft_in"].unpack()
    return len(list(consts)), len(list(carry))


def no_trace_active() -> bool:
    """Whether no transform is tracing, so that every operation runs at once."""
    return _core.trace_state_clean()


# ---- the loop engine (quabla_jax/loops) -------------------------------------------------------------------

import functools  # noqa: E402
import importlib  # noqa: E402
import inspect  # noqa: E402
import logging  # noqa: E402
import sys  # noqa: E402
import warnings  # noqa: E402
from collections.abc import Callable, Sequence  # noqa: E402
from typing import Any  # noqa: E402

from jax._src import api_util as _api_util  # noqa: E402
from jax._src import checkify as _checkify  # noqa: E402
from jax._src import core as _core  # noqa: E402
from jax._src.interpreters import ad as _ad  # noqa: E402
from jax._src.interpreters import batching as _batching  # noqa: E402
from jax._src.interpreters import partial_eval as _pe  # noqa: E402
from jax._src.lax import lax as _lax_internal  # noqa: E402
from jax._src.lax.control_flow.loops import scan_p  # noqa: E402
from jax.extend import linear_util as _lu  # noqa: E402
from jax.extend.core import ClosedJaxpr  # noqa: E402
from jax.interpreters import ad, batching, mlir  # noqa: E402

STRUCTURED_RESIDUALS: bool = "structured_residuals" in getattr(_ad.LinearizeTrace, "__annotations__", {})
"""jax 0.12: a linearization rule returns five things (one more for structured residuals); 0.10: four."""

_CHECKIFY_HAS_CONTEXT = "ctx" in inspect.signature(_checkify.checkify_jaxpr).parameters
"""jax 0.12: checkify's rules are given a context before the error so far."""

is_undefined_primal = ad.is_undefined_primal
Zero = ad.Zero
AbstractValue = _core.AbstractValue
ShapedArray = _core.ShapedArray
eval_jaxpr = _core.eval_jaxpr


def trace_flat(fun: Callable, avals: Sequence[Any]) -> tuple[Any, list[Any]]:
    """Trace `fun` (flat arrays in, a list of arrays out) at `avals`: a constant-free jaxpr and the constants.

    The constants, which lead the jaxpr's inputs, are the values that `fun` captured, tracers included. Avals keep
    their sharding and manual axes, which `jax.make_jaxpr` over arrays would have to be told.
    """
    debug = _api_util.debug_info("loop", fun, tuple(avals), {})
    out = _pe.trace_to_jaxpr_dynamic(_lu.wrap_init(fun, debug_info=debug), list(avals))
    jaxpr, consts = out[0], list(out[2])
    return _pe.convert_constvars_jaxpr(jaxpr), consts


def detach_consts(closed: Any) -> tuple[Any, list[Any]]:
    """A closed jaxpr as a constant-free jaxpr whose first inputs are the constants, and their values."""
    consts = list(closed.consts)
    return (_pe.convert_constvars_jaxpr(closed.jaxpr) if consts else closed.jaxpr), consts


def as_closed(jaxpr: Any) -> Any:
    """A constant-free jaxpr as a ClosedJaxpr (the same object from jax 0.12 on, which merged the two)."""
    return jaxpr if isinstance(jaxpr, ClosedJaxpr) else ClosedJaxpr(jaxpr, ())


def prune_jaxpr(jaxpr: Any, used_outputs: Sequence[bool], keep_inputs: Sequence[bool]) -> tuple[Any, list[bool]]:
    """Drop what `used_outputs` do not need; inputs in `keep_inputs` stay. Returns the jaxpr and which inputs are left."""
    out, used = _pe.dce_jaxpr(jaxpr, list(used_outputs), list(keep_inputs))
    return out, list(used)


def unknown_outputs(jaxpr: Any, unknown: Sequence[bool]) -> list[bool]:
    """Which outputs of a constant-free jaxpr depend, by data flow, on the inputs marked `unknown`."""
    return list(_pe.partial_eval_jaxpr_nounits(as_closed(jaxpr), list(unknown), instantiate=False)[2])


def known_jaxpr(jaxpr: Any, unknown: Sequence[bool]) -> tuple[Any, list[Any], list[bool]]:
    """The part of a constant-free jaxpr that does not depend on `unknown`: (jaxpr, constants, which outputs are known).

    Its outputs are the known ones, then whatever the unknown part would need.
    """
    known, _, out_unknown, _ = _pe.partial_eval_jaxpr_nounits(as_closed(jaxpr), list(unknown), instantiate=False)
    flat, consts = detach_consts(known)
    return flat, consts, [not u for u in out_unknown]


def jvp_jaxpr(jaxpr: Any, nonzero: Sequence[bool], instantiate: Sequence[bool]) -> tuple[Any, list[Any], list[bool]]:
    """The jvp of a constant-free jaxpr in the inputs `nonzero`: (jaxpr, constants, which outputs have a tangent).

    Inputs are all primals, then the tangents of `nonzero`; outputs all primals, then the tangents that are not zero by
    structure or that `instantiate` asks for.
    """
    closed, out = _ad.jvp_jaxpr(as_closed(jaxpr), list(nonzero), list(instantiate))
    flat, consts = detach_consts(closed)
    return flat, consts, list(out)


def stacked_aval(size: int, aval: Any) -> Any:
    """`aval` with a new leading axis of `size`, sharding and manual axes kept."""
    return _core.unmapped_aval(size, 0, aval)


def row_aval(size: int, aval: Any) -> Any:
    """`aval` without its leading axis, which is `size` long: the inverse of `stacked_aval`."""
    return _core.mapped_aval(size, 0, aval)


def mapped_aval(axis: Any, aval: Any) -> Any:
    """`aval` as vmap's `axis` (JAX's axis data) maps it: a new leading axis, sharded as that of the mapped arrays."""
    return _core.unmapped_aval(axis.size, 0, aval, axis.explicit_mesh_axis)


def example_aval(aval: Any) -> Any:
    """The type of one example of an array whose leading axis counts them."""
    return _core.mapped_aval(aval.shape[0], 0, aval)


def broadcast_mapped(axis: Any, x: Any, place: int) -> Any:
    """An unmapped value with vmap's `axis` at `place`, sharded as that of the mapped arrays."""
    return batching.broadcast(x, axis.size, place, axis.explicit_mesh_axis)


def axis_key(axis: Any) -> tuple:
    """What tells one vmap axis from another in a memo."""
    return axis.size, axis.name, axis.spmd_name, axis.explicit_mesh_axis


def inside(axis: Any) -> Any:
    """A context in which collectives over vmap's `axis` may be traced for one example."""
    named = axis.name is not None and axis.name is not _core.no_axis_name
    return _core.extend_axis_env_nd([(axis.name, axis.size)] if named else [])


def scalar_aval(dtype: Any, like: Any, varying: frozenset[Any] = frozenset()) -> Any:
    """The type of a scalar of `dtype` on the mesh of the type `like`, different between the devices of `varying`."""
    aval, sharding = ShapedArray((), jax.numpy.dtype(dtype)), getattr(like, "sharding", None)
    if sharding is not None and not sharding.mesh.empty:
        aval = ShapedArray((), aval.dtype, sharding=sharding.update(spec=jax.sharding.PartitionSpec()))
    if not varying:
        return aval
    return trace_flat(lambda x: [as_varying(x, varying)], [aval])[0].outvars[0].aval


def strong_aval(aval: Any) -> Any:
    """`aval` without its weak type."""
    return aval.update(weak_type=False) if getattr(aval, "weak_type", False) else aval


def with_weak_type(x: Any, weak: bool) -> Any:
    """`x`, its type marked weak where `weak`."""
    return _lax_internal._convert_element_type(x, x.dtype, weak_type=True) if weak else x


def zeros_like_aval(aval: Any) -> Any:
    """Zeros of the aval's shape, dtype, sharding and manual axes."""
    return ad.instantiate_zeros(Zero(aval))


def instantiate(tangent: Any) -> Any:
    """A symbolic zero as an array; anything else as it is."""
    return ad.instantiate_zeros(tangent)


def is_zero(tangent: Any) -> bool:
    """Whether a tangent or cotangent is symbolically zero."""
    return isinstance(tangent, Zero)


def scan_equation(eqn: Any) -> dict[str, Any]:
    """A scan equation's parameters under one set of names: jaxpr, sizes (consts, carry, xs), length, reverse, unroll."""
    p = eqn.params
    jaxpr = p["jaxpr"]
    if "ft_in" in p:
        consts, carry, xs = (len(part) for part in p["ft_in"].unpack())
    else:
        consts, carry = p["num_consts"], p["num_carry"]
        xs = len(eqn.invars) - consts - carry
    return dict(jaxpr=jaxpr, sizes=(consts, carry, xs), length=p["length"], reverse=p["reverse"], unroll=p["unroll"])


def scan_params(closed: Any, sizes: Sequence[int], num_ys: int, length: int, reverse: bool, unroll: int) -> dict:
    """The parameters of `scan_p` for a closed jaxpr over c, x and s of the given sizes."""
    num_consts, num_carry, num_xs = sizes
    params = dict(jaxpr=closed, length=length, reverse=reverse, unroll=unroll)
    if JAX_VERSION >= (0, 12):
        from jax._src import flattree as ft  # pyright: ignore

        return params | dict(
            ft_in=ft.pack((ft.nones(num_consts), ft.nones(num_carry), ft.nones(num_xs))),
            ft_out=ft.pack((ft.nones(num_carry), ft.nones(num_ys))),
        )
    return params | dict(num_consts=num_consts, num_carry=num_carry)


def scan_linearize(is_vjp: bool, nonzeros: Sequence[bool], *primals: Any, **params: Any) -> tuple:
    """jax.lax.scan's own linearization rule, with as many results as this JAX version's rules have."""
    return _ad.primitive_linearizations[scan_p](is_vjp, list(nonzeros), *primals, **params)


def scan_partial_eval(trace: Any, *tracers: Any, **params: Any) -> Any:
    """jax.lax.scan's own split into known and unknown."""
    return _pe.custom_partial_eval_rules[scan_p](trace, *tracers, **params)


def scan_partial_eval_custom(saveable: Any, unknowns: Any, instantiated: Any, eqn: Any, params: dict) -> Any:
    """jax.lax.scan's own split under jax.checkpoint, of `eqn` rewritten as a scan."""
    return _pe.partial_eval_jaxpr_custom_rules[scan_p](
        saveable, unknowns, instantiated, eqn.replace(primitive=scan_p, params=params)
    )


def close_over(jaxpr: Any, consts: Sequence[Any]) -> Any:
    """A constant-free jaxpr with its first inputs bound to `consts`, as a ClosedJaxpr."""
    if not consts:
        return as_closed(jaxpr)
    avals = [v.aval for v in jaxpr.invars[len(consts) :]]
    fun = lambda *args: eval_jaxpr(jaxpr, (), *consts, *args)
    debug = _api_util.debug_info("loop", fun, tuple(avals), {})
    out = _pe.trace_to_jaxpr_dynamic(_lu.wrap_init(fun, debug_info=debug), avals)
    return out[0] if JAX_VERSION >= (0, 12) else ClosedJaxpr(out[0], out[2])


def rebind(eqn: Any, invals: Sequence[Any]) -> list[Any]:
    """Bind an equation's primitive again at `invals`; always a list."""
    subfuns, params = (), eqn.params
    get = getattr(eqn.primitive, "get_bind_params", None)
    if get is not None:
        got = get(eqn.params)
        subfuns, params = got if isinstance(got, tuple) else ((), got)
    out = eqn.primitive.bind(*subfuns, *invals, **params)
    return list(out) if eqn.primitive.multiple_results else [out]


def define_primitive(
    name: str,
    impl: Callable,
    abstract: Callable,
    eager: Callable | None = None,
) -> Primitive:
    """A primitive with several results that lowers by tracing `impl`.

    Args:
        name: the primitive's name in jaxprs.
        impl: (*arrays, **params) -> list of arrays, in terms of other primitives.
        abstract: (*avals, **params) -> list of avals.
        eager: evaluation outside every trace; `impl` itself when None.
    """
    p = Primitive(name)
    p.multiple_results = True
    p.def_impl(impl if eager is None else lambda *args, **params: eager(p, *args, **params))

    def types(*avals, **params):
        _teach_imported(p)
        return abstract(*avals, **params)

    p.def_abstract_eval(types)
    mlir.register_lowering(p, mlir.lower_fun(_on_mesh_of_arguments(impl), multiple_results=True))
    ENGINE_IMPLS[p] = impl
    _checkify.error_checks[p] = functools.partial(_checked, p)
    return p


# JAX has interpreters that know its loops by their primitives: checkify, jax.experimental.sparse.sparsify and the check
# for keys used twice. To them an engine primitive is the jax.lax program that it lowers to. The last two take a while to
# import and are taught when a primitive is traced after that; checkify passes over what it has no rule for, so that its
# rules stand from the start.


def _spelled_out(p: Primitive, avals: Sequence[Any], params: dict[str, Any]) -> tuple[Any, list[Any]]:
    run = _on_mesh_of_arguments(ENGINE_IMPLS[p])
    return trace_flat(lambda *args: run(*args, **params), avals)


def _checked(p: Primitive, *args, **params):
    leading = 3 if _CHECKIFY_HAS_CONTEXT else 2  # (context of checkify,) error so far, errors to look for
    *context, error, enabled = args[:leading]
    inputs = args[leading:]
    jaxpr, consts = _spelled_out(p, list(map(jax.typeof, inputs)), params)
    return _checkify.checkify_jaxpr(*context, as_closed(jaxpr), enabled, error, *consts, *inputs)


def _teach_sparsify(module: Any, p: Primitive) -> None:
    def rule(environment, *values, **params):
        avals = [_core.ShapedArray(v.shape, environment.data(v).dtype) for v in values]
        jaxpr, consts = _spelled_out(p, avals, params)
        return module.eval_sparse(jaxpr, (), [*map(environment.dense, consts), *values], environment)

    module.sparse_rules_bcoo[p] = module.sparse_rules_bcsr[p] = rule


def _teach_key_reuse(module: Any, p: Primitive) -> None:
    def rule(eqn):
        jaxpr, consts = _spelled_out(p, [v.aval for v in eqn.invars], eqn.params)
        found = module.jaxpr_type_signature(jaxpr)
        own = len(consts)
        return module.KeyReuseSignature(
            *(module.Sink(s.idx - own, s.mask) for s in found.sinks if s.idx >= own),
            *found.sources,
            *(module.Forward(f.in_idx - own, f.out_idx) for f in found.forwards if f.in_idx >= own),
        )

    module.key_reuse_signatures[p] = module.dynamic_key_reuse_signature(rule)


_INTERPRETERS = {
    "jax.experimental.sparse.transform": (_teach_sparsify, "eval_sparse"),
    "jax.experimental.key_reuse._core": (_teach_key_reuse, "jaxpr_type_signature"),
}
_TAUGHT: set[tuple[str, Primitive]] = set()


def _teach_imported(p: Primitive) -> None:
    for name, (teach, needs) in _INTERPRETERS.items():
        module = sys.modules.get(name)
        if module is not None and (name, p) not in _TAUGHT and hasattr(module, needs):
            teach(module, p)
            _TAUGHT.add((name, p))


def _on_mesh_of_arguments(impl: Callable) -> Callable:
    """`impl` with all of its arguments, and what it makes anew (counters, zeros), on one mesh: that of the arguments.

    An array made outside of a mesh has none in its type; jax.lax's loops overlook that, a pool of carries cannot.
    """

    def run(*args, **params):
        meshes = [_mesh_of(a) for a in args]
        mesh = next((m for m in meshes if m is not None), None)
        if mesh is None:
            return impl(*args, **params)
        with jax.sharding.use_abstract_mesh(mesh):
            if jax.sharding.AxisType.Explicit in mesh.axis_types:
                whole = jax.sharding.PartitionSpec()
                args = [jax.sharding.reshard(a, whole) if m is None else a for a, m in zip(args, meshes, strict=True)]
            return impl(*args, **params)

    return run


def _mesh_of(x: Any) -> Any:
    sharding = getattr(jax.typeof(x), "sharding", None)
    return None if sharding is None or sharding.mesh.empty else sharding.mesh


def is_split(x: Any) -> bool:
    """Whether a value's type says that it is divided over the devices of a mesh with explicit axes."""
    sharding = getattr(jax.typeof(x), "sharding", None)
    return sharding is not None and any(part is not None for part in sharding.spec)


def define_kernel_lowering(p: Primitive, choose: Callable, platform: str) -> None:
    """Let choose(**params) -> (*arrays) -> list, or None, define a primitive of `define_primitive` on one platform.

    The primitive keeps its own definition where `choose` gives None, where the kernel cannot be lowered, and where XLA
    is left to divide the program over several devices (it cannot divide a kernel; inside a full shard_map it need not).
    """
    general = mlir.lower_fun(_on_mesh_of_arguments(ENGINE_IMPLS[p]), multiple_results=True)

    def lower(ctx, *args, **params):
        kernel = choose(**params) if _on_one_device(ctx.module_context.axis_context) else None
        if kernel is not None:
            try:
                with warnings.catch_warnings():  # 0.12 says that Pallas will lose its Triton backend in a later release
                    warnings.filterwarnings("ignore", "The Pallas Triton backend", DeprecationWarning)
                    return mlir.lower_fun(lambda *a, **_: kernel(*a), multiple_results=True)(ctx, *args)
            except (NotImplementedError, TypeError, ValueError, RuntimeError, ImportError, AttributeError) as reason:
                logging.getLogger("quabla_jax").debug("%s stays a loop on %s: %s", p, platform, reason)
        return general(ctx, *args, **params)

    mlir.register_lowering(p, lower, platform=platform)


def _on_one_device(axis_context: Any) -> bool:
    mesh, manual = getattr(axis_context, "mesh", None), getattr(axis_context, "manual_axes", frozenset())
    if mesh is not None:
        return set(manual) == set(mesh.axis_names)
    return getattr(axis_context, "num_devices", None) in (None, 1)


def pallas() -> Any:
    """jax.experimental.pallas, which takes a while to import."""
    return importlib.import_module("jax.experimental.pallas")


def triton() -> Any:
    """Pallas's Triton backend: masked load and store, debug_barrier, CompilerParams."""
    return importlib.import_module("jax.experimental.pallas.triton")


def pallas_kernel(kernel: Callable, programs: int, outs: list[Any], interpret: bool) -> Callable:
    """A Pallas call of `programs` programs for NVIDIA GPUs, every operand whole."""
    params = triton().CompilerParams(num_warps=4, num_stages=1)
    return pallas().pallas_call(
        kernel, out_shape=outs, grid=(programs,), interpret=interpret, compiler_params=params, name="elementwise_loop"
    )


def compiled(p: Primitive, name: str, **params: Any) -> Callable:
    """One primitive as a compiled function. Under jax_debug_nans it names itself, as JAX's own primitives do.

    Without the mark JAX would look for the culprit by calling the function again, which would compile it again.
    """

    def run(*args):
        return p.bind(*args, **params)

    run.__name__ = run.__qualname__ = name
    run._apply_primitive = True  # pyright: ignore[reportFunctionMemberAccess]
    jitted = jax.jit(run)

    def call(*args):
        if not jit_disabled():
            return jitted(*args)
        with jax.disable_jit(False):  # as JAX's own primitives do; without jit `run` would end here again
            return jitted(*args)

    return call


ENGINE_IMPLS: dict[Primitive, Callable] = {}
"""The engine's primitives, each with the Python definition it lowers to."""


def engine_impl(primitive: Primitive) -> Callable | None:
    """The Python definition (*arrays, **params) -> list of an engine primitive, or None for any other primitive.

    A target that has no rule for the primitive traces this, and finds jax.lax loops.
    """
    return ENGINE_IMPLS.get(primitive)


def define_jvp(p: Primitive, rule: Callable) -> None:
    """rule(primals, tangents, **params) -> (outs, tangents out); tangents may be `Zero`."""
    ad.primitive_jvps[p] = rule


def define_transpose(p: Primitive, rule: Callable) -> None:
    """rule(cotangents, *args, **params) -> cotangents, None where the argument is not linear."""
    ad.primitive_transposes[p] = rule


def define_linearize(p: Primitive, rule: Callable) -> None:
    """rule(is_vjp, nonzeros, *primals, **params) -> (outs, nonzeros out, residuals, linearized(residuals, *tangents))."""

    def five(*args, **params):
        result = rule(*args, **params)
        if len(result) == 5:
            return result
        out, nonzeros, residuals, linearized = result
        return out, nonzeros, residuals, None, lambda res, _, *tangents: linearized(res, *tangents)

    _ad.primitive_linearizations[p] = five if STRUCTURED_RESIDUALS else rule


def define_batching(p: Primitive, rule: Callable) -> None:
    """rule(axis data, args, dims, **params) -> (outs, dims out); called only where something is batched.

    JAX asks fancy batchers even where nothing is batched; the guard here keeps the primal half of a jacfwd unbatched.
    A body with axis_index maps values that depend on nothing mapped: every operand is mapped for it.
    """

    def guarded(axis_data, args, dims, **params):
        named = any(axis_data.name in collective_axes(j) for j in _jaxprs_of(params))
        if not named and all(d is None for d in dims):
            out = p.bind(*args, **params)
            return out, [None] * len(out)
        if named and (all(d is None for d in dims) or any(_reads_index(j, axis_data.name) for j in _jaxprs_of(params))):
            args = [broadcast_mapped(axis_data, a, 0) if d is None else a for a, d in zip(args, dims, strict=True)]
            dims = [0 if d is None else d for d in dims]
        return rule(axis_data, args, dims, **params)

    batching.fancy_primitive_batchers[p] = guarded


def mapped_outputs(jaxpr: Any, axis_data: Any, mask: Sequence[bool]) -> list[bool]:
    """Which outputs of a jaxpr are mapped when the inputs in `mask` are, by JAX's own batching: psum over the axis is not, its
    index is."""
    return list(_batching.batch_jaxpr(as_closed(jaxpr), axis_data, tuple(mask), False)[1])


def _jaxprs_of(params: dict[str, Any]) -> list[Any]:
    """The jaxprs in an engine primitive's parameters: a loop's body and predicate, a conditional's branches."""
    g, predicate, branches = params.get("g"), params.get("cond"), params.get("branches", ())
    tests = [] if predicate is None else [predicate.test.jaxpr]
    return [*map(_inner, branches), *([] if g is None else [g.jaxpr]), *tests]


def _reads_index(jaxpr: Any, axis: Any) -> bool:
    """Whether a jaxpr takes the index along a named axis."""
    for eqn in jaxpr.eqns:
        names = eqn.params.get("axis_name")
        if eqn.primitive.name == "axis_index" and (axis == names or isinstance(names, tuple) and axis in names):
            return True
        inner = _jaxprs_of(eqn.params) if eqn.primitive in ENGINE_IMPLS else map(_inner, inner_jaxprs(eqn))
        if any(_reads_index(j, axis) for j in inner):
            return True
    return False


def define_partial_eval(p: Primitive, rule: Callable) -> None:
    """rule(trace, *tracers, **params) -> tracers: the split into known and unknown."""
    _pe.custom_partial_eval_rules[p] = rule


def define_partial_eval_custom(p: Primitive, rule: Callable) -> None:
    """rule(saveable, unknowns, instantiated, eqn): the split that jax.checkpoint makes."""
    _pe.partial_eval_jaxpr_custom_rules[p] = rule


def define_dce(p: Primitive, rule: Callable) -> None:
    """rule(used outputs, eqn) -> (used inputs, new equation or None)."""
    _pe.dce_rules[p] = lambda used, *rest: rule(list(used), rest[-1])


def is_known(tracer: Any) -> bool:
    """Whether a partial evaluation knows this value."""
    return tracer.is_known()


def freeze_key(value: Any) -> Any:
    """A hashable that is equal exactly for values that mean the same in a jaxpr; raises TypeError where none is known."""
    if isinstance(value, ClosedJaxpr) or hasattr(value, "eqns"):
        return jaxpr_key(value)
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, *map(freeze_key, value))
    if isinstance(value, dict):
        return ("dict", *((k, freeze_key(v)) for k, v in value.items()))
    hash(value)
    return (type(value), value)


def jaxpr_key(jaxpr: Any) -> Any:
    """A hashable that two jaxprs share exactly when they are the same program: primitives, parameters, types, wiring.

    Raises TypeError where a parameter cannot be compared by value or identity.
    """
    closed_consts = getattr(jaxpr, "consts", None) or ()
    inner = jaxpr.jaxpr if hasattr(jaxpr, "jaxpr") else jaxpr
    numbers: dict[Any, int] = {}

    def number(v):
        return numbers.setdefault(v, len(numbers))

    def atom(v):
        if isinstance(v, Literal):
            val = v.val
            raw = val.tobytes() if hasattr(val, "tobytes") else repr(val)
            return ("lit", v.aval, raw)
        return number(v)

    heads = tuple((number(v), v.aval) for v in (*inner.constvars, *inner.invars))
    eqns = tuple(
        (
            e.primitive,
            tuple(map(atom, e.invars)),
            tuple((number(v), v.aval) for v in e.outvars),
            tuple((k, freeze_key(v)) for k, v in e.params.items()),
            getattr(e, "ctx", None)
            and (getattr(e.ctx, "compute_type", None), getattr(e.ctx, "cur_abstract_mesh", None)),
        )
        for e in inner.eqns
    )
    return (heads, eqns, tuple(map(atom, inner.outvars)), tuple(map(id, closed_consts)))


def has_effects(jaxpr: Any) -> bool:
    """Whether a jaxpr has side effects or touches references. A collective over a named axis is neither."""
    effects = [e for e in jaxpr.effects if not isinstance(e, _core.NamedAxisEffect)]
    return bool(effects) or any("Ref" in type(v.aval).__name__ for v in _inner(jaxpr).invars)


def collective_axes(jaxpr: Any) -> frozenset[Any]:
    """The named axes over which a jaxpr has collectives."""
    return frozenset(e.name for e in jaxpr.effects if isinstance(e, _core.NamedAxisEffect))


def varying_axes(x: Any) -> frozenset[Any]:
    """The manual axes of a shard_map over which a value (or a value of this type) differs between devices."""
    aval = x if isinstance(x, _core.AbstractValue) else jax.typeof(x)
    return frozenset(getattr(getattr(aval, "mat", None), "varying", None) or getattr(aval, "vma", None) or ())


def as_varying(x: Any, axes: frozenset[Any]) -> Any:
    """`x` typed as differing between the devices of `axes`; itself where it is already."""
    missing = tuple(sorted(axes - varying_axes(x), key=str))
    return jax.lax.pcast(x, missing, to="varying") if missing else x


def _inner(jaxpr: Any) -> Any:
    return jaxpr.jaxpr if hasattr(jaxpr, "jaxpr") else jaxpr


# compat: standing in for jax.lax's public functions. Each of them is a thin wrapper (api_boundary, which trims
# tracebacks) whose closure holds the function that does the work; both versions build it alike.
import functools as _functools  # noqa: E402
import types as _types  # noqa: E402

from jax._src import source_info_util as _compat_source_info  # noqa: E402
from jax._src import traceback_util as _traceback_util  # noqa: E402

api_boundary = _traceback_util.api_boundary


def hide_frames(path: str) -> None:
    """Leave the file (or folder) at `path` out of JAX's tracebacks and of the source lines that it reports."""
    _traceback_util.register_exclusion(path)
    _compat_source_info.register_exclusion(path)


# The packages of JAX that are written over jax.lax themselves; the rest of jax._src only hands on a caller's function
# (jax.vmap(jax.lax.scan)).
LIBRARY_OVER_LAX = tuple(
    "jax._src." + name
    for name in (
        "cudnn custom_batching debugging dtypes ffi image lax nn numpy ops pallas prng random scipy state "
        "third_party tpu"
    ).split()
) + ("jax.experimental.pallas",)


def inner_function_cell(function):
    """The closure cell through which a public JAX function reaches the one that does its work, or None."""
    inner = getattr(function, "__wrapped__", None)
    for cell in getattr(function, "__closure__", None) or ():
        if inner is not None and cell.cell_contents is inner:
            return cell
    return None


def with_globals(function, **names):
    """A copy of a public JAX function that sees other objects under some of the names global to its module."""
    inner = function.__wrapped__
    missing = [name for name in names if name not in inner.__globals__]
    if missing:
        raise AttributeError(f"{function.__name__} of jax {jax.__version__} has no global named {missing[0]!r}")
    copy = _types.FunctionType(
        inner.__code__, {**inner.__globals__, **names}, inner.__name__, inner.__defaults__, inner.__closure__
    )
    copy.__kwdefaults__ = inner.__kwdefaults__
    return _functools.wraps(inner)(copy)


# ---- the Quabla dialect (control.py, transforms.py, custom.py) -------------------------------------------------

from pathlib import Path as _Path  # noqa: E402

from jax._src import config as _config  # noqa: E402

WHILE_REVERSE = (
    "reverse-mode differentiation through while_loop is not supported because its trip count is data dependent; use "
    "forward mode (jvp) or rewrite it as a bounded fori_loop whose body masks finished iterations with where; or pass "
    'checkpoint="auto" (or a number of carries to keep) to while_loop, which makes it reverse-differentiable'
)


def _forward_only_transpose(cotangent, operand):
    raise ValueError(WHILE_REVERSE)


forward_only_p = Primitive("forward_only")
"""The identity, refused by reverse mode: what marks the results of a while loop that keeps nothing for it."""
forward_only_p.def_impl(lambda x: x)
forward_only_p.def_abstract_eval(lambda aval: aval)
ad.deflinear2(forward_only_p, _forward_only_transpose)
batching.defvectorized(forward_only_p)
mlir.register_lowering(forward_only_p, lambda ctx, x: [x])


def first_use_line(jaxpr, const_index: int) -> str:
    """'file:line (function)' of the user's code that first reads the `const_index`-th constant of an open jaxpr, or ''."""
    var = jaxpr.constvars[const_index]
    for eqn in jaxpr.eqns:
        if any(v is var for v in eqn.invars):
            return source_line(eqn.source_info)
    return ""


def _bodies(eqn) -> list:
    """The open jaxprs among an equation's parameters: plain, closed, or inside the loop engine's bodies and tests."""
    found = []
    for value in eqn.params.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            item = getattr(item, "test", item)
            inner = item if hasattr(item, "eqns") else getattr(item, "jaxpr", None)
            if hasattr(inner, "eqns"):
                found.append(open_jaxpr(inner)[0])
    return found


def primitive_names(jaxpr) -> set[str]:
    """The names of all primitives in a jaxpr, nested ones included."""
    found: set[str] = set()
    pending = [jaxpr]
    while pending:
        for eqn in pending.pop().eqns:
            found.add(eqn.primitive.name)
            pending += _bodies(eqn)
    return found


# The user's line in an error or in a compiled program's metadata is the caller's, not this library's.
for _entry in _Path(__file__).parents[1].iterdir():
    if _entry.name not in ("demo", "cli.py", "__main__.py"):
        hide_frames(str(_entry) + ("/" if _entry.is_dir() else ""))


def jaxpr_as_fun(closed):
    """A function of flat arguments that evaluates a closed jaxpr."""
    opened, consts = open_jaxpr(closed)
    return lambda *args: _core.eval_jaxpr(opened, consts, *args)


def custom_vjp_name(jaxpr) -> str:
    """The name of the first function with a custom_vjp rule that a jaxpr calls, or 'f'."""
    pending = [jaxpr]
    while pending:
        for eqn in pending.pop().eqns:
            bodies = _bodies(eqn)
            if bodies and eqn.primitive.name.startswith("custom_vjp_call"):
                return getattr(getattr(bodies[0], "debug_info", None), "func_name", None) or "f"
            pending += bodies
    return "f"


# ---- while loops (quabla_jax/loops/whiles.py) and guarded branches (quabla_jax/loops/guard.py) ---------------

from jax._src.lax.control_flow.loops import while_p  # noqa: E402


def is_var(atom: Any) -> bool:
    """Whether an equation's input is a variable (not a literal)."""
    return not isinstance(atom, Literal)


def while_equation(eqn: Any) -> tuple[Any, int, Any, int]:
    """A while equation's (predicate, its number of constants, body, its number of constants); inputs in that order, then carry."""
    p = eqn.params
    return p["cond_jaxpr"], p["cond_nconsts"], p["body_jaxpr"], p["body_nconsts"]


def inner_jaxprs(eqn: Any) -> list[Any]:
    """The jaxprs among an equation's parameters."""
    found = []
    for value in eqn.params.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if hasattr(item, "eqns") or isinstance(item, ClosedJaxpr):
                found.append(item)
    return found


def contains_while(jaxpr: Any) -> bool:
    """Whether a jaxpr holds, at any depth, a loop that ends when a condition fails."""
    for eqn in _inner(jaxpr).eqns:
        if eqn.primitive is while_p or eqn.params.get("cond") is not None and eqn.primitive in ENGINE_IMPLS:
            return True
        body = eqn.params.get("g")
        if body is not None and eqn.primitive in ENGINE_IMPLS and contains_while(body.jaxpr):
            return True
        if any(contains_while(inner) for inner in inner_jaxprs(eqn)):
            return True
    return False


def eval_with(jaxpr: Any, args: Sequence[Any], handle: Callable) -> list[Any]:
    """Evaluate a constant-free jaxpr; handle(eqn, inputs) gives an equation's outputs, or None to bind it as it is."""
    env: dict[Any, Any] = dict(zip(jaxpr.invars, args, strict=True))
    read = lambda v: env[v] if is_var(v) else v.val
    for eqn in jaxpr.eqns:
        inputs = [read(v) for v in eqn.invars]
        outs = handle(eqn, inputs)
        env.update(zip(eqn.outvars, rebind(eqn, inputs) if outs is None else outs, strict=True))
    return [read(v) for v in jaxpr.outvars]


def eval_for(jaxpr: Any, env: dict[Any, Any], targets: Sequence[Any]) -> list[Any]:
    """The values of `targets`, variables of a jaxpr, from those in `env`; only the equations that they need are bound."""
    needed, wanted = [], {v for v in targets if is_var(v) and v not in env}
    for eqn in reversed(jaxpr.eqns):
        if any(v in wanted for v in eqn.outvars):
            needed.append(eqn)
            wanted.update(v for v in eqn.invars if is_var(v) and v not in env)
    env = dict(env)
    read = lambda v: env[v] if is_var(v) else v.val
    for eqn in reversed(needed):
        with eqn.ctx.manager:
            outs = rebind(eqn, [read(v) for v in eqn.invars])
        env.update((v, x) for v, x in zip(eqn.outvars, outs, strict=True) if v not in env)
    return [read(v) for v in targets]


def inline_calls(jaxpr: Any) -> tuple[Any, list[Any]]:
    """A constant-free jaxpr with the bodies of plain jit calls in the calls' places, and what constants now lead it."""
    if not any(map(_is_plain_call, jaxpr.eqns)):
        return jaxpr, []

    def handle(eqn: Any, inputs: list[Any]) -> list[Any] | None:
        if not _is_plain_call(eqn):
            return None
        inner, consts = detach_consts(as_closed(eqn.params["jaxpr"]))
        return eval_with(inner, [*consts, *inputs], handle)

    return trace_flat(lambda *args: eval_with(jaxpr, args, handle), [v.aval for v in jaxpr.invars])


def _is_plain_call(eqn: Any) -> bool:
    """Whether an equation is a jit call that asks for nothing but its body."""
    if eqn.primitive.name not in ("jit", "pjit") or eqn.params.get("compiler_options_kvs"):
        return False
    shardings = (*eqn.params.get("in_shardings", ()), *eqn.params.get("out_shardings", ()))
    layouts = (*eqn.params.get("in_layouts", ()), *eqn.params.get("out_layouts", ()))
    return all(type(s).__name__ == "UnspecifiedValue" for s in shardings) and all(v is None for v in layouts)


def linear_split(
    jaxpr: Any, unknown: Sequence[bool], linear_outputs: Sequence[bool]
) -> tuple[Any, list[Any], Any, int]:
    """A constant-free jaxpr cut at the inputs `unknown`: (known part, its constants, unknown part, number of residuals).

    The known part's outputs are its share of the outputs, then the residuals; the unknown part takes the residuals, then
    the unknown inputs, and gives the outputs in `linear_outputs` and whatever else depends on its inputs.
    """
    known, rest, out_unknown, residuals = _pe.partial_eval_jaxpr_nounits(
        as_closed(jaxpr), list(unknown), instantiate=list(linear_outputs)
    )
    used = [w for w, u in zip(linear_outputs, out_unknown, strict=True) if u]
    flat, consts = detach_consts(known)
    rest, rest_consts = detach_consts(rest)
    assert not rest_consts and sum(used) == sum(linear_outputs)
    rest, _ = prune_jaxpr(rest, used, [True] * len(rest.invars))
    return flat, consts, rest, len(residuals)


def aval_bytes(aval: Any) -> int:
    """Bytes of an array of this type; a key counts as the words that stand for it."""
    shape, dtype = physical_aval(aval)
    size = dtype.itemsize  # pyright: ignore
    for n in shape:
        size *= n
    return size


Tracer = _core.Tracer


def current_trace():
    """The trace that operations run under at this moment."""
    return _core.trace_ctx.trace


def trace_of(tracer):
    """The trace that a tracer belongs to."""
    return tracer._trace


def residual_avals(jaxpr: Any, unknown: Sequence[bool], invariant: Sequence[bool]) -> list[Any]:
    """What the unknown part of a constant-free jaxpr needs of its known part, one step's worth of a scan's residuals.

    Values that only depend on the inputs marked `invariant`, and inputs passed on unchanged that are not carries
    (`invariant` or last), are not counted: a scan stores them once or not at all.
    """
    known, _, _, res, _ = _pe.partial_eval_jaxpr_nounits_fwd(
        as_closed(jaxpr), list(unknown), instantiate=False, fwd=list(invariant)
    )
    flat, consts = detach_consts(known)
    varies = [False] * len(consts) + [not i for i, u in zip(invariant, unknown, strict=True) if not u]
    out = unknown_outputs(flat, varies)
    return [a for a, v in zip(res, out[len(out) - len(res) :], strict=True) if v]


def settle(x: Any, aval: Any) -> Any:
    """A value at `aval`'s dtype with no weak type: literals become arrays, weak tracers are converted."""
    if not isinstance(x, (jax.Array, _core.Tracer)):
        x = jax.numpy.asarray(x, aval.dtype)
    if getattr(jax.typeof(x), "weak_type", False):
        x = _lax_internal._convert_element_type(x, aval.dtype, weak_type=False)
    return x


def as_array(x: Any) -> Any:
    """JAX's arrays and tracers as they are; a number or a NumPy array as an array, a number's weakly typed."""
    return x if isinstance(x, (jax.Array, _core.Tracer)) else jax.numpy.asarray(x)


def is_concrete(x: Any) -> bool:
    """Whether a value is known while tracing."""
    return _core.is_concrete(x)


def jit_disabled() -> bool:
    """Whether jax.disable_jit is in force."""
    return bool(jax.config.jax_disable_jit)  # pyright: ignore[reportAttributeAccessIssue]


def staged_constant(x):
    """A concrete array as a value of the trace that is current (itself where nothing is being staged)."""
    with _config.eager_constant_folding(False):
        return _lax_internal.copy_p.bind(x)


# ---- conditionals (quabla_jax/loops/branch.py) ----------------------------------------------------------------

from jax._src import ad_checkpoint as _ad_checkpoint  # noqa: E402
from jax._src import pjit as _pjit  # noqa: E402
from jax._src.lax.control_flow import conditionals as _conditionals  # noqa: E402

cond_p, jit_p, remat_p = _conditionals.cond_p, _pjit.jit_p, _ad_checkpoint.remat_p


def conditional_like_jax(name: str) -> tuple[Any, Callable]:
    """A primitive with the parameters and the rules of JAX's cond, and JAX's own rule for vmap, to be wrapped.

    The rules are JAX's functions over a namespace in which `cond_p` is the new primitive, so that whatever they bind stays of
    this kind through jvp, partial evaluation, transposition and jax.checkpoint. Linearization goes through the jvp.
    """
    impl = lambda index, *args, branches, **params: cond_p.bind(index, *args, branches=branches, **params)
    p = define_primitive(name, impl, lambda *_, branches, **__: list(branches[0].out_avals))
    names = dict(vars(_conditionals), cond_p=p)
    for key, value in vars(_conditionals).items():
        if isinstance(value, _types.FunctionType) and value.__globals__ is vars(_conditionals):
            copy = _types.FunctionType(value.__code__, names, key, value.__defaults__, value.__closure__)
            copy.__kwdefaults__ = value.__kwdefaults__
            names[key] = copy
    ad.primitive_jvps[p] = names["_cond_jvp"]
    _ad.fancy_transposes[p] = names["_cond_transpose_fancy"]
    _pe.custom_partial_eval_rules[p] = names["_cond_partial_eval"]
    _pe.partial_eval_jaxpr_custom_rules[p] = names["_cond_partial_eval_custom"]
    _pe.dce_rules[p] = names["_cond_dce_rule"]
    return p, names["_cond_batching_rule"]


from jax._src.array import ArrayImpl as ConcreteArray  # noqa: E402, F401


def trace_settings() -> tuple:
    """The modes of JAX that traces made by this library depend on: x64, and the precision of matrix products."""
    return _config.enable_x64.value, _config.default_matmul_precision.value


# ---- custom_vjp inside loop bodies (quabla_jax/loops/custom_rules.py) -------------------------------------------

from jax._src import custom_derivatives as _custom_derivatives  # noqa: E402

custom_vjp_call_p = _custom_derivatives.custom_vjp_call_p


def contains_primitive(jaxpr: Any, primitive: Any) -> bool:
    """Whether a jaxpr binds a primitive, at any depth of the jaxprs among its equations' parameters."""
    return any(
        eqn.primitive is primitive or any(contains_primitive(inner, primitive) for inner in inner_jaxprs(eqn))
        for eqn in _inner(jaxpr).eqns
    )


custom_jvp_call_p = _custom_derivatives.custom_jvp_call_p


def any_equation(jaxpr: Any, holds: Callable[[Any], bool]) -> bool:
    """Whether `holds` for an equation at any depth: of the jaxprs among parameters, and of the engine's loop bodies."""
    for eqn in _inner(jaxpr).eqns:
        body = eqn.params.get("g") if eqn.primitive in ENGINE_IMPLS else None
        inner = [*inner_jaxprs(eqn), *([body.jaxpr] if body is not None else [])]
        if holds(eqn) or any(any_equation(j, holds) for j in inner):
            return True
    return False


def with_inner_jaxprs(eqn: Any, change: Callable) -> Any:
    """The equation with change(constant-free jaxpr, its constants) -> outputs of flat inputs in place of each inner jaxpr.

    `change` gives a function of the jaxpr's inputs; the types of the inputs and outputs must stay.
    """

    def one(value):
        if isinstance(value, (tuple, list)):
            return type(value)(map(one, value))
        if not (hasattr(value, "eqns") or isinstance(value, ClosedJaxpr)):
            return value
        flat, consts = detach_consts(as_closed(value))
        fun = change(flat, consts)
        new, captured = trace_flat(fun, [v.aval for v in flat.invars[len(consts) :]])
        closed = close_over(new, captured) if captured else as_closed(new)
        if isinstance(value, ClosedJaxpr) or closed is new:
            return closed
        assert not captured, "an open jaxpr cannot hold constants"
        return closed.jaxpr

    return eqn.replace(params={k: one(v) for k, v in eqn.params.items()})


# ---- arrays without a program, and programs that are forgotten (arrays.py, _programs.py) -------------------------

from jax._src import dispatch as _dispatch  # noqa: E402
from jax._src import mesh as _mesh_lib  # noqa: E402
from jax._src.lib import xla_client as _xla_client  # noqa: E402  # pyright: ignore[reportPrivateImportUsage]
from jax.sharding import SingleDeviceSharding as _SingleDeviceSharding  # noqa: E402


def concrete_array(data: np.ndarray) -> jax.Array:
    """A NumPy array of a native dtype, which nobody writes to from now on, as a concrete uncommitted array.

    `jnp.asarray` would compile a copying program for every new shape (40 ms and 1.5 MB, which JAX keeps).
    """
    dtype = jax.dtypes.canonicalize_dtype(data.dtype)
    data = data if data.dtype == dtype else data.astype(dtype)
    if _config.default_device.value is not None or not _mesh_lib.get_abstract_mesh().empty:
        return jax.device_put(data)
    device = jax.local_devices()[0]
    aval = ShapedArray(data.shape, data.dtype)
    return _xla_client.batched_device_put(aval, _SingleDeviceSharding(device), [data], [device], False)


BACKEND_COMPILE_EVENT = _dispatch.BACKEND_COMPILE_EVENT


def forget_shapes() -> None:
    """Drop what JAX keeps of shapes that have gone by, for good or for thousands of them, outside the users' functions.

    That is the traces and programs of JAX's own functions (jnp.multiply at float64[3]) and of single primitives that were
    evaluated eagerly; they are made again where they are needed. Traces and programs of all other functions stay.
    """
    for cache in (_pjit._infer_params_cached, _pe.trace_to_jaxpr):
        functions = {id(f): f for f in (key[0]() for key in cache.cache_keys()) if f is not None}
        for function in functions.values():
            if getattr(function, "__module__", "").startswith("jax."):
                cache.evict_weakref(function)
    _dispatch.xla_primitive_callable.cache_clear()


# ---- what a new JAX has moved (last: it replaces the module's own names for private modules) --------------------


class _Private:
    """A private module of JAX as the functions above see it: a name that is gone is reported with the supported versions."""

    def __init__(self, module: _types.ModuleType):
        self._module = module

    def __getattr__(self, name: str) -> Any:
        try:
            value = getattr(self._module, name)
        except AttributeError as error:
            raise AttributeError(unsupported(error)) from error
        if callable(value) and not name.startswith("__"):
            self.__dict__[name] = value  # found without this detour from now on
        return value


for _name, _value in list(globals().items()):
    if isinstance(_value, _types.ModuleType) and _value.__name__.startswith(
        ("jax._src", "jax.interpreters", "jax.extend")
    ):
        if _value is not _conditionals:  # its namespace is copied as a whole
            globals()[_name] = _Private(_value)
