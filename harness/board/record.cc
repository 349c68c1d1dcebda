// The hooks: what happens when a thread reaches a named moment.
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "harness/board/kvdrill.h"
#include "harness/board/layout.h"
#include "harness/board/recorder.h"
#include "harness/board/session.h"

namespace kv::drill {
namespace {

// The first contact with a site names it on the board. Sites are listed at attach, so that this
// usually happened there, before any thread exists.
inline std::uint32_t id_of(const View& view, kvdrill_site* site) {
  std::uint32_t id = __atomic_load_n(&site->harness_id, __ATOMIC_RELAXED);
  if (id == 0) [[unlikely]] {
    id = intern(view, site->name);
    __atomic_store_n(&site->harness_id, id, __ATOMIC_RELAXED);
  }
  return id;
}

// Which orders count is settled before the event is recorded: a drill that has seen the event and
// then gives an order means the next hit, never this one.
inline Outcome reach(kvdrill_site* site, std::int64_t key, std::uint32_t role) {
  const View* view = board();
  if (view == nullptr) return {};
  ThreadState* thread = here(*view);
  if (thread == nullptr) return {};
  const std::uint32_t id = id_of(*view, site);
  const std::uint64_t hit = ++thread->hits[id].reached;
  const std::uint32_t limit = orders_for(*view, site, id, kAtReach);
  write_event(*view, thread->writer,
              {EventKind::kPoint, id, key, static_cast<std::int64_t>(hit), {}});
  if (limit == 0) [[likely]]
    return {};
  return obey(*view, *thread, {site, id, key, hit, kAtReach, role}, limit);
}

}  // namespace

TextRef put_known_text(const View& view, ThreadState& thread, std::string_view text) {
  constexpr std::size_t kShort = 64;
  if (text.empty() || text.size() > kShort) return put_text(view, text, kMaxNote);
  const std::uint64_t hash = hash_of(text);
  ThreadState::Known& known = thread.known[hash % thread.known.size()];
  if (known.hash != hash || view.text_of(known.ref) != text) {
    known = {hash, put_text(view, text, kShort)};
  }
  return known.ref;
}

void record(const View& view, const Draft& draft) {
  if (ThreadState* thread = here(view)) write_event(view, thread->writer, draft);
}

}  // namespace kv::drill

using kv::drill::board;
using kv::drill::EventKind;
using kv::drill::ThreadState;
using kv::drill::View;

void kvdrill_point(kvdrill_site* site, int64_t key) {
  kv::drill::reach(site, key, KVDRILL_POINT);
}

int32_t kvdrill_fault(kvdrill_site* site, int64_t key) {
  return kv::drill::reach(site, key, KVDRILL_FAULT).code;
}

int32_t kvdrill_step(kvdrill_site* site, int64_t key) {
  return kv::drill::reach(site, key, KVDRILL_STEP).skip ? 0 : 1;
}

void kvdrill_done(kvdrill_site* site, int64_t key, int64_t result) {
  const View* view = board();
  if (view == nullptr) return;
  ThreadState* thread = kv::drill::here(*view);
  if (thread == nullptr) return;
  const std::uint32_t id = kv::drill::id_of(*view, site);
  const std::uint64_t hit = ++thread->hits[id].done;
  const std::uint32_t limit = kv::drill::orders_for(*view, site, id, kv::drill::kAtDone);
  write_event(*view, thread->writer, {EventKind::kDone, id, key, result, {}});
  if (limit == 0) return;
  obey(*view, *thread, {site, id, key, hit, kv::drill::kAtDone, KVDRILL_POINT}, limit);
}

void kvdrill_note(kvdrill_site* site, int64_t key, int64_t value, const char* text) {
  const View* view = board();
  if (view == nullptr) return;
  const std::string_view words = text == nullptr ? "" : text;
  const std::uint32_t id = kv::drill::id_of(*view, site);
  if (id == kv::drill::session.label_note && id != 0) {
    set_label(*view, words);
    return;
  }
  ThreadState* thread = kv::drill::here(*view);
  if (thread == nullptr) return;
  write_event(*view, thread->writer,
              {EventKind::kNote, id, key, value, put_known_text(*view, *thread, words)});
}

void kvdrill_announce(const char* name, const char* value) {
  const View* view = board();
  if (view == nullptr || name == nullptr || value == nullptr) return;
  record(*view, {EventKind::kAnnounced, intern(*view, name), 0, 0,
                 put_text(*view, value, kv::drill::kMaxNote)});
}

void kvdrill_log(int severity, const char* line) {
  const View* view = board();
  if (view == nullptr || line == nullptr) return;
  record(*view, {EventKind::kLog, 0, severity, 0, put_text(*view, line, kv::drill::kMaxNote)});
}
