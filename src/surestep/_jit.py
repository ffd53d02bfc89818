"""How kernels are compiled: one decorator, and functions dispatched on the type of their first argument.

Losses, regularizers and designs are ``NamedTuple`` classes of numbers and arrays. A kernel is an ordinary function
decorated with :func:`jit`; where it needs something that differs between losses, it calls a :func:`generic`. The same
source then runs compiled and, with ``NUMBA_DISABLE_JIT=1``, as plain Python.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from functools import singledispatch
from typing import Any, TypeVar, overload

import numba
from numba.core import types
from numba.extending import overload as numba_overload

logger = logging.getLogger("surestep")

Function = TypeVar("Function", bound=Callable[..., Any])

# Lets the compiler reorder and fuse the operations of a sum, which is what makes it vectorise. Infinities and NaN keep
# their meaning. For plain sums and dot products only: bounds are rounded on purpose, in the order they are written.
VECTORIZE = frozenset({"reassoc", "contract"})


@overload
def jit(function: Function, *, fastmath: frozenset[str] = ...) -> Function: ...
@overload
def jit(function: None = None, *, fastmath: frozenset[str]) -> Callable[[Function], Function]: ...
def jit(function: Function | None = None, *, fastmath: frozenset[str] = frozenset()) -> Any:
    """Compile a kernel without the GIL and keep the machine code on disk.

    Where nothing on disk can be written (a read-only install and no cache directory of the user's), Numba refuses to
    cache; the kernel is then compiled anew in every process, as it always is for losses, trackers or other types of a
    user's own. A division by zero follows IEEE 754, as in NumPy.
    """
    if function is None:
        return lambda f: jit(f, fastmath=fastmath)
    return _compiled(function, fastmath=set(fastmath))


@overload
def lean(function: Function, *, fastmath: frozenset[str] = ...) -> Function: ...
@overload
def lean(function: None = None, *, fastmath: frozenset[str]) -> Callable[[Function], Function]: ...
def lean(function: Function | None = None, *, fastmath: frozenset[str] = frozenset()) -> Any:
    """Compile a kernel that makes no arrays.

    It leaves the reference counts of its arguments alone: with a tuple of many arrays, to raise and lower every one of
    them would take longer than all that a short kernel does.
    """
    if function is None:
        return lambda f: lean(f, fastmath=fastmath)
    return _compiled(function, fastmath=set(fastmath), _nrt=False)


def inlined(function: Function) -> Function:
    """Compile a few lines that kernels take into their own: a call with arrays takes longer than they do."""
    compiled: Function = _compiled(function, _nrt=False, inline="always")
    return compiled


def part_of_loops(function: Function) -> Function:
    """Compile a function of numbers that the compiler takes into the loops that call it, and vectorises with them.

    It may fuse a product and a sum, and has no other liberties, whatever those of the loop are.
    """
    compiled: Function = _compiled(function, fastmath={"contract"}, forceinline=True)
    return compiled


def _compiled(function: Function, **options: Any) -> Any:
    options.update(nogil=True, error_model="numpy", no_cfunc_wrapper=True)
    try:
        return _caching_own_types(numba.njit(cache=True, **options)(function))
    except RuntimeError as error:  # Numba: "cannot cache function ...: no locator available"
        logger.debug("%s is compiled in every process: %s", function.__qualname__, error)
        return numba.njit(**options)(function)


def _caching_own_types(dispatcher: Any) -> Any:
    """Let a kernel be kept on disk only for types of this package.

    Numba's index of a kernel names the types it was compiled for, and cannot be read by a process that does not know
    one of them: a loss of a user's own in one script would break every other script.
    """
    cache = getattr(dispatcher, "_cache", None)  # there is none without a compiler
    if cache is not None:
        save = cache.save_overload

        def save_overload(signature: tuple[Any, ...], compiled: Any) -> None:
            if all(_is_own_type(kind) for kind in signature):
                save(signature, compiled)

        cache.save_overload = save_overload
    return dispatcher


def _is_own_type(kind: Any) -> bool:
    if not isinstance(kind, types.BaseNamedTuple):
        return True
    named: Any = kind
    return named.instance_class.__module__.startswith("surestep.") and all(_is_own_type(part) for part in named)


def generic(function: Function, *, forceinline: bool = False, counted: bool = True) -> Any:
    """Make a function that is dispatched on the type of its first argument, in Python and in kernels alike.

    Implementations are registered as with :func:`functools.singledispatch`, for ``NamedTuple`` classes, with the same
    argument names as ``function``::

        @generic
        def value(loss, z, y):
            "Loss of the prediction z."

        @value.register(Squared)
        def _(loss, z, y):
            return 0.5 * (z - y) ** 2

    A class with no implementation gets a ``TypeError`` that names the function and the class. For those that are
    ``forceinline``, or not ``counted``, see :func:`generic_of_numbers` and :func:`generic_of_lines`.
    """
    names = list(inspect.signature(function).parameters)

    def missing(*arguments: Any) -> Any:
        raise TypeError(_no_implementation(function.__name__, type(arguments[0]).__name__))

    missing.__name__, missing.__doc__, missing.__module__ = function.__name__, function.__doc__, function.__module__
    dispatcher = singledispatch(missing)

    def choose(first: Any) -> Any:
        """Numba's side: the implementation for a compile-time type, or None to let Numba look on."""
        if not isinstance(first, types.BaseNamedTuple):
            return None
        kind: type = first.instance_class  # type: ignore[attr-defined]
        implementation = dispatcher.dispatch(kind)
        if implementation is missing:
            raise numba.TypingError(_no_implementation(function.__name__, kind.__name__))
        return implementation

    # Numba asks that the template have the very argument names of the implementations.
    scope: dict[str, Any] = {"choose": choose}
    exec(f"def template({', '.join(names)}):\n    return choose({names[0]})", scope)
    options: Any = {"nogil": True, "error_model": "numpy", "forceinline": forceinline, "_nrt": counted}
    numba_overload(dispatcher, strict=True, jit_options=options)(scope["template"])
    return dispatcher


def generic_of_numbers(function: Function) -> Any:
    """Make a generic function whose implementations take few numbers: as in `part_of_loops`, but nothing is fused."""
    return generic(function, forceinline=True)


def generic_of_lines(function: Function) -> Any:
    """Make a generic function whose implementations make no arrays: in the loops that call it, and lean.

    As a call that counts references, it would take longer than all that is done with a short line.
    """
    return generic(function, forceinline=True, counted=False)


def _no_implementation(function: str, kind: str) -> str:
    return f"{kind} has no `{function}`; register one with @{function}.register({kind})"
