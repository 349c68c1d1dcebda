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

// Names a site that attaching did not. No drill can mean it unless another of its name was listed,
// so that is said. Before the engine has attached nothing of it was listed yet.
std::uint32_t name_late(const View& view, kvdrill_site* site) {
  const std::uint32_t id = intern(view, site->name);
  __atomic_store_n(&site->harness_id, id, __ATOMIC_RELAXED);
  if (id != 0 && id != session.label_note && !is_listed(id) &&
      session.engine.load(std::memory_order_acquire) != nullptr) {
    record(view, {EventKind::kNote, intern(view, kUnlistedNote), 0, 0,
                  put_text(view, site->name, kMaxNote)});
  }
  return id;
}

// The first contact with a site names it on the board. Sites are listed at attach, so that this
// usually happened there, before any thread exists.
inline std::uint32_t id_of(const View& view, kvdrill_site* site) {
  const std::uint32_t id = __atomic_load_n(&site->harness_id, __ATOMIC_RELAXED);
  return id != 0 ? id : name_late(view, site);
}

// Which orders act is settled before the event is recorded: a drill that has seen the event and
// then gives an order means the next hit, and one that then ends an order finds it counted.
inline Outcome meet(const View& view, ThreadState& thread, const Reached& at, const Draft& draft) {
  if (!orders_for(view, at.site, at.id, at.moment)) [[likely]] {
    write_event(view, thread.writer, draft);
    return {};
  }
  const Claims claims = claim_orders(view, thread, at);
  write_event(view, thread.writer, draft);
  return obey(view, thread, at, claims);
}

inline Outcome reach(kvdrill_site* site, std::int64_t key, std::uint32_t role) {
  const View* view = board();
  if (view == nullptr) return {};
  ThreadState* thread = here(*view);
  if (thread == nullptr) return {};
  const std::uint32_t id = id_of(*view, site);
  const std::uint32_t hit = ++thread->hits[id].reached;
  return meet(*view, *thread, {site, id, key, hit, kAtReach, role},
              {EventKind::kPoint, id, key, hit, {}});
}

inline void end(kvdrill_site* site, std::int64_t key, std::int64_t result) {
  const View* view = board();
  if (view == nullptr) return;
  ThreadState* thread = here(*view);
  if (thread == nullptr) return;
  const std::uint32_t id = id_of(*view, site);
  const std::uint32_t hit = ++thread->hits[id].done;
  // Nothing can fail or be skipped at an end, so it counts as a plain point.
  meet(*view, *thread, {site, id, key, hit, kAtDone, KVDRILL_POINT},
       {EventKind::kDone, id, key, result, {}});
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
  kv::drill::end(site, key, result);
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
