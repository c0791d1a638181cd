"""Other sizes for the execution of a case that leaves some open: the option ``sizes``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from random import Random

from dnnl.errors import Error
from dnnl.language.descriptor import SPATIAL, Descriptor
from dnnl.language.errors import BadValue
from dnnl.language.options import Problem
from dnnl.language.problem import Shapes
from dnnl.primitives.desc import Desc
from dnnl.primitives.open_desc import dimension_letters
from dnnl.tools.bench.cases import Case
from dnnl.tools.bench.creation import Created, describe, skipped
from dnnl.tools.bench.drivers import description
from dnnl.tools.bench.open_sizes import laid_out_tensors
from dnnl.tools.bench.quantization import make_attr
from dnnl.types.arg import Arg
from dnnl.types.kinds import RUNTIME_DIM

_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 31, 37, 61, 67, 127, 131, 257, 521)
_TRIES = 40  # problems that are drawn for each size
_MOST_ELEMENTS = 2**16  # of a tensor, unless the case has more

Name = tuple[str, int]
"""The name of a dimension, and its size in the case: equal ones change together."""


def other_cases(case: Case, kind: type[Desc], created: Created) -> Iterator[tuple[Case, Created]]:
    """The case in as many other sizes as it asks for, all of which match the description that was
    ``created``; fewer where the rules of the operation leave no more. 0, 1, the double and primes
    are among them."""
    met, wanted = {case.problem.text}, case["sizes"] - 1
    for problem in _problems(case):
        if not wanted:
            return
        if problem.text in met or not _affordable(problem, case.problem):
            continue
        met.add(problem.text)
        line = case.line.removesuffix(case.problem.text) + problem.text
        other = replace(case, problem=problem, line=line)
        found = _matching(other, kind, created)
        if found is not None:
            wanted -= 1
            yield other, found


def _matching(case: Case, kind: type[Desc], created: Created) -> Created | None:
    """What was ``created`` for the sizes of another case, None where this breaks a rule or has
    other numbers where the description leaves none open."""
    try:
        if skipped(case, kind.operation):
            return None
        desc = describe(case, kind)
        attr = make_attr(case, kind.operation, desc)
        for parameter in kind.operation.parameters:
            if getattr(desc, parameter.field) != getattr(created.desc, parameter.field):
                return None
        forward = created.forward
        if forward is not None:
            forward = describe(case, kind, forward.propagation)
        pd = created.pd
        given = laid_out_tensors(pd, desc, attr.post_ops)
        for argument, own in given.items():
            pairs = zip(pd.patterns[argument].dims, own.dims, strict=True)
            if any(wanted not in (size, RUNTIME_DIM) for wanted, size in pairs):
                return None
        known = pd.with_sizes(given)
        for argument in attr.scales:  # groups of which may not divide a size
            known.arg_desc(Arg.SCALES | argument)
    except (BadValue, Error):
        return None
    return created._replace(attr=attr, forward=forward, known=known)


def _affordable(problem: Problem, own: Problem) -> bool:
    return _elements(problem) <= max(_MOST_ELEMENTS, 8 * _elements(own))


def _elements(problem: Problem) -> int:
    if isinstance(problem, Shapes):
        return max(map(prod, problem.tensors))
    if _is_recurrent(problem):
        return max(problem["dhc"], problem["slc"]) * max(problem["dhc"], problem["t"])
    windows = problem.window_dims if problem.grammar.window else problem.src_dims
    return max(prod(problem.src_dims), prod(windows))


def _problems(case: Case) -> Iterator[Problem]:
    """Problems of other sizes, not all of which follow the rules."""
    random = Random(case.problem.text)
    problem = case.problem
    sizes = _sizes(case)
    mask: int = case["open"].mask
    names = [name for name, dim in sizes.items() if mask >> dim & 1]
    changed = _changed_shapes if isinstance(problem, Shapes) else _changed_numbers

    def made(numbers: Mapping[Name, int]) -> Iterator[Problem]:
        found = changed(case, numbers)
        if found is not None:
            yield found

    if not names:
        return
    yield from made({names[0]: 0})
    yield from made(dict.fromkeys(names, 1))
    yield from made({name: 2 * name[1] for name in names})
    yield from made({names[-1]: 1})
    yield from made({name: random.choice(_primes(name[1])) for name in names})
    yield from made({names[0]: 1})
    for _ in range(case["sizes"] * _TRIES):
        chosen = [name for name in names if random.random() < 0.7] or names
        numbers = {name: random.choice((*_primes(name[1]), 1, name[1])) for name in chosen}
        if random.random() < 0.1:
            numbers[random.choice(chosen)] = 0
        yield from made(numbers)


def _primes(size: int) -> Sequence[int]:
    return [prime for prime in _PRIMES if prime <= max(13, 2 * size)]


def _sizes(case: Case) -> dict[Name, int]:
    """The sizes that may change, each with the number of its dimension."""
    problem = case.problem
    found: dict[Name, int] = {}
    if isinstance(problem, Shapes):
        for place, dims in enumerate(problem.tensors):
            for dim, name in enumerate(_names(case, place)):
                if dims[dim] != 1 or not _varies(problem, dim):
                    found.setdefault((name, dims[dim]), dim)
        return found
    assert isinstance(problem, Descriptor)
    found["mb", problem["mb"]] = 0
    if _is_recurrent(problem):
        return found | {(_group(key), problem[key]): 1 for key in problem.grammar.head}
    found |= {(key, problem[key]): 1 for key in ("ic", "oc") if key in problem.numbers}
    for dim, letter in enumerate(SPATIAL[5 - problem.ndims :], 2):
        found |= {
            (key, problem[key]): dim for key in (f"i{letter}", f"o{letter}") if _free(problem, key)
        }
    return found


def _is_recurrent(problem: Descriptor) -> bool:
    """Whether the sizes are those of steps, layers and channels, and not of an image."""
    return "dhc" in problem.numbers


def _group(key: str) -> str:
    """Channels of one size change together."""
    return key if key in ("l", "t", "mb") else "channels"


def _varies(problem: Shapes, dim: int) -> bool:
    return any(len(dims) > dim and dims[dim] != 1 for dims in problem.tensors)


def _free(problem: Descriptor, key: str) -> bool:
    """Whether a size does not follow from others."""
    return key in problem.grammar.spatial and not (problem.grammar.window and key[0] == "o")


def _names(case: Case, place: int) -> list[str]:
    """What tells apart the dimensions of a tensor of a problem, by the meaning that they have."""
    kind = description(case.driver)
    assert kind is not None
    assert isinstance(case.problem, Shapes)
    given = [role for role in kind.operation.roles if role.field]
    letters = given[place].letters if place < len(given) else "*"
    return list(dimension_letters(letters, len(case.problem.tensors[place])))


def _changed_shapes(case: Case, numbers: Mapping[Name, int]) -> Problem | None:
    problem = case.problem
    assert isinstance(problem, Shapes)
    tensors = tuple(
        tuple(
            numbers.get((name, size), size)
            for name, size in zip(_names(case, n), dims, strict=True)
        )
        for n, dims in enumerate(problem.tensors)
    )
    return replace(problem, tensors=tensors)


def _changed_numbers(case: Case, numbers: Mapping[Name, int]) -> Problem | None:
    """Channels stay multiples of groups; images change by as many steps as their windows do."""
    problem = case.problem
    assert isinstance(problem, Descriptor)
    made = dict(problem.numbers)
    wanted = {key: number for (key, _), number in numbers.items()}
    if "mb" in wanted:
        made["mb"] = wanted["mb"]
    if _is_recurrent(problem):
        made |= {
            key: numbers.get((_group(key), problem[key]), problem[key])
            for key in problem.grammar.head
        }
        return replace(problem, numbers=made)
    depthwise = problem.groups > 1 and problem.groups == problem["ic"] and "oc" in made
    if depthwise and "ic" in wanted and wanted["ic"]:
        for key in ("ic", "oc", "g"):
            made[key] = problem[key] // problem.groups * wanted["ic"]
    elif not depthwise:
        for key in ("ic", "oc"):
            if key in wanted:
                made[key] = -(-wanted[key] // problem.groups) * problem.groups
    for letter in SPATIAL[5 - problem.ndims :]:
        keys = [key for key in (f"i{letter}", f"o{letter}") if key in wanted]
        if not problem.grammar.window:
            made |= {key: wanted[key] for key in keys}
        elif keys:
            step, up = problem[f"s{letter}"], problem.grammar.window == "up"
            by_in, by_out = (1, step) if up else (step, 1)
            source, windows = problem[f"i{letter}"], problem[f"o{letter}"]
            count = max((wanted[keys[0]] - source) // by_in, -((source - 1) // by_in))
            count = max(count, -((windows - 1) // by_out))
            made[f"i{letter}"] = source + count * by_in
            made[f"o{letter}"] = windows + count * by_out
    small = any(made.get(key, 1) < 1 for key in problem.grammar.spatial if key[0] in "io")
    return None if small else replace(problem, numbers=made)
