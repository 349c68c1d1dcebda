// What happened so far, by the names of moments: finds and counts the events that an address of a
// scenario means.
//
// Threads: the supervisor's single thread. Ownership: keeps copies of the events; their names and
// texts live in the board.
#ifndef HARNESS_DRILL_EXECUTOR_MOMENTS_H_
#define HARNESS_DRILL_EXECUTOR_MOMENTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>
#include <vector>

#include "harness/board/board.h"
#include "harness/scenario/scenario.h"

namespace kv::drill {

class Moments {
 public:
  void add(const Event& event);
  // Names and labels as they are known now; addresses are read with them.
  void set_processes(std::vector<ProcessInfo> processes) { processes_ = std::move(processes); }

  const std::vector<Event>& events() const { return events_; }
  const std::vector<ProcessInfo>& processes() const { return processes_; }

  // The first event that the address means; null when there is none. Points carry the hit that the
  // engine counted; for notes and ".done" it is counted here, per thread too.
  const Event* first(const Address& address) const;
  std::uint64_t count(const Address& address) const;

 private:
  struct Entry {
    std::size_t index;
    std::uint64_t hit;
  };
  bool means(const Address& address, const Event& event, std::uint64_t hit) const;
  const std::vector<Entry>* entries(const Address& address) const;

  std::vector<Event> events_;
  std::vector<ProcessInfo> processes_;
  // Points and notes under their own names, ends of faults and steps under "NAME.done".
  std::map<std::string, std::vector<Entry>, std::less<>> by_site_;
  // (process, thread, name, is an end): how often.
  std::map<std::tuple<std::uint16_t, std::uint16_t, std::string_view, bool>, std::uint64_t> hits_;
};

}  // namespace kv::drill

#endif  // HARNESS_DRILL_EXECUTOR_MOMENTS_H_
