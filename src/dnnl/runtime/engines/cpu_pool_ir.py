"""The fork-join pool of Linux in LLVM IR: `POOL_IR`, a template of the machine's constants.

Protocol. A *region* is one phase: ``function(args, begin, end, part)`` over ``count`` items, cut
into ``parts`` contiguous ranges of equal size. A thread works its range off in *grains*, an eighth
of it at a time, and then helps with what is left of the others': so each thread keeps to its part
of the tensors, from one primitive to the next, and none waits for a thread that lost its cpu to
somebody else, but for the grain that it was in. Part 0 is the caller's, part ``i`` is posted to
worker ``i - 1`` in that worker's slot, 128 bytes that nobody else's data shares:

``ticket``  even: nothing to do; odd: a part is posted. The caller goes from even to odd. To odd +
            1 goes whoever takes the part, by compare-and-swap: the worker, or the caller when it
            is done with its own part and the worker has not begun. So a worker that is late, or
            whose cpu somebody else uses, delays nobody.
``asleep``  1 while the worker sleeps on its ticket (or is about to); the caller swaps it to 0 and
            wakes the worker.
``thread``  kernel thread id.

``pending`` counts the parts of the region that are not complete. The caller waits for 0 by spinning
for a while and then asleep (``waits`` = 1); the one who completes the last part wakes it.

``busy`` is 1 while a region runs. Who finds it taken (another caller, or a region within a region)
does all of the work itself and never waits. Everything named ``region.*``, and the slots' tickets
from even to odd, are written by the holder of ``busy`` only.

A woken worker may be put on the cpu of its caller, where the two alternate at 0.1-5 ms a region.
Therefore the caller first restricts it to the other cpus that the caller may use itself.
Should they meet later all the same, because the caller was moved, the caller takes over all parts
until the worker falls asleep, and the next wake-up separates them.

Both sleeps are free of lost wake-ups by the usual order: the sleeper announces itself and then
looks again (the futex does), the waker changes the word and then looks for an announcement; all of
these are sequentially consistent.
"""

from __future__ import annotations

