// The only seam of kvcore upwards: named moments of the production code ("points"), and one atomic
// pointer to a table of functions that a test harness may fill. With the pointer empty a point is
// a load and a branch; compiled with KV_NO_HOOKS it is nothing.
//
//   kv::point<"listener.read.body">(key);                    a moment: may be observed, held, ...
//   int code = kv::attempt<"vmm.map">(key, [&] {...});       a call that may be told to fail, or to
//                                                            lie: success, and it was not made
//   if (kv::step<"listener.stop.cancel_reads">()) {...}      a protection that may be skipped
//   kv::note<"listener.cut">(generation);                    something a check needs to know
//
// A step reports its end with kv::step_done<"same name">(key, result), and attempt() that of its
// call; the harness sees it as "NAME.done".
//
// Rules: a note may lie inside a lock (nothing can act on it); a point, fault or step may be held
// there for as long as a drill likes, so it lies inside a lock only if that is what it is about.
// Names are dotted, lower case, from the general to the particular. The same name may be used in
// several places only if they mean the same moment.
//
// Threads: everything here may be called from any thread.
// The table's layout is an ABI of its own (version kHookVersion), shared with the harness's
// kvdrill.h by value, not by include; a test in fakes/ compares the two.
#ifndef KVCORE_HOOK_H_
#define KVCORE_HOOK_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace kv {

inline constexpr std::uint32_t kHookVersion = 1;

// What fault() gives for a call that shall report success and not be made.
inline constexpr std::int32_t kPretend = std::numeric_limits<std::int32_t>::min();

enum class SiteKind : std::uint32_t { kPoint = 0, kFault = 1, kStep = 2, kNote = 3 };

// One named moment. Static storage; lives as long as the program or library that holds it.
struct Site {
  const char* name;
  SiteKind kind;
  std::uint32_t harness_id;  // the harness's; 0 until it has seen the site (atomic access only)
  Site* next;                // all sites of this library, linked before main
  void* harness_data;        // the harness's
};

struct HookTable {
  std::uint32_t version;
  // Reports that `site` was reached with `key`; returns when the thread may go on.
  void (*point)(Site* site, std::int64_t key);
  // The same; returns the code to fail with, 0 to go on, or kPretend.
  std::int32_t (*fault)(Site* site, std::int64_t key);
  // The same; returns 1 to carry the protection out, 0 to leave it out.
  std::int32_t (*step)(Site* site, std::int64_t key);
  // The fault or step that began last on this thread with this site has ended with `result`.
  void (*done)(Site* site, std::int64_t key, std::int64_t result);
  // Records a fact; never blocks. `text` may be null; it is copied.
  void (*note)(Site* site, std::int64_t key, std::int64_t value, const char* text);
};

namespace hook_detail {

inline std::atomic<const HookTable*> table{nullptr};
inline Site* first_site = nullptr;  // written before main only

template <std::size_t N>
struct Name {
  char chars[N]{};
  // Implicit, so that a literal can be the template argument.
  constexpr Name(const char (&text)[N]) { std::copy_n(text, N, chars); }
};

template <Name kName, SiteKind kKind>
struct Registered {
  struct Link {
    Site site{kName.chars, kKind, 0, nullptr, nullptr};
    Link() {
      site.next = first_site;
      first_site = &site;
    }
  };
  inline static Link link;
};

inline const HookTable* armed() {
  return table.load(std::memory_order_acquire);
}

}  // namespace hook_detail

// Called once by the engine program, before its threads start, with the harness's table.
inline void install_hooks(const HookTable* hooks) {
  hook_detail::table.store(hooks, std::memory_order_release);
}
// Every named moment linked into this program or library, in no order.
inline Site* all_sites() {
  return hook_detail::first_site;
}

#if defined(KV_NO_HOOKS)

template <hook_detail::Name kName>
inline void point(std::int64_t = 0) {}
template <hook_detail::Name kName>
inline std::int32_t fault(std::int64_t = 0) {
  return 0;
}
template <hook_detail::Name kName>
inline bool step(std::int64_t = 0) {
  return true;
}
template <hook_detail::Name kName>
inline void fault_done(std::int64_t = 0, std::int64_t = 0) {}
template <hook_detail::Name kName>
inline void step_done(std::int64_t = 0, std::int64_t = 0) {}
template <hook_detail::Name kName>
inline void note(std::int64_t = 0, std::int64_t = 0, const char* = nullptr) {}

#else

template <hook_detail::Name kName>
inline void point(std::int64_t key = 0) {
  Site* site = &hook_detail::Registered<kName, SiteKind::kPoint>::link.site;
  if (const HookTable* hooks = hook_detail::armed()) [[unlikely]]
    hooks->point(site, key);
}

// 0: go on with the real call. Otherwise it must not be made: kPretend, or the code to fail with.
template <hook_detail::Name kName>
inline std::int32_t fault(std::int64_t key = 0) {
  Site* site = &hook_detail::Registered<kName, SiteKind::kFault>::link.site;
  if (const HookTable* hooks = hook_detail::armed()) [[unlikely]]
    return hooks->fault(site, key);
  return 0;
}

// true: carry the protection out. false: a drill asked to leave it out.
template <hook_detail::Name kName>
inline bool step(std::int64_t key = 0) {
  Site* site = &hook_detail::Registered<kName, SiteKind::kStep>::link.site;
  if (const HookTable* hooks = hook_detail::armed()) [[unlikely]]
    return hooks->step(site, key) != 0;
  return true;
}

template <hook_detail::Name kName>
inline void fault_done(std::int64_t key = 0, std::int64_t result = 0) {
  Site* site = &hook_detail::Registered<kName, SiteKind::kFault>::link.site;
  if (const HookTable* hooks = hook_detail::armed()) [[unlikely]]
    hooks->done(site, key, result);
}

template <hook_detail::Name kName>
inline void step_done(std::int64_t key = 0, std::int64_t result = 0) {
  Site* site = &hook_detail::Registered<kName, SiteKind::kStep>::link.site;
  if (const HookTable* hooks = hook_detail::armed()) [[unlikely]]
    hooks->done(site, key, result);
}

// Records a fact for the checks. Never blocks, so it may lie inside a lock.
template <hook_detail::Name kName>
inline void note(std::int64_t key = 0, std::int64_t value = 0, const char* text = nullptr) {
  Site* site = &hook_detail::Registered<kName, SiteKind::kNote>::link.site;
  if (const HookTable* hooks = hook_detail::armed()) [[unlikely]]
    hooks->note(site, key, value, text);
}

#endif  // KV_NO_HOOKS

// Makes the call, which answers 0 or why it failed, unless a drill gives its answer instead: a code
// to fail with, or success. Reports its end, and returns its answer.
template <hook_detail::Name kName, typename Call>
inline std::int32_t attempt(std::int64_t key, const Call& call) {
  std::int32_t result = fault<kName>(key);
  if (result == 0) {
    result = call();
  } else if (result == kPretend) {
    result = 0;
  }
  fault_done<kName>(key, result);
  return result;
}

}  // namespace kv

#endif  // KVCORE_HOOK_H_
