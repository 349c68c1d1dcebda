#include "fakes/card/contexts.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace kv::card {
namespace {

constexpr std::size_t kDepth = 16;
// Without a destructor, so that it is there for calls in other threads' and libraries' last
// moments.
struct Stack {
  CUcontext contexts[kDepth];
  std::size_t depth;
};
thread_local Stack stack = {};

}  // namespace

CUcontext Contexts::create(int device) {
  const MutexLock lock(mutex_);
  all_.push_back(std::make_unique<Context>(device, false));
  return all_.back().get();
}

CUcontext Contexts::retain(int device) {
  const MutexLock lock(mutex_);
  Primary& primary = primary_.at(static_cast<std::size_t>(device));
  if (primary.context == nullptr) {
    all_.push_back(std::make_unique<Context>(device, true));
    primary.context = all_.back().get();
  }
  ++primary.retained;
  return primary.context;
}

bool Contexts::release(int device, CUcontext* ended) {
  const MutexLock lock(mutex_);
  Primary& primary = primary_.at(static_cast<std::size_t>(device));
  *ended = nullptr;
  if (primary.retained == 0) return false;
  if (--primary.retained == 0) *ended = std::exchange(primary.context, nullptr);
  return true;
}

CUcontext Contexts::reset(int device, std::uint64_t* counts) {
  const MutexLock lock(mutex_);
  Primary& primary = primary_.at(static_cast<std::size_t>(device));
  *counts = std::exchange(primary.retained, 0);
  return std::exchange(primary.context, nullptr);
}

bool Contexts::is_active(int device) {
  const MutexLock lock(mutex_);
  return primary_.at(static_cast<std::size_t>(device)).context != nullptr;
}

bool Contexts::knows(CUcontext context) {
  const MutexLock lock(mutex_);
  return std::any_of(all_.begin(), all_.end(),
                     [context](const auto& each) { return each.get() == context; });
}

CUcontext Contexts::current() {
  return stack.depth == 0 ? nullptr : stack.contexts[stack.depth - 1];
}

// Replaces the top of the stack, as the driver does; null takes it away.
void Contexts::set_current(CUcontext context) {
  if (context == nullptr) {
    if (stack.depth > 0) --stack.depth;
    return;
  }
  if (stack.depth == 0) stack.depth = 1;
  stack.contexts[stack.depth - 1] = context;
}

bool Contexts::push(CUcontext context) {
  if (stack.depth == kDepth) return false;
  stack.contexts[stack.depth++] = context;
  return true;
}

bool Contexts::pop(CUcontext* context) {
  if (stack.depth == 0) return false;
  *context = stack.contexts[--stack.depth];
  return true;
}

}  // namespace kv::card
