#include "kvcore/cache/mem_info_segment.h"

#include <sched.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "kvcore/hook.h"
#include "kvcore/wire/socket_place.h"

namespace kv {
namespace {

using Layout = MemInfoLayout;
using Set = Layout::Set;

constexpr std::int64_t kUnit = 4096;     // of the limit word
constexpr std::uint64_t kUnitBits = 40;  // so limits are below 4 PiB ...
constexpr std::uint64_t kUnitMask = (std::uint64_t{1} << kUnitBits) - 1;
constexpr std::uint64_t kMostRevision = ~std::uint64_t{0} >> kUnitBits;
constexpr int kAttempts = 1000;

static_assert(offsetof(Layout, magic) == 24, "what deployed tools know");
static_assert(offsetof(Layout, sets) == 56 && sizeof(Layout) == 56 + Layout::kSets * sizeof(Set));

constexpr std::size_t kHead = offsetof(Layout, sets);

std::size_t place_of_set(std::uint64_t number) {
  return offsetof(Layout, sets) + number % Layout::kSets * sizeof(Set);
}

template <typename T>
std::string_view bytes_of(const T& object) {
  return {reinterpret_cast<const char*>(&object), sizeof object};
}

std::uint64_t new_generation() {
  std::uint64_t number = 0;
  while (number == 0 && ::getrandom(&number, sizeof number, 0) != sizeof number) {
  }
  return number;
}

Status not_a_record(const std::string& path) {
  return Status::error(Code::kProtocol, "mem_info", path, 0, "it is not such a record");
}

Result<SharedFile> open_record(const std::string& path, SharedFile::Owner owner) {
  KV_ASSIGN_OR_RETURN(SharedFile file, SharedFile::open(path, sizeof(Layout), owner));
  std::uint64_t magic = 0;
  KV_RETURN_IF_ERROR(file.read(offsetof(Layout, magic), &magic, sizeof magic));
  if (magic != Layout::kMagic) return not_a_record(path);
  return file;
}

Status check_set(const Set& set, const std::string& path) {
  const auto negative = [&path](const char* field, std::int64_t value) {
    return Status::error(Code::kProtocol, "mem_info.read", path, 0,
                         std::string("its ") + field + " bytes are " + std::to_string(value) +
                             ", expected 0 or more");
  };
  if (set.total < 0) return negative("total", set.total);
  if (set.used < 0) return negative("used", set.used);
  if (set.ready < 0) return negative("ready", set.ready);
  return {};
}

}  // namespace

Result<std::string> mem_info_path(std::string_view root, std::string_view ipc_name,
                                  std::int64_t group) {
  if (root.empty() || ipc_name.empty() || sanitize_ipc_name(ipc_name) != ipc_name || group < 0) {
    return Status::error(Code::kInvalidArgument, "mem_info",
                         std::string(root) + "/" + std::string(ipc_name), group,
                         "expected a root, an IPC name and a group of 0 or more");
  }
  std::string path = std::string(root) + "/" + std::string(ipc_name);
  if (group != 0) path += "_g" + std::to_string(group);
  return path;
}

// ---- the maker

MemInfoSegment::MemInfoSegment(SharedFile file, const Layout& fresh, const Clock& clock,
                               LogSink log)
    : file_(std::move(file)),
      generation_(fresh.generation),
      maker_(::getpid()),
      last_(fresh.sets[0]),
      mirrored_(fresh.total),
      log_(clock, std::move(log), "record: ") {}

Result<std::unique_ptr<MemInfoSegment>> MemInfoSegment::make(const std::string& path,
                                                             std::int64_t total_bytes,
                                                             const Clock& clock, LogSink log) {
  Layout fresh;
  fresh.total = fresh.sets[0].total = total_bytes;
  fresh.generation = new_generation();
  for (;;) {
    auto made = SharedFile::create(path, bytes_of(fresh), /*lock=*/true);
    if (made.ok()) {
      return std::unique_ptr<MemInfoSegment>(
          new MemInfoSegment(std::move(*made), fresh, clock, std::move(log)));
    }
    if (made.status().code() != Code::kAlreadyExists) return made.status();
    auto there = open_record(path, SharedFile::Owner::kThisUser);
    if (!there.ok() && there.status().code() == Code::kNotFound) continue;  // gone just now
    if (!there.ok()) return there.status();
    if (!there->try_lock(0) && step<"record.owner_lives">()) {
      step_done<"record.owner_lives">();
      return Status::error(Code::kAlreadyExists, "mem_info", path, 0,
                           "a living process has a record of this name");
    }
    // Whoever else replaces it needs this lock too; after it, the name may be another record's.
    KV_RETURN_IF_ERROR(there->unlink());
  }
}

MemInfoSegment::~MemInfoSegment() {
  if (maker_ == ::getpid()) (void)file_.unlink();  // nobody is left to tell
}

void MemInfoSegment::say(const std::string& line) {
  log_.say(Severity::kWarning, file_.path() + ": " + line);
}

void MemInfoSegment::publish(std::int64_t total_bytes, std::int64_t used_bytes,
                             std::int64_t ready_bytes, std::uint64_t revision) {
  last_ = Set{total_bytes, used_bytes, ready_bytes, revision};
  const Status status = write_set(last_);
  if (!status.ok()) say("not published: " + status.to_string());
}

Status MemInfoSegment::write_set(const Set& set) {
  ++published_;
  KV_RETURN_IF_ERROR(file_.write(place_of_set(published_), &set, sizeof set));
  KV_RETURN_IF_ERROR(file_.write(offsetof(Layout, published), &published_, sizeof published_));
  const std::int64_t deployed[] = {set.used, set.ready};
  KV_RETURN_IF_ERROR(file_.write(offsetof(Layout, used), deployed, sizeof deployed));
  return set.total == mirrored_ ? Status() : mirror_total(set.total);
}

// Not over what a tool has written there since: that is its wish. While one has the lock it is left
// for the next time.
Status MemInfoSegment::mirror_total(std::int64_t total) {
  if (!file_.try_lock_whole()) return {};
  std::int64_t there = 0;
  Status status = file_.read(0, &there, sizeof there);
  if (status.ok() && there == mirrored_) {
    status = file_.write(0, &total, sizeof total);
    if (status.ok()) mirrored_ = total;
  }
  file_.unlock_whole();
  return status;
}

std::optional<PageRecord::Wish> MemInfoSegment::take_wish() {
  Layout seen;
  const Status whole = file_.read(0, &seen, sizeof seen);
  if (!whole.ok() || seen.magic != Layout::kMagic || seen.generation != generation_) {
    restore(whole.ok() ? "somebody has overwritten it" : whole.to_string());
    return std::nullopt;
  }
  if (seen.limit != taken_) return new_limit(seen.limit);
  if (seen.total != mirrored_) return new_total(seen.total);
  return std::nullopt;
}

std::optional<PageRecord::Wish> MemInfoSegment::new_limit(std::uint64_t word) {
  if (step<"record.wish.once">()) {
    taken_ = word;
    step_done<"record.wish.once">();
  }
  const std::uint64_t revision = word >> kUnitBits;
  if (revision != 0) return Wish{static_cast<std::int64_t>(word & kUnitMask) * kUnit, revision};
  say("its limit has no revision: left alone");
  return std::nullopt;
}

std::optional<PageRecord::Wish> MemInfoSegment::new_total(std::int64_t total) {
  mirrored_ = total;
  if (total >= 0) return Wish{total, 0};
  say("a total of " + std::to_string(total) + " bytes, expected 0 or more: left alone");
  return std::nullopt;
}

// What was cut off reads as zeros once something behind it is written, and zeros are no wish.
void MemInfoSegment::restore(const std::string& why) {
  if (!step<"record.restore">()) return;
  Layout fresh;
  fresh.total = last_.total;
  fresh.used = last_.used;
  fresh.ready = last_.ready;
  fresh.generation = generation_;
  fresh.limit = taken_;
  fresh.published = published_;
  fresh.sets[published_ % Layout::kSets] = last_;
  const Status status = file_.write(0, &fresh, sizeof fresh);
  if (status.ok()) mirrored_ = fresh.total;
  say(why + (status.ok() ? ": written anew" : ": not written anew: " + status.to_string()));
  step_done<"record.restore">(0, status.ok() ? 1 : 0);
}

// ---- the reader

Result<MemInfoReader> MemInfoReader::open(const std::string& path) {
  KV_ASSIGN_OR_RETURN(SharedFile file, open_record(path, SharedFile::Owner::kAnybody));
  return MemInfoReader(std::move(file));
}

Result<MemInfo> MemInfoReader::read() const {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    Layout seen;
    KV_RETURN_IF_ERROR(file_.read(0, &seen, kHead));
    if (seen.magic != Layout::kMagic) return not_a_record(file_.path());
    Set set;
    KV_RETURN_IF_ERROR(file_.read(place_of_set(seen.published), &set, sizeof set));
    std::uint64_t now = 0;
    KV_RETURN_IF_ERROR(file_.read(offsetof(Layout, published), &now, sizeof now));
    // The maker may be writing the set after the last one published, so one less than there are.
    if (now - seen.published >= Layout::kSets - 1) continue;
    KV_RETURN_IF_ERROR(check_set(set, file_.path()));
    return MemInfo{set.total, set.used, set.ready, set.revision, seen.generation};
  }
  return Status::error(Code::kUnavailable, "mem_info.read", file_.path(), 0,
                       "its maker publishes too fast");
}

