"""What is true of every operation, told by its record: each example runs in every propagation."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from dnnl import (
    Arg,
    Engine,
    InvalidArguments,
    Memory,
    MemoryDesc,
    Primitive,
    PrimitiveDesc,
    PropKind,
    Stream,
    config,
)
from dnnl.language.verbose import OperationLine
from dnnl.primitives.desc import Desc
from dnnl.primitives.registry import OPERATIONS
from dnnl.tools.bench.cases import Case, Interpreter
from dnnl.tools.bench.creation import create, describe, skipped
from dnnl.tools.bench.trial import Trial
from dnnl.tools.bench.verbose_line import operation_tokens, read
from dnnl.types.arg import name_of
from dnnl.types.kinds import FormatKind
from tests.beyond.levels import LACKING, beyond
from tests.check import same_bits
from tests.guard import RUNS, near
from tests.primitives import late
from tests.qemu.engine import QEMU, missing
from tests.qemu.instead import instead

ENGINE = Engine("cpu")
ROW = "avx512_core_bf16"
_DIRECTIONS = {
    PropKind.forward_inference: "FWD_I",
    PropKind.forward_training: "FWD_D",
    PropKind.backward_data: "BWD_D",
    PropKind.backward_weights: "BWD_W,BWD_WB",
    PropKind.backward: "BWD_DW",
}


def lines(kind: str) -> Iterator[str]:
    """The command line of each example in each propagation; only forward ones have post-ops."""
    operation = OPERATIONS[kind].operation
    passes: list[PropKind | None]
    directed = operation.driver.find("dir") is not None
    for example in operation.examples:
        passes = [p for p in _DIRECTIONS if p in operation.passes] if directed else [None]
        if "--attr-post-ops" in example:
            passes = [p for p in passes if p is None or p.is_forward]
        for prop_kind in passes:
            chosen = "" if prop_kind is None else f"--dir={_DIRECTIONS[prop_kind]} "
            yield f"--{operation.driver.name} {chosen}{example}"


LINES = [(kind, line) for kind in OPERATIONS for line in lines(kind)]
each_line = pytest.mark.parametrize(("kind", "line"), LINES, ids=[line for _, line in LINES])


@cache
def trials(kind: str, line: str) -> tuple[Trial, ...]:
    """The cases of a line, created and filled."""
    made = []
    for case in Interpreter().cases(line.split()):
        assert skipped(case, OPERATIONS[kind].operation) is None
        made.append(trial(case, OPERATIONS[kind]))
    return tuple(made)


def trial(case: Case, description: type[Desc]) -> Trial:
    created = create(case, description)
    filled = Trial(case, created, created.pd)
    filled.fill(bitwise=False)
    filled.place()
    return filled


@pytest.mark.parametrize("kind", OPERATIONS)
def test_there_are_examples(kind: str) -> None:
    operation = OPERATIONS[kind].operation
    assert operation.examples
    assert operation.summary.lower().startswith((kind.partition("_")[0], "local response"))


@each_line
def test_results_are_right_between_guard_pages(kind: str, line: str) -> None:
    for made in trials(kind, line):
        results = results_between_guard_pages(made)
        if not made.pd.across_engines:
            results.append(late.execute(made.desc, made.pd.attr, made.memories))
        judge(made, results)
        made.place()


def results_between_guard_pages(made: Trial) -> list[dict[int, Memory]]:
    """The memories after each of `RUNS`; what is only read is as it was."""
    primitive = Primitive(made.pd)
    results = []
    for threads, at in RUNS:
        placed = {argument: near(memory, at) for argument, memory in made.memories.items()}
        primitive.execute(Stream(ENGINE, threads), placed)
        results.append(placed)
        for tensor in made.desc.tensors:
            if not tensor.output:
                before = made.memories[tensor.argument]
                assert same_bits(placed[tensor.argument], before), tensor
    return results


def judge(made: Trial, results: Sequence[Mapping[int, Memory]]) -> None:
    """The results are all the same, and right."""
    for tensor in made.desc.outputs:
        first, *others = (result[tensor.argument] for result in results)
        assert all(same_bits(first, other) for other in others), (
            f"threads or the engine change {tensor}"
        )
    made.memories.update(results[0])
    verdict = made.judge(made.expect())
    assert not verdict.errors, verdict.lines


@pytest.mark.skipif(bool(missing()), reason=missing())
@each_line
def test_results_are_right_on_another_architecture(kind: str, line: str) -> None:
    """Of a few cases of each line: starting an emulator takes its time."""
    cases = list(Interpreter().cases(line.split()))
    with instead(QEMU):
        for case in cases[:: -(-len(cases) // 4)]:
            made = trial(case, OPERATIONS[kind])
            if not made.pd.across_engines:
                judge(made, results_between_guard_pages(made))


@pytest.mark.skipif(ROW not in LACKING, reason="the processor has these vectors, or none like them")
@each_line
def test_results_are_right_on_wider_vectors(kind: str, line: str) -> None:
    """Of a case of each line: generic code takes long to compile."""
    case = next(iter(Interpreter().cases(line.split())))
    with beyond(), config.override("max_cpu_isa", ROW):
        made = trial(case, OPERATIONS[kind])
        judge(made, results_between_guard_pages(made))


@each_line
def test_descriptions_are_values(kind: str, line: str) -> None:
    for made in trials(kind, line):
        again = pickle.loads(pickle.dumps(made.asked))
        assert again == made.asked
        assert hash(again) == hash(made.asked)
        assert copy.deepcopy(made.desc) == made.desc
        assert made.desc.settled() == made.desc
        decided = (FormatKind.blocked, FormatKind.opaque, FormatKind.sparse)
        assert all(tensor.desc.format_kind in decided for tensor in made.desc.tensors)


@each_line
def test_verbose_lines_become_the_case_again(kind: str, line: str) -> None:
    for made in trials(kind, line):
        text = f"dnnl_verbose,v1,primitive,exec,{made.pd.verbose_fields()}"
        parsed = read(text)
        assert isinstance(parsed, OperationLine)
        (case,) = Interpreter().cases(operation_tokens(parsed))
        again = describe(case, OPERATIONS[kind])
        assert (again.kind, again.propagation) == (made.desc.kind, made.desc.propagation)
        assert (again.problem, again.auxiliary) == (made.desc.problem, made.desc.auxiliary)
        names = [
            [(t.name, t.desc.dims, t.desc.data_type) for t in d.tensors]
            for d in (again, made.asked)
        ]
        assert names[0] == names[1]


@each_line
def test_every_tensor_is_required(kind: str, line: str) -> None:
    made = trials(kind, line)[0]
    primitive, stream = Primitive(made.pd), Stream(ENGINE)
    for tensor in made.desc.tensors:
        given = {key: value for key, value in made.memories.items() if key != tensor.argument}
        with pytest.raises(InvalidArguments, match="missing"):
            primitive.execute(stream, given)
        wrong = Memory(MemoryDesc((7, 7, 7), "f32"), ENGINE)
        with pytest.raises(InvalidArguments, match="must be"):
            primitive.execute(stream, {**made.memories, tensor.argument: wrong})


@each_line
def test_no_other_argument_is_taken(kind: str, line: str) -> None:
    made = trials(kind, line)[0]
    primitive, stream = Primitive(made.pd), Stream(ENGINE)
    flagged = [flag | Arg.SRC for flag in (Arg.SCALES, Arg.ZERO_POINTS, Arg.post_op(31))]
    optional = {hint.argument for hint in made.pd.plan.hints}
    nobody = [-1, 0, 7000, Arg.part(0, 1), 2**70]
    for argument in {*map(int, Arg), *flagged, *nobody} - made.memories.keys() - optional:
        others: list[Any] = [Memory(MemoryDesc((7, 7, 7), "f32"), ENGINE), np.zeros(3)]
        for given in others:
            rule = f"args[{name_of(argument)}] = "
            for call in (primitive.execute, primitive.bind):
                with pytest.raises(InvalidArguments, match=re.escape(rule)) as caught:
                    call(stream, {**made.memories, argument: given})
                assert f"this {made.desc.kind} takes no such argument" in str(caught.value)
    nothing = {Arg.HINT_MAX_GROUP_SIZE: Memory(MemoryDesc.zero(), ENGINE)}
    primitive.execute(stream, {**made.memories, **nothing})
    made.place()


@each_line
def test_outputs_share_no_memory_but_where_the_record_says(kind: str, line: str) -> None:
    made = trials(kind, line)[0]
    primitive, stream = Primitive(made.pd), Stream(ENGINE)
    descs = {tensor.argument: tensor.desc for tensor in made.desc.tensors}
    for output in made.desc.outputs:
        for argument, desc in descs.items():
            if argument == output.argument or desc != output.desc:
                continue
            shared = {**made.memories, output.argument: made.memories[argument]}
            if (output.argument, argument) in made.desc.operation.in_place:
                continue
            with pytest.raises(InvalidArguments, match="must not share memory"):
                primitive.execute(stream, shared)


@pytest.mark.parametrize("kind", OPERATIONS)
def test_in_place_gives_the_same_bits(kind: str) -> None:
    operation = OPERATIONS[kind].operation
    for line in [line for own, line in LINES if own == kind]:
        for made in trials(kind, line):
            for output, source in operation.in_place:
                descs = made.desc.desc_of(output), made.desc.desc_of(source)
                if descs[0].is_zero or descs[0] != descs[1] or made.previous is not None:
                    continue
                primitive, stream = Primitive(made.pd), Stream(ENGINE)
                apart = {key: near(memory, "end") for key, memory in made.memories.items()}
                primitive.execute(stream, apart)
                together = {key: near(memory, "end") for key, memory in made.memories.items()}
                together[output] = together[source]
                primitive.execute(stream, together)
                assert same_bits(apart[output], together[output]), line


@pytest.mark.covers("kind")
@each_line
def test_a_scratchpad_is_there_to_be_used(kind: str, line: str) -> None:
    """Some phase takes its address wherever a kernel asks for one, or for its bytes."""
    for made in trials(kind, line):
        plan = made.pd.plan
        kernel = plan.recipe.kernel()
        slots = {slot for phase in kernel.phases for slot in phase.slots}
        used = Arg.SCRATCHPAD in {kernel.arguments[slot] for slot in slots}
        assert used == (Arg.SCRATCHPAD in kernel.arguments) == bool(plan.scratchpad)


@each_line
def test_the_scratchpad_may_be_the_users(kind: str, line: str) -> None:
    made = trials(kind, line)[0]
    attr = made.pd.attr
    attr.scratchpad_mode = "user"
    pd = PrimitiveDesc(made.desc, ENGINE, attr)
    given = {key: near(memory, "end") for key, memory in made.memories.items()}
    if not pd.scratchpad_desc.is_zero:
        given[Arg.SCRATCHPAD] = Memory(pd.scratchpad_desc, ENGINE)
    Primitive(pd).execute(Stream(ENGINE), given)
    Primitive(made.pd).execute(Stream(ENGINE), made.memories)
    for tensor in made.desc.outputs:
        assert same_bits(given[tensor.argument], made.memories[tensor.argument])
    made.place()
