"""A program for Linux on aarch64 that runs the phases of one image: no C library, no start files.

It reads what to do from its standard input, all words being of 64 bits::

    buffers | arguments | calls
    bytes of its pages, bytes, place in the pages      of each buffer
    buffer, offset                                     of each argument, scratch being the first
    phase, begin, end, thread                          of each call
    the contents of the buffers

and writes the contents of all buffers to its standard output when the calls are done. Each buffer
lies between two pages that nobody may touch.
"""

from __future__ import annotations

from functools import cache
from string import Template

from llvmlite import binding as llvm

PAGE = 4096

# The number of a system call and its first four arguments; of `mmap` the last ones are -1 and 0.
# In assembly, since LLVM as llvmlite has it reads none for other machines, not even inline.
SYSTEM = """
    .global system
system:
    mov x8, x0
    mov x0, x1
    mov x1, x2
    mov x2, x3
    mov x3, x4
    mov x4, #-1
    mov x5, #0
    svc #0
    ret
"""

_SYSTEM_CALLS = {"read": 63, "write": 64, "exit": 93, "mmap": 222, "mprotect": 226}
_DRIVER = """
@phases = internal constant [$count x ptr] [$phases]
$declarations

declare i64 @system(i64, i64, i64, i64, i64)

define internal void @exit(i64 %status) noreturn {
  call i64 @system(i64 $exit, i64 %status, i64 0, i64 0, i64 0)
  unreachable
}

; All of the bytes through standard input (0) or output (1), by the system call of that number.
define internal void @transfer(i64 %number, i64 %file, ptr %at, i64 %bytes) {
entry:
  %begin = ptrtoint ptr %at to i64
  %end = add i64 %begin, %bytes
  br label %test
test:
  %now = phi i64 [ %begin, %entry ], [ %next, %more ]
  %left = sub i64 %end, %now
  %over = icmp eq i64 %left, 0
  br i1 %over, label %done, label %some
some:
  %got = call i64 @system(i64 %number, i64 %file, i64 %now, i64 %left, i64 0)
  %next = add i64 %now, %got
  %well = icmp sgt i64 %got, 0
  br i1 %well, label %more, label %broken
more:
  br label %test
broken:
  call void @exit(i64 2)
  unreachable
done:
  ret void
}

define internal void @receive(ptr %at, i64 %bytes) {
  call void @transfer(i64 $read, i64 0, ptr %at, i64 %bytes)
  ret void
}

define internal i64 @pages(i64 %bytes, i64 %access) {    ; 34 = MAP_PRIVATE | MAP_ANONYMOUS
  %at = call i64 @system(i64 $mmap, i64 0, i64 %bytes, i64 %access, i64 34)
  ret i64 %at
}

define internal ptr @room(i64 %bytes) {
  %some = add i64 %bytes, 1
  %at = call i64 @pages(i64 %some, i64 3)
  %room = inttoptr i64 %at to ptr
  ret ptr %room
}

define internal ptr @words(i64 %count) {                 ; the next words of the input
  %bytes = mul i64 %count, 8
  %at = call ptr @room(i64 %bytes)
  call void @receive(ptr %at, i64 %bytes)
  ret ptr %at
}

define internal i64 @word(ptr %words, i64 %columns, i64 %row, i64 %column) {
  %before = mul i64 %columns, %row
  %number = add i64 %before, %column
  %at = getelementptr i64, ptr %words, i64 %number
  %word = load i64, ptr %at
  ret i64 %word
}

define void @_start() noreturn {
entry:
  %counts = call ptr @words(i64 3)
  %buffers = call i64 @word(ptr %counts, i64 1, i64 0, i64 0)
  %arguments = call i64 @word(ptr %counts, i64 1, i64 1, i64 0)
  %calls = call i64 @word(ptr %counts, i64 1, i64 2, i64 0)
  %buffer.words.count = mul i64 %buffers, 3
  %buffer.words = call ptr @words(i64 %buffer.words.count)
  %argument.words.count = mul i64 %arguments, 2
  %argument.words = call ptr @words(i64 %argument.words.count)
  %call.words.count = mul i64 %calls, 4
  %call.words = call ptr @words(i64 %call.words.count)
  %places.bytes = mul i64 %buffers, 8
  %places = call ptr @room(i64 %places.bytes)
  %args.bytes = mul i64 %arguments, 8
  %args = call ptr @room(i64 %args.bytes)
  br label %place

place:
  %i = phi i64 [ 0, %entry ], [ %i.next, %place ]
  %inner = call i64 @word(ptr %buffer.words, i64 3, i64 %i, i64 0)
  %i.bytes = call i64 @word(ptr %buffer.words, i64 3, i64 %i, i64 1)
  %first = call i64 @word(ptr %buffer.words, i64 3, i64 %i, i64 2)
  %outer = add i64 %inner, $guards
  %guard = call i64 @pages(i64 %outer, i64 0)
  %open = add i64 %guard, $page
  call i64 @system(i64 $mprotect, i64 %open, i64 %inner, i64 3, i64 0)
  %i.at = add i64 %open, %first
  %i.place = inttoptr i64 %i.at to ptr
  call void @receive(ptr %i.place, i64 %i.bytes)
  %places.i = getelementptr i64, ptr %places, i64 %i
  store i64 %i.at, ptr %places.i
  %i.next = add i64 %i, 1
  %i.more = icmp slt i64 %i.next, %buffers
  br i1 %i.more, label %place, label %point

point:
  %a = phi i64 [ 0, %place ], [ %a.next, %point ]
  %of = call i64 @word(ptr %argument.words, i64 2, i64 %a, i64 0)
  %offset = call i64 @word(ptr %argument.words, i64 2, i64 %a, i64 1)
  %base = call i64 @word(ptr %places, i64 1, i64 %of, i64 0)
  %address = add i64 %base, %offset
  %args.a = getelementptr i64, ptr %args, i64 %a
  store i64 %address, ptr %args.a
  %a.next = add i64 %a, 1
  %a.more = icmp slt i64 %a.next, %arguments
  br i1 %a.more, label %point, label %ready

ready:
  %given = getelementptr i64, ptr %args, i64 1
  br label %test

test:
  %c = phi i64 [ 0, %ready ], [ %c.next, %run ]
  %c.more = icmp slt i64 %c, %calls
  br i1 %c.more, label %run, label %deliver

run:
  %phase = call i64 @word(ptr %call.words, i64 4, i64 %c, i64 0)
  %begin = call i64 @word(ptr %call.words, i64 4, i64 %c, i64 1)
  %end = call i64 @word(ptr %call.words, i64 4, i64 %c, i64 2)
  %thread = call i64 @word(ptr %call.words, i64 4, i64 %c, i64 3)
  %function.at = getelementptr ptr, ptr @phases, i64 %phase
  %function = load ptr, ptr %function.at
  call void %function(ptr %given, i64 %begin, i64 %end, i64 %thread)
  %c.next = add i64 %c, 1
  br label %test

deliver:
  %o = phi i64 [ 0, %test ], [ %o.next, %deliver ]
  %o.bytes = call i64 @word(ptr %buffer.words, i64 3, i64 %o, i64 1)
  %o.word = call i64 @word(ptr %places, i64 1, i64 %o, i64 0)
  %o.place = inttoptr i64 %o.word to ptr
  call void @transfer(i64 $write, i64 1, ptr %o.place, i64 %o.bytes)
  %o.next = add i64 %o, 1
  %o.more = icmp slt i64 %o.next, %buffers
  br i1 %o.more, label %deliver, label %done

done:
  call void @exit(i64 0)
  unreachable
}
"""

