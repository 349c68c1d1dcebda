// The table behind kvcore's points, for unit tests: records what was reached, answers faults and
// steps as the test says. One at a time; the points are unarmed again when it goes.
//
// Threads: points may be reached on any thread; the test changes its orders on one, and takes down
// the object when no other thread can reach a point.
// Ownership: values.
#ifndef FAKES_DOUBLES_TEST_HOOKS_H_
#define FAKES_DOUBLES_TEST_HOOKS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "kvcore/hook.h"

namespace kv {

class TestHooks {
 public:
  struct Seen {
    std::string name;  // with ".done" for the end of a fault or step
    std::int64_t key = 0;
    std::int64_t value = 0;  // of a note; the result of an end
    std::string text;
    bool operator==(const Seen&) const = default;
  };

  TestHooks() {
    current_ = this;
    static constexpr HookTable kTable{kHookVersion, &on_point, &on_fault,
                                      &on_step,     &on_done,  &on_note};
    install_hooks(&kTable);
  }
  ~TestHooks() {
    install_hooks(nullptr);
    current_ = nullptr;
  }
  TestHooks(const TestHooks&) = delete;
  TestHooks& operator=(const TestHooks&) = delete;

  // False in a build without points: a test that needs them skips itself.
  static constexpr bool built_in() {
#if defined(KV_NO_HOOKS)
    return false;
#else
    return true;
#endif
  }

  // From now on the fault of this name gets this code (0: goes on).
  void fail(const std::string& name, std::int32_t code) {
    const std::lock_guard<std::mutex> lock(mutex_);
    faults_[name] = code;
  }
  // From now on the step of this name is left out.
  void skip(const std::string& name) {
    const std::lock_guard<std::mutex> lock(mutex_);
    skips_.insert(name);
  }
  // Called, without a lock held, for everything that is reached, before it is answered.
  void on_reached(std::function<void(const Seen&)> callback) {
    callback_ = std::move(callback);
  }

  std::vector<Seen> seen() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return seen_;
  }
  // How often the name was reached.
  std::size_t count(const std::string& name) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::size_t n = 0;
    for (const Seen& entry : seen_) n += entry.name == name ? 1 : 0;
    return n;
  }

 private:
  void reached(Seen entry) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      seen_.push_back(entry);
    }
    if (callback_) callback_(entry);
  }
  static void on_point(Site* site, std::int64_t key) {
    current_->reached({site->name, key, 0, ""});
  }
  static std::int32_t on_fault(Site* site, std::int64_t key) {
    current_->reached({site->name, key, 0, ""});
    const std::lock_guard<std::mutex> lock(current_->mutex_);
    const auto order = current_->faults_.find(site->name);
    return order == current_->faults_.end() ? 0 : order->second;
  }
  static std::int32_t on_step(Site* site, std::int64_t key) {
    current_->reached({site->name, key, 0, ""});
    const std::lock_guard<std::mutex> lock(current_->mutex_);
    return current_->skips_.contains(site->name) ? 0 : 1;
  }
  static void on_done(Site* site, std::int64_t key, std::int64_t result) {
    current_->reached({std::string(site->name) + ".done", key, result, ""});
  }
  static void on_note(Site* site, std::int64_t key, std::int64_t value, const char* text) {
    current_->reached({site->name, key, value, text != nullptr ? text : ""});
  }

  inline static TestHooks* current_ = nullptr;
  mutable std::mutex mutex_;
  std::vector<Seen> seen_;
  std::map<std::string, std::int32_t> faults_;
  std::set<std::string> skips_;
  std::function<void(const Seen&)> callback_;
};

}  // namespace kv

#endif  // FAKES_DOUBLES_TEST_HOOKS_H_