POOL_IR = """
%slot = type { i32, i32, i32, [29 x i32] }   ; ticket, asleep, thread, up to 128 bytes

%range = type { i64, i64, [14 x i64] }       ; the next item to take, the end, up to 128 bytes

@slots = internal global [$workers x %slot] zeroinitializer, align 128
@busy = internal global i32 0, align 128
@workers = internal global i64 0
@spins = internal global i64 1
@region.function = internal global ptr null, align 128
@region.args = internal global ptr null
@region.parts = internal global i64 0
@region.grain = internal global i64 0        ; items that a thread takes at once
@ranges = internal global [$limit x %range] zeroinitializer, align 128
@pending = internal global i32 0, align 128
@waits = internal global i32 0

declare i64 @syscall(i64, ...)
declare i32 @sched_getcpu()
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)

define void @spin(i64 %count) {
entry:
  br label %again
again:
  %i = phi i64 [ 0, %entry ], [ %i.next, %again ]
  call void @$pause
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %count
  br i1 %more, label %again, label %done
done:
  ret void
}

define void @configure(i64 %spins) {
  store i64 %spins, ptr @spins
  ret void
}

define void @forget() {                      ; in the child of a fork: there are no workers
  store i64 0, ptr @workers
  store i32 0, ptr @pending
  store i32 0, ptr @waits
  store i32 0, ptr @busy
  ret void
}

define internal void @futex.wait(ptr %word, i32 %value) {   ; 128 = FUTEX_WAIT_PRIVATE
  call i64 (i64, ...) @syscall(i64 $futex, ptr %word, i64 128, i32 %value, ptr null)
  ret void
}

define internal void @futex.wake(ptr %word) {               ; 129 = FUTEX_WAKE_PRIVATE
  call i64 (i64, ...) @syscall(i64 $futex, ptr %word, i64 129, i64 1)
  ret void
}

define internal void @cut(i64 %count, i64 %parts) {         ; the ranges of all parts
entry:
  %share = udiv i64 %count, %parts
  %rest = urem i64 %count, %parts            ; so many parts, the first ones, have one more item
  br label %next
next:
  %part = phi i64 [ 0, %entry ], [ %part.next, %next ]
  %begin = phi i64 [ 0, %entry ], [ %end, %next ]
  %longer = icmp ult i64 %part, %rest
  %one = zext i1 %longer to i64
  %size = add i64 %share, %one
  %end = add i64 %begin, %size
  %at = getelementptr [$limit x %range], ptr @ranges, i64 0, i64 %part
  store i64 %begin, ptr %at
  %end.at = getelementptr %range, ptr %at, i32 0, i32 1
  store i64 %end, ptr %end.at
  %part.next = add i64 %part, 1
  %more = icmp ult i64 %part.next, %parts
  br i1 %more, label %next, label %done
done:
  %eighth = lshr i64 %share, 3
  %grain = call i64 @llvm.umax.i64(i64 %eighth, i64 1)
  store i64 %grain, ptr @region.grain
  store i64 %parts, ptr @region.parts
  ret void
}

; Everything that is left, beginning with the range of %part, as the thread of that number: one at a
; time has taken a part, so that no two have the same.
define internal void @do.part(i64 %part) {
entry:
  %function = load ptr, ptr @region.function
  %args = load ptr, ptr @region.args
  %parts = load i64, ptr @region.parts
  %grain = load i64, ptr @region.grain
  br label %range
range:
  %i = phi i64 [ 0, %entry ], [ %i.next, %exhausted ]
  %turn = add i64 %part, %i
  %number = urem i64 %turn, %parts
  %at = getelementptr [$limit x %range], ptr @ranges, i64 0, i64 %number
  %end.at = getelementptr %range, ptr %at, i32 0, i32 1
  %end = load i64, ptr %end.at
  br label %take
take:
  %left = load atomic i64, ptr %at monotonic, align 128
  %some = icmp slt i64 %left, %end           ; looked at first, so that counters stay near the end
  br i1 %some, label %claim, label %exhausted
claim:
  %begin = atomicrmw add ptr %at, i64 %grain monotonic
  %mine = icmp slt i64 %begin, %end
  br i1 %mine, label %work, label %exhausted
work:
  %reach = add i64 %begin, %grain
  %stop = call i64 @llvm.umin.i64(i64 %reach, i64 %end)
  call void %function(ptr %args, i64 %begin, i64 %stop, i64 %part)
  br label %take
exhausted:
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %parts
  br i1 %more, label %range, label %done
done:
  ret void
}

; Take part %part, posted in %slot, if nobody has: run it and return what was pending before it was
; complete; 0 if there was nothing to take.
define internal i32 @take.part(ptr %slot, i64 %part) {
  %ticket = load atomic i32, ptr %slot acquire, align 128
  %odd = trunc i32 %ticket to i1
  br i1 %odd, label %try, label %no
try:
  %taken = add i32 %ticket, 1
  %swap = cmpxchg ptr %slot, i32 %ticket, i32 %taken acq_rel monotonic
  %mine = extractvalue { i32, i1 } %swap, 1
  br i1 %mine, label %work, label %no
work:
  call void @do.part(i64 %part)
  %before = atomicrmw sub ptr @pending, i32 1 seq_cst
  ret i32 %before
no:
  ret i32 0
}

define internal ptr @worker(ptr %slot) {
entry:
  %asleep = getelementptr %slot, ptr %slot, i32 0, i32 1
  %thread.at = getelementptr %slot, ptr %slot, i32 0, i32 2
  %thread = call i64 (i64, ...) @syscall(i64 $gettid)
  %thread32 = trunc i64 %thread to i32
  store i32 %thread32, ptr %thread.at
  %here = ptrtoint ptr %slot to i64
  %first = ptrtoint ptr @slots to i64
  %distance = sub i64 %here, %first
  %number = lshr exact i64 %distance, 7
  %part = add i64 %number, 1
  %spins = load i64, ptr @spins
  br label %idle

idle:
  %i = phi i64 [ 0, %entry ], [ %i.next, %pause ], [ 0, %took ], [ 0, %wake.caller ], [ 0, %up ]
  %ticket = load atomic i32, ptr %slot monotonic, align 128
  %odd = trunc i32 %ticket to i1
  br i1 %odd, label %take, label %nothing
nothing:
  %tired = icmp sge i64 %i, %spins
  br i1 %tired, label %sleep, label %pause
pause:
  call void @$pause
  %i.next = add i64 %i, 1
  br label %idle

sleep:
  store atomic i32 1, ptr %asleep seq_cst, align 4
  call void @futex.wait(ptr %slot, i32 %ticket)
  br label %up
up:
  store atomic i32 0, ptr %asleep seq_cst, align 4
  br label %idle

take:
  %before = call i32 @take.part(ptr %slot, i64 %part)
  %last = icmp eq i32 %before, 1
  br i1 %last, label %took.last, label %took
took:
  br label %idle
took.last:
  %waiting = load atomic i32, ptr @waits seq_cst, align 4
  %must = icmp ne i32 %waiting, 0
  br i1 %must, label %wake, label %wake.caller
wake:
  call void @futex.wake(ptr @pending)
  br label %wake.caller
wake.caller:
  br label %idle
}

; Threads that block every signal but those of their own faults, so that handlers run elsewhere.
define internal void @hire(i64 %wanted) {
entry:
  %mask = alloca [16 x i64]
  %saved = alloca [16 x i64]
  %id = alloca i64
  call void @llvm.memset.p0.i64(ptr %mask, i8 -1, i64 128, i1 false)
  store i64 -1273, ptr %mask                 ; all but ILL 4, TRAP 5, ABRT 6, BUS 7, FPE 8, SEGV 11
  call i32 @pthread_sigmask(i32 2, ptr %mask, ptr %saved)   ; 2 = SIG_SETMASK
  %have = load i64, ptr @workers
  br label %next
next:
  %i = phi i64 [ %have, %entry ], [ %i.next, %hired ]
  %enough = icmp sge i64 %i, %wanted
  br i1 %enough, label %done, label %create
create:
  %slot = getelementptr [$workers x %slot], ptr @slots, i64 0, i64 %i
  call void @llvm.memset.p0.i64(ptr %slot, i8 0, i64 128, i1 false)
  %error = call i32 @pthread_create(ptr %id, ptr null, ptr @worker, ptr %slot)
  %failed = icmp ne i32 %error, 0
  br i1 %failed, label %done, label %hired
hired:
  %thread = load i64, ptr %id
  call i32 @pthread_detach(i64 %thread)
  %i.next = add i64 %i, 1
  br label %next
done:
  store i64 %i, ptr @workers
  call i32 @pthread_sigmask(i32 2, ptr %saved, ptr null)
  ret void
}
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

; Wake the worker of %slot anywhere but on this cpu.
define internal void @wake.worker(ptr %slot) {
entry:
  %cpus = alloca [128 x i64]                 ; a bit for each of 8192 cpus
  %bytes = call i64 (i64, ...) @syscall(i64 $sched_getaffinity, i64 0, i64 1024, ptr %cpus)
  %known = icmp sgt i64 %bytes, 0
  br i1 %known, label %exclude, label %wake
exclude:
  %cpu32 = call i32 @sched_getcpu()
  %cpu = zext i32 %cpu32 to i64
  %words = lshr i64 %bytes, 3
  %word = lshr i64 %cpu, 6
  %inside = icmp ult i64 %word, %words       ; not so where the call failed with -1
  br i1 %inside, label %clear, label %wake
clear:
  %word.at = getelementptr i64, ptr %cpus, i64 %word
  %old = load i64, ptr %word.at
  %shift = and i64 %cpu, 63
  %bit = shl i64 1, %shift
  %others = xor i64 %bit, -1
  %new = and i64 %old, %others
  store i64 %new, ptr %word.at
  br label %scan
scan:                                        ; is any cpu left?
  %i = phi i64 [ 0, %clear ], [ %i.next, %scan.next ]
  %at = getelementptr i64, ptr %cpus, i64 %i
  %bits = load i64, ptr %at
  %some = icmp ne i64 %bits, 0
  br i1 %some, label %move, label %scan.next
scan.next:
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %words
  br i1 %more, label %scan, label %wake
move:
  %thread.at = getelementptr %slot, ptr %slot, i32 0, i32 2
  %thread = load i32, ptr %thread.at
  call i64 (i64, ...) @syscall(i64 $sched_setaffinity, i32 %thread, i64 %bytes, ptr %cpus)
  br label %wake
wake:
  call void @futex.wake(ptr %slot)
  ret void
}

define internal void @post(i64 %workers) {
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i.next, %posted ]
  %slot = getelementptr [$workers x %slot], ptr @slots, i64 0, i64 %i
  %ticket = load atomic i32, ptr %slot monotonic, align 128
  %odd = add i32 %ticket, 1
  store atomic i32 %odd, ptr %slot seq_cst, align 128
  %asleep = getelementptr %slot, ptr %slot, i32 0, i32 1
  %sleeps = load atomic i32, ptr %asleep seq_cst, align 4
  %must = icmp ne i32 %sleeps, 0
  br i1 %must, label %wake, label %posted
wake:
  store atomic i32 0, ptr %asleep seq_cst, align 4
  call void @wake.worker(ptr %slot)
  br label %posted
posted:
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %workers
  br i1 %more, label %next, label %done
done:
  ret void
}

; The parts whose workers have not begun; the last worker was woken last.
define internal void @take.over(i64 %workers) {
entry:
  br label %next
next:
  %part = phi i64 [ %workers, %entry ], [ %i, %next ]
  %i = sub i64 %part, 1
  %slot = getelementptr [$workers x %slot], ptr @slots, i64 0, i64 %i
  call i32 @take.part(ptr %slot, i64 %part)
  %more = icmp sgt i64 %i, 0
  br i1 %more, label %next, label %done
done:
  ret void
}

define internal void @join() {
entry:
  %spins = load i64, ptr @spins
  br label %look
look:
  %i = phi i64 [ 0, %entry ], [ %i.next, %pause ]
  %left = load atomic i32, ptr @pending acquire, align 128
  %complete = icmp eq i32 %left, 0
  br i1 %complete, label %done, label %more
more:
  %tired = icmp sge i64 %i, %spins
  br i1 %tired, label %announce, label %pause
pause:
  call void @$pause
  %i.next = add i64 %i, 1
  br label %look
announce:
  store atomic i32 1, ptr @waits seq_cst, align 4
  br label %sleep
sleep:
  %still = load atomic i32, ptr @pending seq_cst, align 128
  %over = icmp eq i32 %still, 0
  br i1 %over, label %up, label %wait
wait:
  call void @futex.wait(ptr @pending, i32 %still)
  br label %sleep
up:
  store atomic i32 0, ptr @waits seq_cst, align 4
  br label %done
done:
  ret void
}

define internal void @parallel(ptr %function, ptr %args, i64 %count, i64 %threads) {
entry:
  %useful = call i64 @llvm.umin.i64(i64 %count, i64 %threads)
  %limit = add i64 $workers, 1
  %wanted = call i64 @llvm.umin.i64(i64 %useful, i64 %limit)
  %many = icmp sgt i64 %wanted, 1
  br i1 %many, label %lock, label %alone
lock:
  %swap = cmpxchg ptr @busy, i32 0, i32 1 acquire monotonic
  %free = extractvalue { i32, i1 } %swap, 1
  br i1 %free, label %staff, label %alone
staff:
  %helpers = sub i64 %wanted, 1
  %have = load i64, ptr @workers
  %enough = icmp sge i64 %have, %helpers
  br i1 %enough, label %start, label %hire
hire:
  call void @hire(i64 %helpers)
  %hired = load i64, ptr @workers
  %any = icmp sgt i64 %hired, 0
  br i1 %any, label %start, label %unlock

start:
  %staff.size = phi i64 [ %have, %staff ], [ %hired, %hire ]
  %workers = call i64 @llvm.umin.i64(i64 %staff.size, i64 %helpers)
  %parts = add i64 %workers, 1
  store ptr %function, ptr @region.function
  store ptr %args, ptr @region.args
  call void @cut(i64 %count, i64 %parts)
  %pending = trunc i64 %workers to i32
  store atomic i32 %pending, ptr @pending seq_cst, align 128
  call void @post(i64 %workers)
  call void @do.part(i64 0)
  call void @take.over(i64 %workers)
  call void @join()
  store atomic i32 0, ptr @busy release, align 128
  ret void

unlock:
  store atomic i32 0, ptr @busy release, align 128
  br label %alone
alone:
  call void @serial(ptr %function, ptr %args, i64 %count)
  ret void
}
"""
