#include "harness/drill/executor_moments.h"

#include <string>

namespace kv::drill {

void Moments::add(const Event& event) {
  const std::size_t index = events_.size();
  events_.push_back(event);
  if (event.torn) return;
  const bool end = event.kind == EventKind::kDone;
  if (event.kind == EventKind::kPoint) {
    by_site_[std::string(event.name)].push_back({index, static_cast<std::uint64_t>(event.value)});
  } else if (event.kind == EventKind::kNote || end) {
    const std::uint64_t hit = ++hits_[{event.process, event.thread, event.name, end}];
    std::string site(event.name);
    if (end && !site.ends_with(".done")) site += ".done";
    by_site_[std::move(site)].push_back({index, hit});
  }
}

bool Moments::means(const Address& address, const Event& event, std::uint64_t hit) const {
  if (address.key && *address.key != event.key) return false;
  if (address.hit && *address.hit != hit) return false;
  if (address.process.empty() && address.thread.empty()) return true;
  if (event.process >= processes_.size()) return false;
  const ProcessInfo& process = processes_[event.process];
  if (!address.process.empty() && process.name != address.process) return false;
  if (address.thread.empty()) return true;
  return event.thread < process.threads.size() &&
         process.threads[event.thread].label == address.thread;
}

const std::vector<Moments::Entry>* Moments::entries(const Address& address) const {
  const auto found = by_site_.find(address.site);
  return found == by_site_.end() ? nullptr : &found->second;
}

const Event* Moments::first(const Address& address) const {
  const auto* all = entries(address);
  if (all == nullptr) return nullptr;
  for (const Entry& entry : *all) {
    const Event& event = events_[entry.index];
    if (means(address, event, entry.hit)) return &event;
  }
  return nullptr;
}

std::uint64_t Moments::count(const Address& address) const {
  const auto* all = entries(address);
  if (all == nullptr) return 0;
  std::uint64_t number = 0;
  for (const Entry& entry : *all) {
    if (means(address, events_[entry.index], entry.hit)) ++number;
  }
  return number;
}

}  // namespace kv::drill
