"""Small kernels as LLVM IR text, to test launching before and without any code generator."""

from __future__ import annotations

from functools import cache

from dnnl.runtime.engines import cpu_jit
from dnnl.runtime.image import Image, Phase

_LOOP = """
define void @{name}(ptr %args, i64 %begin, i64 %end, i64 %thread) {{
entry:
  %a = load ptr, ptr %args
  %b.at = getelementptr ptr, ptr %args, i64 1
  %b = load ptr, ptr %b.at
  br label %head
head:
  %i = phi i64 [ %begin, %entry ], [ %i.next, %tail ]
  %inside = icmp slt i64 %i, %end
  br i1 %inside, label %body, label %done
body:
  %a.i = getelementptr i64, ptr %a, i64 %i
  %b.i = getelementptr i64, ptr %b, i64 %i
{body}
  br label %tail
tail:
  %i.next = add i64 %i, 1
  br label %head
done:
  ret void
}}
"""

# Waits, up to some seconds, until a[1] items have begun; %all says whether they have.
_AFTER_ALL_BEGAN = """
  %wanted.at = getelementptr i64, ptr %a, i64 1
  %wanted = load i64, ptr %wanted.at
  atomicrmw add ptr %a, i64 1 seq_cst
  br label %spin
spin:
  %n = phi i64 [ 0, %body ], [ %n.next, %again ]
  %here = load atomic i64, ptr %a seq_cst, align 8
  %all = icmp sge i64 %here, %wanted
  br i1 %all, label %met, label %again
again:
  call i32 @sched_yield()
  %n.next = add i64 %n, 1
  %more = icmp slt i64 %n.next, 3000000
  br i1 %more, label %spin, label %met
met:
"""

# Each is a loop over the items with arguments a and b, arrays of int64.
_BODIES = {
    # a[i] += 1, also right when two threads do the same item
    "visit": "  atomicrmw add ptr %a.i, i64 1 seq_cst",
    # a[i] += 1 and b[i] = kernel thread id
    "whoami": """
  atomicrmw add ptr %a.i, i64 1 seq_cst
  %tid = call i32 @gettid()
  %tid64 = zext i32 %tid to i64
  store i64 %tid64, ptr %b.i""",
    # b[i] = a[0], which is the number of items of `arrive` that are done
    "observe": """
  %seen = load atomic i64, ptr %a seq_cst, align 8
  store i64 %seen, ptr %b.i""",
    "arrive": "  atomicrmw add ptr %a, i64 1 seq_cst",
    # b[i] = thread id if a[1] items have begun, else 0
    "meet": _AFTER_ALL_BEGAN
    + """  %tid = call i32 @gettid()
  %id = select i1 %all, i32 %tid, i32 0
  %id64 = zext i32 %id to i64
  store i64 %id64, ptr %b.i""",
    # b[i] = number of the thread, once a[1] items have begun
    "number": _AFTER_ALL_BEGAN + """  store i64 %thread, ptr %b.i""",
    # item 0 waits, up to some seconds, until a[1] other items are done; b[0] = 1 if they are
    "stall": """
  %first = icmp eq i64 %i, 0
  br i1 %first, label %stall, label %count
count:
  atomicrmw add ptr %a, i64 1 seq_cst
  br label %tail
stall:
  %wanted.at = getelementptr i64, ptr %a, i64 1
  %wanted = load i64, ptr %wanted.at
  br label %spin
spin:
  %n = phi i64 [ 0, %stall ], [ %n.next, %again ]
  %others = load atomic i64, ptr %a seq_cst, align 8
  %all = icmp sge i64 %others, %wanted
  br i1 %all, label %met, label %again
again:
  call i32 @sched_yield()
  %n.next = add i64 %n, 1
  %more = icmp slt i64 %n.next, 3000000
  br i1 %more, label %spin, label %met
met:
  %flag = zext i1 %all to i64
  store i64 %flag, ptr %b""",
    # a region within the region: b[0](b[1]), the run function of the pool and a launch block
    "nest": """
  %run = load ptr, ptr %b
  %block.at = getelementptr ptr, ptr %b, i64 1
  %block = load ptr, ptr %block.at
  call void %run(ptr %block)
  atomicrmw add ptr %a.i, i64 1 seq_cst""",
}
_EXTERNAL = "declare i32 @gettid()\ndeclare i32 @sched_yield()\n"


def assembled(text: str) -> bytes:
    """The object code of IR text."""
    return cpu_jit.assemble(text)


@cache
def code() -> bytes:
    """One object with all of the kernels."""
    loops = (_LOOP.format(name=name, body=body) for name, body in _BODIES.items())
    return assembled(_EXTERNAL + "".join(loops))


def image(*phases: tuple[str, int]) -> Image:
    """An image with these kernels and numbers of items; its arguments are a and b."""
    return Image("cpu", code(), tuple(Phase(name, count) for name, count in phases), (1, 17))
