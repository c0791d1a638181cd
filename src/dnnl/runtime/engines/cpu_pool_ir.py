"""The fork-join pool of Linux in LLVM IR: `POOL_IR`, a template of the machine's constants.

Protocol. A *region* is one phase: ``function(args, begin, end, part)`` over ``count`` items, cut
into ``parts`` contiguous ranges of equal size. A thread works its range off in *grains*, an eighth
of it at a time, and then helps with what is left of the others': so each thread keeps to its part
of the tensors, from one primitive to the next, and none waits for a thread that lost its cpu to
somebody else, but for the grain that it was in.

Several regions run at the same time, each with workers of its own. A region is on the stack of its
caller, who has part 0, and is valid until all of its parts are complete. `parallel` decides how
many workers it gets:

- ``@callers`` counts threads inside of `parallel`, ``requests`` those that Python has announced, as
  a request to a session is between two regions most of the time. The larger number is that of the
  threads that will need a cpu.
- The cpus are divided by that number, rounded up, the caller's own included.
- ``@claimed`` counts workers that regions have. Together with the callers they are no more than
  there are cpus, or than the execution has threads, if these are more.

Nobody waits for a worker: who gets none does all of the work itself. A worker of another region is
never asked.

A slot, which a caller has claimed by ``owned`` until its region ends, has in 256 bytes that nobody
else's data shares:

``ticket``  even: nothing to do; odd: a part is posted. The caller goes from even to odd. To odd +
            1 goes whoever takes the part, by compare-and-swap: the worker, or the caller when it
            is done with its own part and the worker has not begun. So a worker that is late, or
            whose cpu somebody else uses, delays nobody.
``asleep``  1 while the worker sleeps on its ticket (or is about to); the caller swaps it to 0 and
            wakes the worker.
``thread``  kernel thread id.
``part``, ``region``  what is posted; written before the ticket.
``owned``   apart from the rest, which the worker reads all the time.

``pending`` counts the parts of a region that are not complete. The caller waits for 0 by spinning
for a while and then asleep, which it announces in the same word: the one who completes the last
part wakes it, and reads nothing of the region afterwards.

A woken worker may be put on the cpu of its caller, where the two alternate at 0.1-5 ms a region.
Therefore the caller first restricts it to the other cpus that the caller may use itself.
Should they meet later all the same, because the caller was moved, the caller takes over all parts
until the worker falls asleep, and the next wake-up separates them.

The threads of an OpenMP runtime, a *team*, take the place of workers where the process has one
(`adopt`), the only caller is the main thread, and the execution has as many threads as the team:
other workers would compete with its threads, which spin for milliseconds behind each region of
their own. Any other thread would have the runtime make a team for it, which stays. A member does
the part of its number, if there is one; parts of members that the runtime does not provide are done
by the others. The caller waits for all members, also for one whose cpu somebody else uses.

Both sleeps are free of lost wake-ups by the usual order: the sleeper announces itself and then
looks again (the futex does), the waker changes the word and then looks for an announcement; all of
these are sequentially consistent.
"""

from __future__ import annotations

from dnnl.runtime.engines.cpu_pool_workers_ir import WORKERS_IR

