// The stop of a run for a person with a debugger.
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "harness/base/files.h"
#include "harness/drill/executor.h"
#include "harness/verdict/trace.h"

namespace kv::drill {

// The hold is given like a drill's own, so a drill that never comes there is void and says so.
void Executor::order_pause() {
  if (!options_.pause_at) return;
  Given hold;
  hold.at = *options_.pause_at;
  pause_order_ = give(hold, "pause at " + to_string(hold.at), drill_.position, true);
  situation_.at_every_look([this] { return stand(); });
}

// Called whenever something has happened, before anything is concluded from it: so nobody calls a
// run stuck that stands here. False: the run was interrupted meanwhile.
bool Executor::stand() {
  if (pause_order_ == 0 || board_.state(pause_order_).acted == 0) return true;
  const auto& events = situation_.moments().events();
  const auto acted = std::find_if(events.begin(), events.end(), [this](const Event& event) {
    return event.kind == EventKind::kActed && !event.torn &&
           event.value == static_cast<std::int64_t>(pause_order_);
  });
  if (acted == events.end()) return true;  // its event is on its way, and wakes us

  const auto& processes = situation_.moments().processes();
  Pause pause{fmt::format("{}[{}]", acted->name, acted->key), who(*acted, processes), 0, 0,
              folder_.path()};
  if (acted->process < processes.size()) {
    const ProcessInfo& process = processes[acted->process];
    pause.pid = process.pid;
    if (acted->thread < process.threads.size()) pause.tid = process.threads[acted->thread].tid;
  }
  board_.record("paused", step_number_, 0, pause.thread);
  bool goes_on = write_all(options_.pause_by.say, to_line(pause) + "\n");
  while (goes_on) {
    if (situation_.interrupted()) {
      goes_on = false;
      break;
    }
    // An interruption shows itself on descriptors that the situation looks at.
    auto watched = situation_.interruptions();
    watched.push_back({options_.pause_by.go, POLLIN, 0});
    if (::poll(watched.data(), watched.size(), -1) < 0 && errno != EINTR) break;
    situation_.take_outputs();
    if (watched.back().revents != 0) break;
  }
  board_.release(pause_order_);
  pause_order_ = 0;
  board_.record("goes on", step_number_, 0, {});
  return goes_on;
}

}  // namespace kv::drill
