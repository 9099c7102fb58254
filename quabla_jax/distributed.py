"""Data-parallel gradients: jax.shard_map over a mesh of devices, summed with psum, in one process or many.

The batch is cut into equal shards along axis 0, one a device; parameters are on every device. The per-shard losses and
gradients are summed or averaged, whatever reduction the loss itself makes within its shard.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, tree_util
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from ._cycles import refuse_cycles
from .arrays import is_tracer
from .errors import UnsupportedOperationError

__all__ = ["value_and_grad"]

AXIS = "batch"


def _devices(requested: Any) -> list[Any]:
    """jax.Devices for a list of them or of names; None: every device of every process.

    Raises:
        TypeError: a string. ValueError: duplicates, none at all. UnsupportedOperationError: a device that is not here.
    """
    if requested is None:
        return list(jax.devices())
    if isinstance(requested, str):
        raise TypeError("devices must be a sequence of devices, such as ('cuda:0', 'cuda:1') or jax.devices()")
    found = [device if isinstance(device, jax.Device) else _named(device) for device in requested]
    if not found:
        raise ValueError("distributed.value_and_grad requires at least one device")
    if len(set(found)) != len(found):
        raise ValueError("devices must not contain duplicate ordinals")
    return found


def _named(name: Any) -> Any:
    kind, _, number = name.partition(":") if isinstance(name, str) else ("", "", "")
    if not kind or (number and not number.isdigit()):
        raise ValueError(f"a device must be a jax.Device, 'cpu:N', 'cuda:N' or 'tpu:N', got {name!r}")
    try:
        available = jax.devices(kind)
    except RuntimeError:
        available = []
    ordinal = int(number or 0)
    if ordinal >= len(available):
        raise UnsupportedOperationError(
            f"distributed.value_and_grad: device {name!r} is not available; jax sees {len(available)} of kind {kind!r}",
            op="distributed.value_and_grad",
            device=name,
        )
    return available[ordinal]


def _positions(argnums: Any, count: int, name: str) -> tuple[int, ...]:
    entries = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    places = []
    for entry in entries:
        if isinstance(entry, bool):
            raise TypeError(f"{name} must be an int or a tuple of ints, got {argnums!r}")
        place = operator.index(entry)
        if not -count <= place < count:
            raise ValueError(f"{name}={place} is out of range for a call with {count} positional arguments")
        places.append(place % count)
    if len(set(places)) != len(places):
        raise ValueError(f"{name} {argnums!r} contains a duplicate position")
    return tuple(places)


def _check_batch(args: tuple, places: tuple[int, ...], shards: int) -> None:
    """Every leaf of the batch arguments has one extent along axis 0, divisible by the number of devices."""
    sizes = set()
    for leaf in tree_util.tree_leaves([args[k] for k in places]):
        if not isinstance(leaf, (jax.Array, np.ndarray)):
            raise TypeError("every mapped batch leaf must be an array")
        if leaf.ndim == 0:
            raise ValueError("every mapped batch leaf must have rank at least one")
        sizes.add(leaf.shape[0])
    if not sizes:
        raise ValueError("batch and parameter arguments must have array leaves")
    if len(sizes) > 1:
        raise ValueError(f"all mapped batch leaves must have the same axis-zero batch size, got {sorted(sizes)}")
    size = sizes.pop()
    if size == 0 or size % shards:
        raise ValueError(f"batch size must be positive and divisible into equal device shards, got {size} for {shards}")


def _scalar_loss(fun: Callable[..., Any]) -> Callable[..., jax.Array]:
    @functools.wraps(fun)
    def loss(*args: Any) -> jax.Array:
        value = fun(*args)
        if not isinstance(value, jax.Array):
            raise TypeError("distributed.value_and_grad requires a single scalar array loss")
        if value.shape:
            raise ValueError(f"distributed.value_and_grad requires a scalar loss, got {list(value.shape)}")
        return value

    return loss


def _is_static(leaf: Any) -> bool:
    return not isinstance(leaf, (jax.Array, np.ndarray, float, int)) or isinstance(leaf, bool)


def value_and_grad(
    fun: Callable[..., Any],
    *,
    devices: Sequence[Any] | None = None,
    shard_argnums: int | Sequence[int],
    argnums: int | Sequence[int] = 0,
    reduction: str = "mean",
) -> Callable[..., Any]:
    """A function of fun's arguments that gives (loss, gradients), the batch spread over devices.

    Arguments:
        fun: fun(*args) gives a scalar loss of one shard.
        devices: jax.Devices or names such as "cuda:0", at least one (Quabla: two CUDA devices); None takes every
            device of every process.
        shard_argnums: the arguments that are batches, pytrees whose arrays share an axis 0 that the number of devices
            divides. Over several processes each passes the whole batch (or an array already sharded over them all).
        argnums: the replicated arguments to differentiate. reduction: "mean" or "sum" over the shards.
    Returns:
        (value, gradients), both on every device of the process; gradients as `value_and_grad` arranges them.
    Raises:
        TypeError, ValueError: arguments that do not fit. UnsupportedOperationError: a device that is not here.
    Differentiation: of everything that runs under shard_map, loops with checkpoints included; not itself inside
        another transform.
    Cost: one program a signature; one all-reduce of the size of the gradients.
    """
    if not callable(fun):
        raise TypeError(f"distributed.value_and_grad requires a callable, got {type(fun).__name__}")
    if reduction not in ("sum", "mean"):
        raise ValueError(f"reduction must be 'sum' or 'mean', got {reduction!r}")
    mesh = Mesh(np.array(_devices(devices)), (AXIS,))
    programs: dict[Any, Callable[..., Any]] = {}

    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            raise TypeError("distributed.value_and_grad takes positional arguments only")
        refuse_cycles("distributed.value_and_grad", args)
        mapped = _positions(shard_argnums, len(args), "shard_argnums")
        wanted = _positions(argnums, len(args), "argnums")
        _check_call(args, mapped, wanted, mesh.size)
        leaves, tree = tree_util.tree_flatten(args)
        owners = [k for k, arg in enumerate(args) for _ in tree_util.tree_leaves(arg)]
        static = tuple((k, leaf) for k, leaf in enumerate(leaves) if _is_static(leaf))
        key = (tree, static, len(leaves))
        if key not in programs:
            programs[key] = _program(
                _scalar_loss(fun), mesh, tree, owners, dict(static), mapped, wanted, argnums, reduction
            )
        arrays = [leaf for leaf in leaves if not _is_static(leaf)]
        sharded = [k in mapped for k, leaf in zip(owners, leaves) if not _is_static(leaf)]
        return programs[key](*(_place(x, mesh, cut) for x, cut in zip(arrays, sharded)))

    return call


def _check_call(args: tuple, mapped: tuple[int, ...], wanted: tuple[int, ...], shards: int) -> None:
    if not wanted:
        raise ValueError("argnums must select at least one replicated parameter")
    if not mapped:
        raise ValueError("shard_argnums must select at least one batch argument")
    if set(mapped) & set(wanted):
        raise ValueError("mapped-input gradients are unsupported; argnums must be replicated")
    if any(is_tracer(leaf) for leaf in tree_util.tree_leaves(args)):
        raise UnsupportedOperationError(
            "distributed.value_and_grad cannot run inside another transform", op="distributed.value_and_grad"
        )
    _check_batch(args, mapped, shards)


def _place(x: Any, mesh: Mesh, cut: bool) -> jax.Array:
    """`x` on the mesh: cut along axis 0, or whole on every device. Every process hands in the same whole array."""
    sharding = NamedSharding(mesh, P(AXIS) if cut else P())
    if isinstance(x, jax.Array) and x.sharding == sharding:
        return x
    if all(device.process_index == jax.process_index() for device in mesh.devices.flat):
        return jax.device_put(x, sharding)
    whole = np.asarray(x)
    return jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])


def _program(
    fun, mesh: Mesh, tree, owners, static: dict, mapped, wanted, argnums, reduction: str
) -> Callable[..., Any]:
    """The compiled program of one signature, a function of the array leaves."""
    places = [k for k in range(len(owners)) if k not in static]
    specs = tuple(P(AXIS) if owners[k] in mapped else P() for k in places)

    def rebuild(arrays: Sequence[Any]) -> tuple:
        leaves = [static.get(k) for k in range(len(owners))]
        for k, value in zip(places, arrays):
            leaves[k] = value
        return tree_util.tree_unflatten(tree, leaves)

    def shard(*arrays: jax.Array) -> tuple:
        args = rebuild(arrays)
        chosen = tuple(args[k] for k in wanted)

        def loss(*parameters: Any) -> jax.Array:
            filled = list(args)
            for place, value in zip(wanted, parameters):
                filled[place] = value
            return fun(*filled)

        value, gradients = _floating_gradients(loss, chosen)
        combine = lax.pmean if reduction == "mean" else lax.psum
        return combine((value, gradients), AXIS)

    # Each shard differentiates its own copy of the parameters: with replication tracking on, the transposed
    # program would sum the gradients once more.
    run = jax.jit(jax.shard_map(shard, mesh=mesh, in_specs=specs, out_specs=P(), check_vma=False))

    def call(*arrays: jax.Array) -> Any:
        value, gradients = run(*arrays)
        if jax.process_count() > 1:
            value, gradients = tree_util.tree_map(_local, (value, gradients))
        return value, gradients[0] if isinstance(argnums, int) else gradients

    return call


def _floating_gradients(loss: Callable[..., jax.Array], parameters: tuple) -> tuple[jax.Array, tuple]:
    """The loss and its gradients; leaves that are no floats (masks, integers) have None."""
    leaves, tree = tree_util.tree_flatten(parameters)
    places = [k for k, leaf in enumerate(leaves) if jnp.issubdtype(jnp.result_type(leaf), jnp.floating)]
    if not places:
        raise ValueError("argnums must contain at least one non-bool parameter array")

    def of_floats(*values: jax.Array) -> jax.Array:
        filled = list(leaves)
        for k, value in zip(places, values):
            filled[k] = value
        return loss(*tree_util.tree_unflatten(tree, filled))

    value, found = jax.value_and_grad(of_floats, argnums=tuple(range(len(places))))(
        *(jnp.asarray(leaves[k]) for k in places)
    )
    gradients: list[Any] = [None] * len(leaves)
    for k, gradient in zip(places, found):
        gradients[k] = gradient
    return value, tree_util.tree_unflatten(tree, gradients)


def _local(x: jax.Array) -> jax.Array:
    """This process's copy of a replicated array, an ordinary array of it."""
    return x.addressable_data(0)
