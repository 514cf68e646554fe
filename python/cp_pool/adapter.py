"""What an adapter declares, and the decorator that turns a function, a class or an object into an adapter."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, overload

from cp_pool import shard as conventions
from cp_pool.built_for import comm_types
from cp_pool.errors import text_of

if TYPE_CHECKING:
    from cp_pool.context import CaseView

__all__ = ["FEATURES", "Adapter", "DeclarationError", "Skip", "adapter"]

Target = TypeVar("Target")

#: An exception type, or a tuple of them, and a text or a regular expression that is searched in the message.
Refusal = tuple[type[Exception] | tuple[type[Exception], ...], str | re.Pattern[str]]

LAYOUTS = ("bshd", "sbhd", "thd")
DTYPES = ("fp32", "bf16", "fp16")
DEVICES = ("cpu", "cuda")
PADDING = ("garbage", "nan", "zeros", "absent")
HEAD_ORDERS = ("blocked", "interleaved")


class Skip(Exception):
    """Raised by an adapter that cannot run a case: the case becomes a skip, and the text is its reason.

    Raise it on every rank, before the ranks communicate.
    """


class DeclarationError(ValueError):
    """An adapter has a declaration that is not valid."""


#: Each feature that a case may need: its name in sentences, and a function that says whether a case needs it.
FEATURES: dict[str, tuple[str, Callable[[CaseView], bool]]] = {
    "causal": ("a causal mask", lambda c: c.causal),
    "window": ("a sliding window", lambda c: c.window != (-1, -1)),
    "chunk": ("chunked attention", lambda c: c.chunk > 0),
    "mask": ("a mask of slices", lambda c: c.mask is not None),
    "softcap": ("capped scores", lambda c: c.softcap != 0),
    "fp8": ("FP8", lambda c: c.fp8 is not None),
    "gqa": ("fewer key-value heads than query heads", lambda c: c.kv_heads != c.heads),
    "uneven_heads": ("heads that the ranks of an a2a cannot split evenly", lambda c: c.uneven_heads),
    "mla": ("heads of v with another dimension than those of q and k", lambda c: c.head_dim_v != c.head_dim_qk),
    "bias": ("a bias", lambda c: c.bias is not None),
    "off_by_one": ("an off-by-one softmax", lambda c: c.softmax == "off_by_one"),
    "learnable": ("a softmax with a learnable sink", lambda c: c.softmax == "learnable"),
    "max_logit": ("max_logit", lambda c: c.max_logit),
    "padded_batch": ("padded sequences in bshd or sbhd", lambda c: c.pad_between_seqs and c.layout != "thd"),
    "unequal": ("queries and keys of different lengths", lambda c: c.unequal),
    "replicated": ("tokens that every rank has", lambda c: c.replicated > 0),
    "all_queries": ("queries that every rank has", lambda c: c.all_queries),
    "deterministic": ("the same bits from the same step", lambda c: c.deterministic),
    "inner": ("inner groups of more than two ranks", lambda c: c.inner != 2),
    "group": ("several groups of ranks at once", lambda c: c.group > 1),
}


@dataclass(frozen=True)
class Adapter:
    """An implementation of context-parallel attention and what it declares about itself."""

    target: Any  # the function, or the object with forward and perhaps backward
    name: str
    comm: tuple[str, ...] | None
    layouts: tuple[str, ...] | None
    dtypes: tuple[str, ...] | None
    shards: tuple[conventions.Rule, conventions.Rule]  # of queries, of keys and values
    head_order: str
    features: frozenset[str]
    backward: bool
    padding: str
    padding_results: bool
    devices: tuple[str, ...]
    bound_factor: float
    survives_abort: bool
    repeats_bits: bool | None
    odd: bool
    max_ranks: int | None
    probe_heads: int | None
    sums_replicated: bool
    reset_dynamo: bool
    preload: tuple[str, ...]
    fork: bool
    refuses: tuple[Refusal, ...]
    setup: Callable[..., Any] | None

    @property
    def is_function(self) -> bool:
        """Whether gradients come from autograd of the result rather than from a backward method."""
        return not hasattr(self.target, "forward")

    def skip_reason(self, case: CaseView, device: str) -> str:
        """Why the declaration rules out the case on this kind of device, as a sentence; empty if it does not."""
        declared: tuple[tuple[str, Any, tuple[str, ...] | None], ...] = (
            ("comm", case.comm, self.comm),
            ("layouts", case.layout, self.layouts),
            ("dtypes", case.dtype, self.dtypes),
            ("devices", device, self.devices),
        )
        for what, value, allowed in declared:
            if allowed is not None and value not in allowed:
                return f"the adapter {self.name} does not declare {value} in {what}={list(allowed)}"
        if self.max_ranks is not None and case.cp_size > self.max_ranks:
            return f"the adapter {self.name} declares max_ranks={self.max_ranks}, and the case has {case.cp_size} ranks"
        for feature, (what, needed) in FEATURES.items():
            if feature not in self.features and needed(case):
                return f"the case needs {what}, and the adapter {self.name} does not declare the feature {feature!r}"
        if case.training and not self.backward:
            return f"the case trains, and the adapter {self.name} has no backward"
        return ""

    def promises_bits(self, device: str) -> bool:
        """Whether a step of a case without `deterministic` gives the same bits again on this kind of device, gradients
        included. Without a declaration this is taken for granted on CPUs only: kernels on GPUs add up gradients in any
        order."""
        return device != "cuda" if self.repeats_bits is None else self.repeats_bits

    def is_refusal(self, error: BaseException) -> bool:
        """Whether the exception is one with which the code under test refuses a case."""
        text = text_of(error)
        return any(
            isinstance(error, kinds) and (words in text if isinstance(words, str) else words.search(text) is not None)
            for kinds, words in self.refuses
        )

    def declaration(self) -> dict[str, Any]:
        """The declaration in a form that can be written as JSON."""
        return {
            "name": self.name,
            "comm": None if self.comm is None else list(self.comm),
            "layouts": None if self.layouts is None else list(self.layouts),
            "dtypes": None if self.dtypes is None else list(self.dtypes),
            "shard": ", ".join(dict.fromkeys(_name_of_rule(rule) for rule in self.shards)),
            "head_order": self.head_order,
            "features": sorted(self.features),
            "backward": self.backward,
            "padding": self.padding,
            "padding_results": self.padding_results,
            "devices": list(self.devices),
            "bound_factor": self.bound_factor,
            "survives_abort": self.survives_abort,
            "repeats_bits": self.repeats_bits,
            "odd": self.odd,
            "max_ranks": self.max_ranks,
            "preload": list(self.preload),
            "fork": self.fork,
            "refuses": [
                [
                    ", ".join(name_of(kind) for kind in (kinds if isinstance(kinds, tuple) else (kinds,))),
                    words if isinstance(words, str) else words.pattern,
                ]
                for kinds, words in self.refuses
            ],
        }


def name_of(target: Any) -> str:
    """The name of a function or class, or of the class of an object."""
    return str(getattr(target, "__name__", None) or type(target).__name__)


def _name_of_rule(rule: conventions.Rule) -> str:
    return str(rule) if isinstance(rule, conventions.Convention) else f"function {name_of(rule)}"


def _rules(shard: conventions.Shard) -> tuple[conventions.Rule, conventions.Rule]:
    """The rule of queries, and that of keys and values."""
    rules = shard if isinstance(shard, tuple) else (shard, shard)
    if len(rules) != 2:
        raise DeclarationError(f"shard={shard!r} has {len(rules)} rules: a pair has one for q and one for k and v")
    for rule in rules:
        if not isinstance(rule, conventions.Convention) and not callable(rule):
            raise DeclarationError(
                f"shard={rule!r} is neither a convention of cp_pool.shard nor a function (lengths, ranks)"
            )
    return rules


def _names(what: str, values: Iterable[str] | None, known: Iterable[str] | None) -> tuple[str, ...] | None:
    """The values as a tuple. Raises DeclarationError for one that is not known; without `known`, any is."""
    if values is None:
        return None
    if isinstance(values, str):
        raise DeclarationError(f"{what} is a list, as {what}=[{values!r}]")
    names = tuple(values)
    for name in names:
        if known is not None and name not in known:
            raise DeclarationError(f"{what} has {name!r}, which is none of {', '.join(known)}")
    return names


def _one_of(what: str, value: str, known: Iterable[str]) -> str:
    if value not in known:
        raise DeclarationError(f"{what}={value!r} is none of {', '.join(known)}")
    return value


def _refusals(refuses: Any) -> tuple[Refusal, ...]:
    """The entries as a tuple. Raises DeclarationError for one that is none, or that any message matches."""
    example = 'refuses=[(ValueError, "no backend")]'
    if isinstance(refuses, (str, bytes)) or not isinstance(refuses, Iterable):
        raise DeclarationError(f"refuses={refuses!r} is no list of pairs, as {example}")
    entries = []
    for entry in refuses:
        if not isinstance(entry, (tuple, list)) or len(entry) != 2:
            raise DeclarationError(f"refuses has {entry!r}, and each entry is an exception type and a text: {example}")
        kinds, words = entry
        listed = kinds if isinstance(kinds, tuple) else (kinds,)
        for kind in listed:
            if not inspect.isclass(kind) or not issubclass(kind, Exception):
                raise DeclarationError(f"refuses has {kind!r}, which is no type of exceptions: {example}")
        if not listed:
            raise DeclarationError(f"refuses has an empty tuple of exception types: {example}")
        if not isinstance(words, (str, re.Pattern)) or (
            isinstance(words, re.Pattern) and not isinstance(words.pattern, str)
        ):
            raise DeclarationError(
                f"refuses has {words!r}, which is neither a text nor a regular expression of re.compile: {example}"
            )
        if not words if isinstance(words, str) else words.search("") is not None:
            raise DeclarationError(
                f"refuses has {words!r}, which every message matches, so that any {name_of(listed[0])} would be a skip"
            )
        entries.append((kinds, words))
    return tuple(entries)


def _target_of(thing: Any) -> Any:
    """The function or object that runs cases: a class is called without arguments."""
    if inspect.isclass(thing):
        if not hasattr(thing, "forward"):
            raise DeclarationError(f"the class {thing.__name__} has no method forward(q, k, v, case, ctx)")
        return thing()
    if not hasattr(thing, "forward") and not callable(thing):
        raise DeclarationError(f"{thing!r} is no function, and has no method forward(q, k, v, case, ctx)")
    return thing


def _check_parameters(target: Any) -> None:
    """Raises DeclarationError for a wrong signature, so that it is reported when the adapter is loaded."""
    methods = [("forward", 5), ("backward", 4)] if hasattr(target, "forward") else [("", 5)]
    for method, count in methods:
        function = getattr(target, method, None) if method else target
        if function is None:
            continue
        try:
            signature = inspect.signature(function)
            signature.bind(*range(count))
        except TypeError:
            wanted = "(q, k, v, case, ctx)" if count == 5 else "(dout, saved, case, ctx)"
            what = name_of(target) + (f".{method}" if method else "")
            raise DeclarationError(f"{what}{signature} cannot be called as {what}{wanted}") from None
        except ValueError:  # a built-in without a signature
            continue


def _check_rows_function(shard: conventions.RowsFunction) -> None:
    """Raises DeclarationError if the shard function of an adapter with replicated tokens does not take their number."""
    try:
        signature = inspect.signature(shard)
        signature.bind([], 1, 0)
    except TypeError:
        what = name_of(shard)
        raise DeclarationError(
            f"{what}{signature} cannot be called as {what}(lengths, ranks, replicated): 'replicated' needs it"
        ) from None
    except ValueError:  # a built-in without a signature
        return


@overload
def adapter(target: Target, /) -> Target: ...
@overload
def adapter(
    *,
    comm: Iterable[str] | None = None,
    layouts: Iterable[str] | None = None,
    dtypes: Iterable[str] | None = None,
    shard: conventions.Shard = conventions.dual_chunk,
    head_order: str = "blocked",
    features: Iterable[str] = (),
    backward: bool | None = None,
    padding: str = "garbage",
    padding_results: bool = False,
    devices: Iterable[str] = DEVICES,
    bound_factor: float = 1.0,
    survives_abort: bool = False,
    repeats_bits: bool | None = None,
    odd: bool = True,
    max_ranks: int | None = None,
    probe_heads: int | None = None,
    sums_replicated: bool | None = None,
    reset_dynamo: bool = False,
    preload: Iterable[str] = (),
    fork: bool = True,
    refuses: Iterable[Refusal] = (),
    setup: Callable[..., Any] | None = None,
    name: str | None = None,
) -> Callable[[Target], Target]: ...
def adapter(
    target: Any = None,
    /,
    *,
    comm: Iterable[str] | None = None,
    layouts: Iterable[str] | None = None,
    dtypes: Iterable[str] | None = None,
    shard: conventions.Shard = conventions.dual_chunk,
    head_order: str = "blocked",
    features: Iterable[str] = (),
    backward: bool | None = None,
    padding: str = "garbage",
    padding_results: bool = False,
    devices: Iterable[str] = DEVICES,
    bound_factor: float = 1.0,
    survives_abort: bool = False,
    repeats_bits: bool | None = None,
    odd: bool = True,
    max_ranks: int | None = None,
    probe_heads: int | None = None,
    sums_replicated: bool | None = None,
    reset_dynamo: bool = False,
    preload: Iterable[str] = (),
    fork: bool = True,
    refuses: Iterable[Refusal] = (),
    setup: Callable[..., Any] | None = None,
    name: str | None = None,
) -> Any:
    """Marks a function ``(q, k, v, case, ctx)``, or a class or object with forward and backward, as an adapter.

    The function or object itself is not changed, except that the declaration is attached to it. docs/adapters.md says
    what each argument means.
    """
    if target is not None:
        return adapter()(target)

    def declare(thing: Any) -> Any:
        runs = _target_of(thing)
        label = name or name_of(thing)
        known = [*FEATURES, "backward"]
        declared = _names("features", features, known) or ()
        is_function = not hasattr(runs, "forward")
        trains = backward if backward is not None else (is_function or hasattr(runs, "backward"))
        if trains and not is_function and not hasattr(runs, "backward"):
            raise DeclarationError(
                f"{label} declares backward=True, and has no method backward(dout, saved, case, ctx)"
            )
        rules = _rules(shard)
        if bound_factor < 1:
            raise DeclarationError(f"bound_factor={bound_factor} would narrow the bounds: it is 1 or more")
        _check_parameters(runs)
        for rule in rules:
            if "replicated" in declared and not isinstance(rule, conventions.Convention):
                _check_rows_function(rule)
        made = Adapter(
            target=runs,
            name=label,
            comm=_names("comm", comm, comm_types()),
            layouts=_names("layouts", layouts, LAYOUTS),
            dtypes=_names("dtypes", dtypes, DTYPES),
            shards=rules,
            head_order=_one_of("head_order", head_order, HEAD_ORDERS),
            features=frozenset(declared) - {"backward"},
            backward=trains,
            padding=_one_of("padding", padding, PADDING),
            padding_results=padding_results,
            devices=_names("devices", devices, DEVICES) or (),
            bound_factor=float(bound_factor),
            survives_abort=survives_abort,
            repeats_bits=repeats_bits,
            odd=odd,
            max_ranks=max_ranks,
            probe_heads=probe_heads,
            sums_replicated=not is_function if sums_replicated is None else sums_replicated,
            reset_dynamo=reset_dynamo,
            preload=tuple(preload),
            fork=fork,
            refuses=_refusals(refuses),
            setup=setup,
        )
        try:
            thing.__cp_pool_adapter__ = made
        except AttributeError:  # an object without a __dict__
            return made
        return thing

    return declare
