// How a program with children of its own takes its leave: signals as a descriptor while it works,
// and a pipe by whose end the children learn that it is gone.
//
// Threads: the calling thread only; it must have no other. Ownership: each closes what it made.
#ifndef HARNESS_BASE_INTERRUPTS_H_
#define HARNESS_BASE_INTERRUPTS_H_

#include <csignal>

namespace kv::drill {

// A pipe that is never written: children hold the end for reading, and its end of file tells them
// that their parent is gone, however it went.
class Lifeline {
 public:
  Lifeline();  // throws std::system_error
  ~Lifeline();
  Lifeline(const Lifeline&) = delete;
  Lifeline& operator=(const Lifeline&) = delete;
  int read_end() const { return read_; }
  void cut();  // also for a child: it must not hold the other end itself

 private:
  int read_ = -1, write_ = -1;
};

// For the start of a program: what it cannot work with as its parent left it. SIGCHLD that is
// ignored would take the ends of its children from it, and a signal that is blocked would never
// come; a file that may not grow shall be told by a write that fails, not by SIGXFSZ. What else is
// ignored stays so: a parent that says so (nohup) means it.
void take_signals();

// SIGINT, SIGTERM and SIGHUP as a descriptor while this lives, those that are not ignored; as they
// were afterwards.
class Interrupts {
 public:
  Interrupts();  // throws std::system_error
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;
  int fd() const { return fd_; }
  // Takes what has come off the descriptor: what stays there is delivered when this object ends.
  void take() const;

 private:
  int fd_ = -1;
  sigset_t before_;
};

}  // namespace kv::drill

#endif  // HARNESS_BASE_INTERRUPTS_H_