_REGIONS_IR = """
; ticket, asleep, thread, part, region, up to 128 bytes; owned, up to 256 bytes
%slot = type { i32, i32, i32, i32, ptr, [26 x i32], i32, [31 x i32] }

%range = type { i64, i64, ptr, [13 x i64] }  ; the next item, the end, the slot, up to 128 bytes

; pending, up to 128 bytes; function, args, parts, items that a thread takes at once, ranges
%region = type { i32, [31 x i32], ptr, ptr, i64, i64, ptr, [11 x i64] }

%shared = type { i64, i64 }                  ; Python writes it: requests, cpus

@slots = internal global [$workers x %slot] zeroinitializer, align 256
@callers = internal global i64 0, align 128
@claimed = internal global i64 0, align 128
@workers = internal global i64 0, align 128
@hiring = internal global i32 0
@spins = internal global i64 1
@shared = internal global ptr null
@team = internal global ptr null             ; GOMP_parallel
@team.size = internal global ptr null        ; omp_get_max_threads
@team.number = internal global ptr null      ; omp_get_thread_num
@main = internal global i64 0                ; the main thread

declare i64 @pthread_self()
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)

define void @configure(i64 %spins, ptr %shared) {
  store i64 %spins, ptr @spins
  store ptr %shared, ptr @shared
  ret void
}

define void @adopt(ptr %team, ptr %size, ptr %number, i64 %main) {
  store i64 %main, ptr @main
  store ptr %size, ptr @team.size
  store ptr %number, ptr @team.number
  store atomic ptr %team, ptr @team release, align 8
  ret void
}

define void @forget() {                      ; in the child of a fork: there are no workers
  store atomic ptr null, ptr @team release, align 8
  store i64 0, ptr @workers
  store i64 0, ptr @claimed
  store i64 0, ptr @callers
  store i32 0, ptr @hiring
  ret void
}

; The ranges of all parts of a region.
define internal void @cut(ptr %region, i64 %count, i64 %parts) {
entry:
  %ranges.at = getelementptr %region, ptr %region, i32 0, i32 6
  %ranges = load ptr, ptr %ranges.at
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
  %at = getelementptr %range, ptr %ranges, i64 %part
  store i64 %begin, ptr %at
  %end.at = getelementptr %range, ptr %at, i32 0, i32 1
  store i64 %end, ptr %end.at
  %part.next = add i64 %part, 1
  %more = icmp ult i64 %part.next, %parts
  br i1 %more, label %next, label %done
done:
  %eighth = lshr i64 %share, 3
  %grain = call i64 @llvm.umax.i64(i64 %eighth, i64 1)
  %parts.at = getelementptr %region, ptr %region, i32 0, i32 4
  store i64 %parts, ptr %parts.at
  %grain.at = getelementptr %region, ptr %region, i32 0, i32 5
  store i64 %grain, ptr %grain.at
  ret void
}

; Everything that is left, beginning with the range of %part, as the thread of that number: one at a
; time has taken a part, so that no two have the same.
define internal void @do.part(ptr %region, i64 %part) {
entry:
  %function.at = getelementptr %region, ptr %region, i32 0, i32 2
  %function = load ptr, ptr %function.at
  %args.at = getelementptr %region, ptr %region, i32 0, i32 3
  %args = load ptr, ptr %args.at
  %parts.at = getelementptr %region, ptr %region, i32 0, i32 4
  %parts = load i64, ptr %parts.at
  %grain.at = getelementptr %region, ptr %region, i32 0, i32 5
  %grain = load i64, ptr %grain.at
  %ranges.at = getelementptr %region, ptr %region, i32 0, i32 6
  %ranges = load ptr, ptr %ranges.at
  br label %range
range:
  %i = phi i64 [ 0, %entry ], [ %i.next, %exhausted ]
  %turn = add i64 %part, %i
  %number = urem i64 %turn, %parts
  %at = getelementptr %range, ptr %ranges, i64 %number
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

; Take the part that is posted in %slot, if nobody has, and run it. The caller of the region is
; woken if it sleeps and this part was the last. (1073741824 = 1 << 30: it sleeps.)
define internal void @take.part(ptr %slot) {
  %ticket = load atomic i32, ptr %slot acquire, align 128
  %odd = trunc i32 %ticket to i1
  br i1 %odd, label %try, label %no
try:
  %taken = add i32 %ticket, 1
  %swap = cmpxchg ptr %slot, i32 %ticket, i32 %taken acq_rel monotonic
  %mine = extractvalue { i32, i1 } %swap, 1
  br i1 %mine, label %work, label %no
work:
  %part.at = getelementptr %slot, ptr %slot, i32 0, i32 3
  %part32 = load i32, ptr %part.at
  %part = zext i32 %part32 to i64
  %region.at = getelementptr %slot, ptr %slot, i32 0, i32 4
  %region = load ptr, ptr %region.at
  call void @do.part(ptr %region, i64 %part)
  %before = atomicrmw sub ptr %region, i32 1 seq_cst
  %last = icmp eq i32 %before, 1073741825
  br i1 %last, label %wake, label %no
wake:
  call void @futex.wake(ptr %region)
  br label %no
no:
  ret void
}

; The slots of up to %wanted workers that no region has, for the parts from 1 on; %most is how many
; workers there may be in all. Returns how many were found.
define internal i64 @staff(ptr %ranges, i64 %wanted, i64 %most) {
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i.next, %taken ], [ %i.next, %mine ]
  %found = phi i64 [ 0, %entry ], [ %found, %taken ], [ %more, %mine ]
  %enough = icmp sge i64 %found, %wanted
  br i1 %enough, label %done, label %look
look:
  %have = load atomic i64, ptr @workers acquire, align 8
  %i.next = add i64 %i, 1
  %there = icmp slt i64 %i, %have
  br i1 %there, label %claim, label %hire
claim:
  %slot = getelementptr [$workers x %slot], ptr @slots, i64 0, i64 %i
  %owned = getelementptr %slot, ptr %slot, i32 0, i32 6
  %swap = cmpxchg ptr %owned, i32 0, i32 1 acquire monotonic
  %free = extractvalue { i32, i1 } %swap, 1
  br i1 %free, label %mine, label %taken
taken:
  br label %next
hire:
  %new = call ptr @hire(i64 %most)
  %nobody = icmp eq ptr %new, null
  br i1 %nobody, label %done, label %mine
mine:
  %its = phi ptr [ %slot, %claim ], [ %new, %hire ]
  %more = add i64 %found, 1
  %at = getelementptr %range, ptr %ranges, i64 %more, i32 2
  store ptr %its, ptr %at
  br label %next
done:
  ret i64 %found
}

define internal void @post(ptr %region, ptr %ranges, i64 %workers) {
entry:
  br label %next
next:
  %i = phi i64 [ 1, %entry ], [ %i.next, %posted ]
  %slot.at = getelementptr %range, ptr %ranges, i64 %i, i32 2
  %slot = load ptr, ptr %slot.at
  %part.at = getelementptr %slot, ptr %slot, i32 0, i32 3
  %part = trunc i64 %i to i32
  store i32 %part, ptr %part.at
  %region.at = getelementptr %slot, ptr %slot, i32 0, i32 4
  store ptr %region, ptr %region.at
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
  %more = icmp sle i64 %i.next, %workers
  br i1 %more, label %next, label %done
done:
  ret void
}

; The parts whose workers have not begun; the last worker was woken last.
define internal void @take.over(ptr %ranges, i64 %workers) {
entry:
  br label %next
next:
  %part = phi i64 [ %workers, %entry ], [ %i, %next ]
  %i = sub i64 %part, 1
  %slot.at = getelementptr %range, ptr %ranges, i64 %part, i32 2
  %slot = load ptr, ptr %slot.at
  call void @take.part(ptr %slot)
  %more = icmp sgt i64 %i, 0
  br i1 %more, label %next, label %done
done:
  ret void
}

define internal void @join(ptr %pending) {
entry:
  %spins = load i64, ptr @spins
  br label %look
look:
  %i = phi i64 [ 0, %entry ], [ %i.next, %pause ]
  %left = load atomic i32, ptr %pending acquire, align 128
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
  %before = atomicrmw or ptr %pending, i32 1073741824 seq_cst
  br label %sleep
sleep:
  %still = load atomic i32, ptr %pending seq_cst, align 128
  %over = icmp eq i32 %still, 1073741824
  br i1 %over, label %done, label %wait
wait:
  call void @futex.wait(ptr %pending, i32 %still)
  br label %sleep
done:
  ret void
}

; The workers are free for other regions.
define internal void @release(ptr %ranges, i64 %workers) {
entry:
  br label %next
next:
  %i = phi i64 [ 1, %entry ], [ %i.next, %next ]
  %slot.at = getelementptr %range, ptr %ranges, i64 %i, i32 2
  %slot = load ptr, ptr %slot.at
  %owned = getelementptr %slot, ptr %slot, i32 0, i32 6
  store atomic i32 0, ptr %owned release, align 128
  %i.next = add i64 %i, 1
  %more = icmp sle i64 %i.next, %workers
  br i1 %more, label %next, label %done
done:
  ret void
}

define internal void @begin(ptr %region, ptr %function, ptr %args, ptr %ranges) {
  %function.at = getelementptr %region, ptr %region, i32 0, i32 2
  store ptr %function, ptr %function.at
  %args.at = getelementptr %region, ptr %region, i32 0, i32 3
  store ptr %args, ptr %args.at
  %ranges.at = getelementptr %region, ptr %region, i32 0, i32 6
  store ptr %ranges, ptr %ranges.at
  ret void
}

; A region with up to %wanted workers, of %most that there may be in all.
define internal void @region(ptr %function, ptr %args, i64 %count, i64 %wanted, i64 %most) {
entry:
  %region = alloca %region, align 128
  %places = add i64 %wanted, 1
  %ranges = alloca %range, i64 %places, align 128
  %workers = call i64 @staff(ptr %ranges, i64 %wanted, i64 %most)
  %any = icmp sgt i64 %workers, 0
  br i1 %any, label %start, label %alone
start:
  call void @begin(ptr %region, ptr %function, ptr %args, ptr %ranges)
  %parts = add i64 %workers, 1
  call void @cut(ptr %region, i64 %count, i64 %parts)
  %pending = trunc i64 %workers to i32
  store atomic i32 %pending, ptr %region seq_cst, align 128
  call void @post(ptr %region, ptr %ranges, i64 %workers)
  call void @do.part(ptr %region, i64 0)
  call void @take.over(ptr %ranges, i64 %workers)
  call void @join(ptr %region)
  call void @release(ptr %ranges, i64 %workers)
  ret void
alone:
  call void @serial(ptr %function, ptr %args, i64 %count)
  ret void
}

define internal void @member(ptr %region) {
  %number.of = load ptr, ptr @team.number
  %number = call i32 %number.of()
  %part = zext i32 %number to i64
  %parts.at = getelementptr %region, ptr %region, i32 0, i32 4
  %parts = load i64, ptr %parts.at
  %has = icmp ult i64 %part, %parts
  br i1 %has, label %work, label %done
work:
  call void @do.part(ptr %region, i64 %part)
  br label %done
done:
  ret void
}

; A region of a team, whose size is always the same: threads that it had not would end. There is
; scratch for as many threads as there are parts.
define internal void @together(ptr %team, ptr %function, ptr %args, i64 %count, i64 %parts,
                               i64 %threads) {
  %region = alloca %region, align 128
  %ranges = alloca %range, i64 %parts, align 128
  call void @begin(ptr %region, ptr %function, ptr %args, ptr %ranges)
  call void @cut(ptr %region, i64 %count, i64 %parts)
  %size = trunc i64 %threads to i32
  call void %team(ptr @member, ptr %region, i32 %size, i32 0)
  ret void
}

define internal void @parallel(ptr %function, ptr %args, i64 %count, i64 %threads) {
entry:
  %before = atomicrmw add ptr @callers, i64 1 monotonic
  %useful = call i64 @llvm.umin.i64(i64 %count, i64 %threads)
  %limit = add i64 $workers, 1
  %possible = call i64 @llvm.umin.i64(i64 %useful, i64 %limit)
  %many = icmp sgt i64 %possible, 1
  br i1 %many, label %share, label %alone
share:                                       ; among callers and requests
  %shared = load ptr, ptr @shared
  %requests = load atomic i64, ptr %shared monotonic, align 8
  %cpus.at = getelementptr %shared, ptr %shared, i32 0, i32 1
  %cpus.known = load atomic i64, ptr %cpus.at monotonic, align 8
  %cpus = call i64 @llvm.smax.i64(i64 %cpus.known, i64 %threads)
  %inside = add i64 %before, 1
  %callers = call i64 @llvm.smax.i64(i64 %inside, i64 %requests)
  %single = icmp eq i64 %callers, 1
  br i1 %single, label %only, label %divide
only:
  %team = load atomic ptr, ptr @team acquire, align 8
  %none = icmp eq ptr %team, null
  br i1 %none, label %claim, label %ask
ask:
  %self = call i64 @pthread_self()
  %main = load i64, ptr @main
  %is.main = icmp eq i64 %self, %main
  br i1 %is.main, label %compare, label %claim
compare:
  %size.of = load ptr, ptr @team.size
  %size32 = call i32 %size.of()
  %size = zext i32 %size32 to i64
  %same = icmp eq i64 %size, %threads
  br i1 %same, label %team.up, label %claim
team.up:
  call void @together(ptr %team, ptr %function, ptr %args, i64 %count, i64 %possible,
                      i64 %threads)
  br label %done
divide:
  %more = add i64 %cpus, %callers
  %up = sub i64 %more, 1
  %each = sdiv i64 %up, %callers
  %mine = call i64 @llvm.smin.i64(i64 %each, i64 %possible)
  %several = icmp sgt i64 %mine, 1
  br i1 %several, label %claim, label %alone
claim:
  %parts = phi i64 [ %possible, %only ], [ %possible, %ask ], [ %possible, %compare ],
                 [ %mine, %divide ]
  %wanted = sub i64 %parts, 1
  %claimed = atomicrmw add ptr @claimed, i64 %wanted monotonic
  %others = sub i64 %cpus, %callers
  %free = sub i64 %others, %claimed
  %some = call i64 @llvm.smax.i64(i64 %free, i64 0)
  %workers = call i64 @llvm.smin.i64(i64 %some, i64 %wanted)
  %less = icmp slt i64 %workers, %wanted
  br i1 %less, label %unclaim, label %run
unclaim:
  %excess = sub i64 %wanted, %workers
  atomicrmw sub ptr @claimed, i64 %excess monotonic
  %any = icmp sgt i64 %workers, 0
  br i1 %any, label %run, label %alone
run:
  %total = sub i64 %cpus, 1
  call void @region(ptr %function, ptr %args, i64 %count, i64 %workers, i64 %total)
  atomicrmw sub ptr @claimed, i64 %workers monotonic
  br label %done
alone:
  call void @serial(ptr %function, ptr %args, i64 %count)
  br label %done
done:
  atomicrmw sub ptr @callers, i64 1 monotonic
  ret void
}
"""

POOL_IR = _REGIONS_IR + WORKERS_IR
