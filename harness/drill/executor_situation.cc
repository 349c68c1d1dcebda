#include "harness/drill/executor_situation.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

namespace kv::drill {
namespace {

constexpr int kLongestLookMs = 100;
// The board gives this label to threads that were there before the engine's own (a sanitizer's).
constexpr std::string_view kForeignThread = "runtime";
// What the names of the real driver's threads begin with ("cuda-EvtHandlr"): seen on 580.159.
constexpr std::string_view kDriverThread = "cuda";

// A shutdown that is done obliges its process to hold nothing any more, until a later command
// brings something up again. The engine contract says which those are: CONTRACT.md, "Commands".
void follow_shutdown(const Event& event, Instance& instance) {
  if (event.kind == EventKind::kReturn) {
    if (event.name == kShutdownCommand && event.key == 0 && event.text == "done") {
      instance.shut_down = true;
    }
    return;
  }
  for (const std::string_view word : {"init", "start", "create"}) {
    if (event.name == word || event.name.starts_with(std::string(word) + "_")) {
      instance.shut_down = false;
    }
  }
}

// Adds the children of these processes, and theirs: programs that an engine runs, which never meet
// the board and yet can make it go on. Where the kernel keeps no such lists, all descendants.
void add_descendants(std::vector<Watched>& all) {
  const auto add = [&all](pid_t pid) {
    const bool known =
        std::any_of(all.begin(), all.end(), [pid](const Watched& one) { return one.pid == pid; });
    if (!known) all.push_back({pid, {}});
  };
  static const bool listed = ::access("/proc/thread-self/children", R_OK) == 0;
  if (!listed) {
    for (const pid_t pid : descendants()) add(pid);
    return;
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string tasks = "/proc/" + std::to_string(all[i].pid) + "/task/";
    std::error_code error;
    std::filesystem::directory_iterator task(tasks, error);
    for (const std::filesystem::directory_iterator end; !error && task != end;
         task.increment(error)) {
      std::ifstream list(task->path() / "children");
      for (pid_t pid = 0; list >> pid;) add(pid);
    }
  }
}

// Adds the driver's own threads to those that do not count. An engine's thread is one that the
// board knows, whatever its name.
void ignore_driver_threads(Watched& process, const std::vector<pid_t>& known) {
  for (const ThreadState& thread : look({process})) {
    if (thread.comm.starts_with(kDriverThread) && thread.tid != thread.pid &&
        std::find(known.begin(), known.end(), thread.tid) == known.end()) {
      process.ignore.push_back(thread.tid);
    }
  }
}

}  // namespace

std::int64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

Held held_by(pid_t pid) {
  return {open_descriptors(pid), living_threads(pid)};
}

bool owes_everything(const Instance& instance) {
  if (!instance.end) return false;
  return instance.shut_down || (instance.gentle && !instance.end->by_signal);
}

Situation::Situation(Board& board, int lifeline, int signals, bool real_driver)
    : board_(board), lifeline_(lifeline), signals_(signals), real_driver_(real_driver) {}

Instance& Situation::add(Instance instance) {
  instances_.push_back(std::move(instance));
  return instances_.back();
}

Instance* Situation::find(std::string_view process) {
  const auto found = std::find_if(instances_.rbegin(), instances_.rend(),
                                  [process](const Instance& one) { return one.name() == process; });
  return found == instances_.rend() ? nullptr : &*found;
}

int Situation::starts_of(std::string_view process) const {
  return static_cast<int>(
      std::count_if(instances_.begin(), instances_.end(),
                    [process](const Instance& one) { return one.name() == process; }));
}

std::uint32_t Situation::add_call(ScriptedCall call) {
  calls_.push_back(std::move(call));
  return static_cast<std::uint32_t>(calls_.size());
}

ScriptedCall* Situation::find_call(std::string_view name) {
  const auto found = std::find_if(calls_.rbegin(), calls_.rend(),
                                  [name](const ScriptedCall& one) { return one.name == name; });
  return found == calls_.rend() ? nullptr : &*found;
}

int Situation::send_error(const std::string& client) const {
  const auto found = send_errors_.find(client);
  return found == send_errors_.end() ? 0 : found->second;
}

void Situation::take_in() {
  // Ends first: whatever an ended process has written is then read below, to its last word.
  for (Instance& instance : instances_) {
    if (instance.end) continue;
    instance.end = instance.child.reap();
    if (!instance.end) continue;
    instance.out.settle();
    instance.err.settle();
    board_.process_ended(instance.child.pid());
    instance.ended_at = board_.next_sequence();
    board_.record("ended", instance.child.pid(), instance.end->value,
                  instance.name() + ": " + to_string(*instance.end));
  }
  take_events();
}

void Situation::take_events() {
  const auto events = board_.events(next_);
  if (events.empty()) return;
  next_ += events.size();
  // Whoever registers or renames itself does so by an event, so the names are read after it.
  const bool names = std::any_of(events.begin(), events.end(), [](const Event& event) {
    return event.kind == EventKind::kRegistered || event.kind == EventKind::kThread;
  });
  if (names) moments_.set_processes(board_.processes());
  for (const Event& event : events) {
    moments_.add(event);
    if (!event.torn) take_event(event);
  }
}

Instance* Situation::by_index(std::uint16_t index) {
  const auto found = std::find_if(instances_.begin(), instances_.end(),
                                  [index](const Instance& one) { return one.index == index; });
  return found == instances_.end() ? nullptr : &*found;
}

void Situation::take_event(const Event& event) {
  switch (event.kind) {
    case EventKind::kRegistered:
      for (Instance& instance : instances_) {
        if (instance.child.pid() == event.value) instance.index = event.process;
      }
      break;
    case EventKind::kAnnounced:
      if (Instance* instance = by_index(event.process)) {
        instance->facts[std::string(event.name)] = event.text;
      }
      break;
    case EventKind::kReady:
      if (Instance* instance = by_index(event.process)) {
        // It stands there and waits. What it gets later is not in this look, however soon.
        if (!instance->ready && instance->to_be_looked_at) {
          instance->at_ready = held_by(instance->child.pid());
        }
        instance->ready = true;
      }
      board_.admit(event.process);
      break;
    case EventKind::kClock:
      if (Instance* instance = by_index(event.process)) {
        instance->clock = std::max(instance->clock, event.value);
      }
      break;
    case EventKind::kCall:
    case EventKind::kReturn: {
      if (Instance* instance = by_index(event.process)) follow_shutdown(event, *instance);
      const auto id = static_cast<std::uint64_t>(event.value);
      if (id == 0 || id > calls_.size()) break;
      ScriptedCall& call = calls_[id - 1];
      call.begun = true;
      if (event.kind == EventKind::kReturn) {
        call.returned = true;
        call.failed = event.key == 1;
        call.answer = event.text;
      }
      break;
    }
    default:
      break;
  }
}

std::vector<Watched> Situation::watched() const {
  std::vector<Watched> all;
  for (const Instance& instance : instances_) {
    if (instance.lives()) all.push_back({instance.child.pid(), {}});
  }
  add_descendants(all);
  for (Watched& one : all) {
    std::vector<pid_t> known;
    for (const ProcessInfo& process : moments_.processes()) {
      if (one.pid != process.pid) continue;
      for (const ThreadInfo& thread : process.threads) {
        (thread.label == kForeignThread ? one.ignore : known).push_back(thread.tid);
      }
    }
    if (real_driver_) ignore_driver_threads(one, known);
  }
  return all;
}

void Situation::read_signals() {
  signalfd_siginfo info{};
  while (::read(signals_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    if (info.ssi_signo != SIGCHLD) interrupted_ = true;
  }
}

std::vector<pollfd> Situation::interruptions() const {
  std::vector<pollfd> fds = {{signals_, POLLIN, 0}, {lifeline_, POLLIN, 0}};
  for (const pollfd& output : outputs()) fds.push_back(output);
  return fds;
}

// Also of those that have ended: their children may write there.
std::vector<pollfd> Situation::outputs() const {
  std::vector<pollfd> fds;
  for (const Instance& instance : instances_) {
    for (const Output* output : {&instance.out, &instance.err}) {
      if (output->fd() >= 0) fds.push_back({output->fd(), POLLIN, 0});
    }
  }
  return fds;
}

void Situation::take_outputs() {
  for (Instance& instance : instances_) {
    instance.out.take();
    instance.err.take();
  }
}

bool Situation::interrupted() {
  pollfd fds[2] = {{signals_, POLLIN, 0}, {lifeline_, POLLIN, 0}};
  if (::poll(fds, 2, 0) > 0) {
    if (fds[0].revents != 0) read_signals();
    if (fds[1].revents != 0) interrupted_ = true;
  }
  return interrupted_;
}

void Situation::serve_clients(const std::vector<std::pair<std::string, short>>& ready) {
  for (const auto& [name, events] : ready) {
    Client& client = clients_[name];
    if ((events & POLLOUT) != 0) {
      const int error = client.flush();
      if (error != 0 && error != EAGAIN) send_errors_[name] = error;
    }
    if ((events & ~POLLOUT) != 0) client.receive();
  }
}

bool Situation::sleep(int ms) {
  std::vector<pollfd> fds = {
      {board_.wake_fd(), POLLIN, 0}, {signals_, POLLIN, 0}, {lifeline_, POLLIN, 0}};
  for (const Instance& instance : instances_) {
    if (instance.lives()) fds.push_back({instance.child.pidfd(), POLLIN, 0});
  }
  for (const pollfd& output : outputs()) fds.push_back(output);
  const std::size_t first_client = fds.size();
  std::vector<std::string> names;
  for (const auto& [name, client] : clients_) {
    if (!client.open()) continue;
    const auto events =
        static_cast<short>((client.ended() ? 0 : POLLIN) | (client.wants_write() ? POLLOUT : 0));
    if (events == 0) continue;
    fds.push_back({client.fd(), events, 0});
    names.push_back(name);
  }
  const bool there = board_.arm_wake(next_);
  const int found = ::poll(fds.data(), fds.size(), there ? 0 : ms);
  board_.disarm_wake();
  if (found <= 0) return there || found < 0;
  if (fds[1].revents != 0) read_signals();
  // Nothing is ever written to the lifeline: whatever it reports is its end.
  if (fds[2].revents != 0) interrupted_ = true;
  take_outputs();
  std::vector<std::pair<std::string, short>> ready;
  for (std::size_t i = first_client; i < fds.size(); ++i) {
    if (fds[i].revents != 0) ready.emplace_back(names[i - first_client], fds[i].revents);
  }
  serve_clients(ready);
  return true;
}

std::string Situation::who_is_timed(const std::vector<Watched>& processes) const {
  std::string all;
  for (const ThreadState& thread : look(processes)) {
    if (!thread.timed) continue;
    std::string name = std::to_string(thread.pid);
    for (const ProcessInfo& process : moments_.processes()) {
      if (process.pid != thread.pid) continue;
      name = process.name;
      for (const ThreadInfo& known : process.threads) {
        if (known.tid == thread.tid && !known.label.empty()) name += "/" + known.label;
      }
    }
    all += (all.empty() ? "" : ", ") + to_string(thread, name);
  }
  return all.empty() ? "a timer" : all;
}

Waited Situation::wait(const Goal& goal) {
  const std::int64_t until = now_ns() + goal.limit_ns;
  int look_ms = goal.first_look_ms;
  bool blind = false;
  bool stuck = false;
  std::string limit;
  for (;;) {
    take_in();
    if (look_ && !look_()) interrupted_ = true;
    if (interrupted_) return {WaitEnd::kInterrupted, {}, blind, limit};
    if (auto full = board_.overflow()) return {WaitEnd::kOverflow, *std::move(full), blind, limit};
    if (goal.met()) return {WaitEnd::kMet, {}, blind, limit};
    if (goal.hopeless) {
      if (std::string why = goal.hopeless(); !why.empty()) {
        return {WaitEnd::kHopeless, std::move(why), blind, limit};
      }
    }
    if (stuck) return {WaitEnd::kStuck, {}, blind, limit};
    const std::int64_t left_ms = (until - now_ns() + 999'999) / 1'000'000;
    if (left_ms <= 0) return {WaitEnd::kDeadline, {}, blind, limit};
    if (sleep(static_cast<int>(std::min<std::int64_t>(look_ms, left_ms)))) {
      look_ms = goal.first_look_ms;
      continue;
    }
    look_ms = std::min(2 * look_ms, kLongestLookMs);
    const auto processes = watched();
    const Motion seen = processes.empty()
                            ? Motion::kStuck
                            : motion(processes, [this] { return board_.next_sequence(); });
    blind = seen == Motion::kUnknown;
    if (seen == Motion::kTimed && limit.empty()) limit = who_is_timed(processes);
    // Whatever was on its way to the drill when the last thread stopped has arrived by now: it is
    // taken in once more, and only if there is nothing is this the end.
    stuck = seen == Motion::kStuck && !sleep(0);
  }
}

}  // namespace kv::drill
