"""What a worker of the pool does, and how it is made and woken, in LLVM IR: see `cpu_pool_ir`."""

from __future__ import annotations

WORKERS_IR = """
declare i64 @syscall(i64, ...)
declare i32 @sched_getcpu()
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_sigmask(i32, ptr, ptr)

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

define internal void @futex.wait(ptr %word, i32 %value) {   ; 128 = FUTEX_WAIT_PRIVATE
  call i64 (i64, ...) @syscall(i64 $futex, ptr %word, i64 128, i32 %value, ptr null)
  ret void
}

define internal void @futex.wake(ptr %word) {               ; 129 = FUTEX_WAKE_PRIVATE
  call i64 (i64, ...) @syscall(i64 $futex, ptr %word, i64 129, i64 1)
  ret void
}

define internal ptr @worker(ptr %slot) {
entry:
  %asleep = getelementptr %slot, ptr %slot, i32 0, i32 1
  %thread.at = getelementptr %slot, ptr %slot, i32 0, i32 2
  %thread = call i64 (i64, ...) @syscall(i64 $gettid)
  %thread32 = trunc i64 %thread to i32
  store i32 %thread32, ptr %thread.at
  %spins = load i64, ptr @spins
  br label %idle

idle:
  %i = phi i64 [ 0, %entry ], [ %i.next, %pause ], [ 0, %take ], [ 0, %up ]
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
  call void @take.part(ptr %slot)
  br label %idle
}

; One more worker, claimed, where there are fewer than %most: its slot, or null. It blocks every
; signal but those of its own faults, so that handlers run elsewhere. Who finds somebody else hiring
; does without.
define internal ptr @hire(i64 %most) {
entry:
  %mask = alloca [16 x i64]
  %saved = alloca [16 x i64]
  %id = alloca i64
  %swap = cmpxchg ptr @hiring, i32 0, i32 1 acquire monotonic
  %free = extractvalue { i32, i1 } %swap, 1
  br i1 %free, label %look, label %nobody
look:
  %have = load atomic i64, ptr @workers monotonic, align 8
  %limit = call i64 @llvm.umin.i64(i64 %most, i64 $workers)
  %enough = icmp uge i64 %have, %limit
  br i1 %enough, label %unlock, label %create
create:
  call void @llvm.memset.p0.i64(ptr %mask, i8 -1, i64 128, i1 false)
  store i64 -1273, ptr %mask                 ; all but ILL 4, TRAP 5, ABRT 6, BUS 7, FPE 8, SEGV 11
  call i32 @pthread_sigmask(i32 2, ptr %mask, ptr %saved)   ; 2 = SIG_SETMASK
  %slot = getelementptr [$workers x %slot], ptr @slots, i64 0, i64 %have
  call void @llvm.memset.p0.i64(ptr %slot, i8 0, i64 256, i1 false)
  %owned = getelementptr %slot, ptr %slot, i32 0, i32 6
  store i32 1, ptr %owned
  %error = call i32 @pthread_create(ptr %id, ptr null, ptr @worker, ptr %slot)
  call i32 @pthread_sigmask(i32 2, ptr %saved, ptr null)
  %failed = icmp ne i32 %error, 0
  br i1 %failed, label %unlock, label %hired
hired:
  %thread = load i64, ptr %id
  call i32 @pthread_detach(i64 %thread)
  %more = add i64 %have, 1
  store atomic i64 %more, ptr @workers release, align 8
  store atomic i32 0, ptr @hiring release, align 4
  ret ptr %slot
unlock:
  store atomic i32 0, ptr @hiring release, align 4
  br label %nobody
nobody:
  ret ptr null
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
"""
