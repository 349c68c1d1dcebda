// Names of the system calls in which a thread may be found, for people. One table for all machines:
// numbers come from the machine's own headers, and calls that not every machine has are guarded.
#include <sys/syscall.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "harness/process/threads.h"

namespace kv::drill {

namespace {

struct Call {
  long number;
  const char* name;
};

#define KVDRILL_CALL(name) \
  { SYS_##name, #name }
constexpr Call kCalls[] = {
    KVDRILL_CALL(read),
    KVDRILL_CALL(write),
    KVDRILL_CALL(readv),
    KVDRILL_CALL(writev),
    KVDRILL_CALL(pread64),
    KVDRILL_CALL(pwrite64),
    KVDRILL_CALL(close),
    KVDRILL_CALL(ioctl),
    KVDRILL_CALL(fcntl),
    KVDRILL_CALL(flock),
    KVDRILL_CALL(fsync),
    KVDRILL_CALL(fdatasync),
    KVDRILL_CALL(openat),
    KVDRILL_CALL(splice),
    KVDRILL_CALL(sendfile),
    KVDRILL_CALL(mmap),
    KVDRILL_CALL(munmap),
    KVDRILL_CALL(mprotect),
    KVDRILL_CALL(madvise),
    KVDRILL_CALL(fallocate),
    KVDRILL_CALL(unlinkat),
    KVDRILL_CALL(newfstatat),
    KVDRILL_CALL(getdents64),
    KVDRILL_CALL(accept),
    KVDRILL_CALL(accept4),
    KVDRILL_CALL(connect),
    KVDRILL_CALL(recvfrom),
    KVDRILL_CALL(recvmsg),
    KVDRILL_CALL(recvmmsg),
    KVDRILL_CALL(sendto),
    KVDRILL_CALL(sendmsg),
    KVDRILL_CALL(sendmmsg),
    KVDRILL_CALL(shutdown),
    KVDRILL_CALL(ppoll),
    KVDRILL_CALL(pselect6),
    KVDRILL_CALL(epoll_pwait),
    KVDRILL_CALL(futex),
    KVDRILL_CALL(nanosleep),
    KVDRILL_CALL(clock_nanosleep),
    KVDRILL_CALL(restart_syscall),
    KVDRILL_CALL(sched_yield),
    KVDRILL_CALL(rt_sigtimedwait),
    KVDRILL_CALL(rt_sigsuspend),
    KVDRILL_CALL(rt_sigreturn),
    KVDRILL_CALL(rt_sigprocmask),
    KVDRILL_CALL(kill),
    KVDRILL_CALL(tgkill),
    KVDRILL_CALL(wait4),
    KVDRILL_CALL(waitid),
    KVDRILL_CALL(clone),
    KVDRILL_CALL(execve),
    KVDRILL_CALL(exit),
    KVDRILL_CALL(exit_group),
    KVDRILL_CALL(ptrace),
    KVDRILL_CALL(semop),
    KVDRILL_CALL(semtimedop),
    KVDRILL_CALL(msgrcv),
    KVDRILL_CALL(msgsnd),
    KVDRILL_CALL(mq_timedsend),
    KVDRILL_CALL(mq_timedreceive),
    KVDRILL_CALL(io_getevents),
    KVDRILL_CALL(membarrier),
#ifdef SYS_open
    KVDRILL_CALL(open),
#endif
#ifdef SYS_poll
    KVDRILL_CALL(poll),
#endif
#ifdef SYS_select
    KVDRILL_CALL(select),
#endif
#ifdef SYS_pause
    KVDRILL_CALL(pause),
#endif
#ifdef SYS_fork
    KVDRILL_CALL(fork),
#endif
#ifdef SYS_vfork
    KVDRILL_CALL(vfork),
#endif
#ifdef SYS_clone3
    KVDRILL_CALL(clone3),
#endif
#ifdef SYS_epoll_wait
    KVDRILL_CALL(epoll_wait),
#endif
#ifdef SYS_epoll_pwait2
    KVDRILL_CALL(epoll_pwait2),
#endif
#ifdef SYS_futex_waitv
    KVDRILL_CALL(futex_waitv),
#endif
#ifdef SYS_futex_wait
    KVDRILL_CALL(futex_wait),
#endif
#ifdef SYS_io_pgetevents
    KVDRILL_CALL(io_pgetevents),
#endif
#ifdef SYS_io_uring_enter
    KVDRILL_CALL(io_uring_enter),
#endif
};
#undef KVDRILL_CALL

}  // namespace

std::string syscall_name(long number) {
  const auto* call = std::find_if(std::begin(kCalls), std::end(kCalls),
                                  [&](const Call& one) { return one.number == number; });
  return call != std::end(kCalls) ? call->name : "syscall " + std::to_string(number);
}

}  // namespace kv::drill
