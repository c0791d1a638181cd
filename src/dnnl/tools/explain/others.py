"""What verbose lines say that tell of no operation."""

from __future__ import annotations

from dnnl.language.verbose import OtherLine


def describe(line: OtherLine) -> str:
    """One sentence."""
    fields = list(line.fields)
    text = ", ".join(fields)
    match line.topic:
        case "info":
            return _info(fields)
        case "primitive info" | "graph info":
            what = line.topic.partition(" ")[0]
            return f"header: the fields of the lines of a {what} are {text.partition(':')[2]}"
        case "primitive create:check":
            return f"{_where(fields, 'a description')} breaks a rule: {_reason(fields[1:])}"
        case "primitive exec:check":
            return f"{_where(fields, 'an execution')} breaks a rule: {_reason(fields[1:])}"
        case "primitive create:dispatch":
            return _dispatch(fields)
    part, _, event = line.topic.partition(" ")
    if part == "graph" and event:
        return f"the graph interface: a partition, {event}: {text}"
    if line.topic.rpartition(" ")[2] in ("warn", "error"):
        return f"{line.topic.rpartition(' ')[2]}: {text}"
    return f"a line of {line.topic!r}, which has no further meaning here: {text}"


def _info(fields: list[str]) -> str:
    text = ", ".join(fields)
    if text.startswith("prim_template:"):
        return f"header: the fields of the lines of a primitive are {text.partition(':')[2]}"
    if len(fields) > 1 and fields[1].startswith("isa:"):
        isa = ", ".join(fields[1:]).removeprefix("isa:")
        return f"header: kernels for {fields[0]} are written for {isa}"
    if len(fields) > 1 and fields[1].startswith("runtime:"):
        return f"header: {fields[0]} runs on {', '.join(fields[1:])}"
    return f"header: {text}"


def _where(fields: list[str], what: str) -> str:
    return f"{what} of {fields[0]}" if fields else what


def _reason(fields: list[str]) -> str:
    """The message, and behind it the place in the library where there is one."""
    if len(fields) > 1 and fields[-1].rpartition(":")[2].isdigit():
        return f"{', '.join(fields[:-1])} ({fields[-1]})"
    return ", ".join(fields)


def _dispatch(fields: list[str]) -> str:
    """Ours: engine, kind, implementation, reason. oneDNN's: kind, all of the problem, reason."""
    if fields[:1] and fields[0].partition(":")[0] in ("cpu", "gpu") and len(fields) > 3:
        engine, kind, name, *reason = fields
        return f"the implementation {name} of {kind} on {engine} refuses: {', '.join(reason)}"
    kind, *rest = fields or ["a primitive"]
    if len(rest) > 2:
        about = f" for {rest[-3]}" if rest[-3] else ""
        return f"an implementation of {kind} refuses{about}: {_reason(rest[-2:])}"
    return f"an implementation of {kind} refuses: {_reason(rest)}"