# What an image may refer to. Slow and right.
_MEMORY = """
define ptr @memset(ptr %to, i32 %value, i64 %bytes) {
entry:
  %byte = trunc i32 %value to i8
  br label %test
test:
  %i = phi i64 [ 0, %entry ], [ %next, %more ]
  %some = icmp ult i64 %i, %bytes
  br i1 %some, label %more, label %done
more:
  %at = getelementptr i8, ptr %to, i64 %i
  store i8 %byte, ptr %at
  %next = add i64 %i, 1
  br label %test
done:
  ret ptr %to
}

define ptr @memmove(ptr %to, ptr %from, i64 %bytes) {
entry:
  %up = icmp ult ptr %to, %from              ; else from the last byte down
  %last = sub i64 %bytes, 1
  br label %test
test:
  %i = phi i64 [ 0, %entry ], [ %next, %more ]
  %some = icmp ult i64 %i, %bytes
  br i1 %some, label %more, label %done
more:
  %turned = sub i64 %last, %i
  %number = select i1 %up, i64 %i, i64 %turned
  %source = getelementptr i8, ptr %from, i64 %number
  %byte = load i8, ptr %source
  %at = getelementptr i8, ptr %to, i64 %number
  store i8 %byte, ptr %at
  %next = add i64 %i, 1
  br label %test
done:
  ret ptr %to
}

@memcpy = alias ptr (ptr, ptr, i64), ptr @memmove
"""


@cache
def driver(phases: int) -> bytes:
    """The object code of the program, but for `SYSTEM`: it calls ``phase.0``, ``phase.1``, ..."""
    numbers = range(phases)
    text = Template(_DRIVER + _MEMORY).substitute(
        _SYSTEM_CALLS,
        page=PAGE,
        guards=2 * PAGE,
        count=phases,
        phases=", ".join(f"ptr @phase.{number}" for number in numbers),
        declarations="\n".join(f"declare void @phase.{n}(ptr, i64, i64, i64)" for n in numbers),
    )
    return assembled(text)


def assembled(text: str) -> bytes:
    """The object code of LLVM IR."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("aarch64-unknown-linux-gnu")
    module = llvm.parse_assembly(text)
    module.verify()
    return bytes(target.create_target_machine(opt=1, reloc="static").emit_object(module))
