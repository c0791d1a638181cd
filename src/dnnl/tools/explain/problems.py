"""The sizes and parameters of an operation in prose."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dnnl.language.descriptor import Descriptor
from dnnl.language.options import Problem
from dnnl.language.problem import Shapes
from dnnl.language.verbose import OperationLine
from dnnl.tools.explain.phrases import ALGORITHMS, BINARY, FLAGS, function


def _sizes(values: Sequence[int]) -> str:
    return "x".join(map(str, values))


def sizes(line: OperationLine, problem: Problem | None) -> str:
    """The problem in prose."""
    if problem is None:
        return line.problem
    if isinstance(problem, Shapes):
        return problem.between.join(map(_sizes, problem.tensors))
    if "slc" in problem.numbers:
        return _recurrent(problem)
    if problem.grammar.window:
        return ", ".join(_window(problem))
    if "oc" in problem.numbers:
        inputs = _sizes(problem.src_dims[1:])
        return f"batch {problem['mb']}, {inputs} inputs to {problem['oc']} outputs"
    return _image(problem)


def _image(problem: Descriptor) -> str:
    """Batch, channels and space."""
    image = f", image {_sizes(problem.spatial('i'))}" if problem.ndims > 2 else ""
    if image and "ow" in problem.numbers:
        image += f" to {_sizes(problem.spatial('o'))}"
    groups = f" in {problem.groups} groups" if problem.grouped else ""
    extra = f", {problem['ls']} neighbours" if "ls" in problem.numbers else ""
    return f"batch {problem['mb']}, {problem['ic']} channels{groups}{image}{extra}"


def _window(problem: Descriptor) -> Iterator[str]:
    """A window that slides over an image."""
    yield f"batch {problem['mb']}"
    if "oc" in problem.numbers:
        yield f"{problem['ic']} to {problem['oc']} channels"
        if problem.groups > 1:
            yield f"{problem.groups} groups"
    else:
        yield f"{problem['ic']} channels"
    yield f"image {_sizes(problem.spatial('i'))} to {_sizes(problem.spatial('o'))}"
    yield f"window {_sizes(problem.spatial('k'))}"
    for key, name, plain in (("s", "steps", 1), ("p", "padding before", 0), ("d", "dilation", 0)):
        values = problem.spatial(key)
        if any(value != plain for value in values):
            dense = " (0 is dense)" if key == "d" else ""
            yield f"{name} {_sizes(values)}{dense}"
    behind = problem.padding_r
    if problem.grammar.window == "down" and behind != problem.spatial("p"):
        yield f"padding behind {_sizes(behind)}"


def _recurrent(problem: Descriptor) -> str:
    return (
        f"{problem['l']} layers, {problem['t']} steps, batch {problem['mb']}, "
        f"{problem['slc']} inputs, {problem['dhc']} outputs"
    )


def parameters(line: OperationLine) -> Iterator[str]:
    """What the auxiliary field says."""
    aux = dict(line.aux)
    alg = aux.pop("alg", "")
    alpha, beta = aux.get("alpha", "0"), aux.get("beta", "0")
    if alg.startswith("eltwise_"):
        yield f"{alg}: {function(alg, alpha, beta)}"
        aux = {key: value for key, value in aux.items() if key not in ("alpha", "beta")}
    elif alg.startswith("binary_"):
        text = BINARY.get(alg.removeprefix("binary_"))
        yield f"{alg}: {text.format(x='src0', y='src1')}" if text else alg
    elif alg:
        yield f"{alg}: {ALGORITHMS[alg]}" if alg in ALGORITHMS else alg
    for name, value in aux.items():
        if name == "flags":
            yield from (f"flag {letter}: {FLAGS.get(letter, 'unknown')}" for letter in value)
        elif name == "axis":
            yield f"axis {value}, from 0"
        elif value:
            yield f"{name} {value}"
