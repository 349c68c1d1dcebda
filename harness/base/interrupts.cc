#include "harness/base/interrupts.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace kv::drill {

Lifeline::Lifeline() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) {
    throw std::system_error(errno, std::generic_category(), "cannot make a pipe");
  }
  read_ = fds[0];
  write_ = fds[1];
}

Lifeline::~Lifeline() {
  ::close(read_);
  cut();
}

void Lifeline::cut() {
  if (write_ >= 0) ::close(write_);
  write_ = -1;
}

void take_signals() {
  ::signal(SIGCHLD, SIG_DFL);
  ::signal(SIGXFSZ, SIG_IGN);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

Interrupts::Interrupts() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction now {};
    // As a blocked one it would come all the same.
    if (::sigaction(signal, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) {
      sigaddset(&set, signal);
    }
  }
  ::sigprocmask(SIG_BLOCK, &set, &before_);
  fd_ = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd_ >= 0) return;
  const int error = errno;
  ::sigprocmask(SIG_SETMASK, &before_, nullptr);
  throw std::system_error(error, std::generic_category(), "cannot make a signalfd");
}

Interrupts::~Interrupts() {
  ::close(fd_);
  ::sigprocmask(SIG_SETMASK, &before_, nullptr);
}

void Interrupts::take() const {
  signalfd_siginfo taken;
  while (::read(fd_, &taken, sizeof taken) > 0) {
  }
}

}  // namespace kv::drill