Result<std::uint64_t> MemInfoReader::request_limit(std::int64_t bytes) {
  constexpr const char* kOperation = "mem_info.request_limit";
  if (bytes < 0 || static_cast<std::uint64_t>(bytes / kUnit) > kUnitMask) {
    return Status::error(Code::kInvalidArgument, kOperation, std::to_string(bytes), 0,
                         "expected 0 to 4 PiB");
  }
  KV_ASSIGN_OR_RETURN(const MemInfo info, read());
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (file_.try_lock_whole()) {
      auto revision = write_limit(bytes, info.revision);
      file_.unlock_whole();
      return revision;
    }
    ::sched_yield();
  }
  return Status::error(Code::kUnavailable, kOperation, file_.path(), 0,
                       "another tool keeps its lock (flock)");
}

Result<std::uint64_t> MemInfoReader::write_limit(std::int64_t bytes, std::uint64_t in_force) {
  std::uint64_t word = 0;
  KV_RETURN_IF_ERROR(file_.read(offsetof(Layout, limit), &word, sizeof word));
  const std::uint64_t newest = std::max(word >> kUnitBits, in_force);
  if (newest >= kMostRevision) {
    return Status::error(Code::kFailedPrecondition, "mem_info.request_limit", file_.path(),
                         static_cast<std::int64_t>(newest), "the revisions have run out");
  }
  word = (newest + 1) << kUnitBits | static_cast<std::uint64_t>(bytes / kUnit);
  KV_RETURN_IF_ERROR(file_.write(offsetof(Layout, limit), &word, sizeof word));
  return newest + 1;
}

}  // namespace kv
