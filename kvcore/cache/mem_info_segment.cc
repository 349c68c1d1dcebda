#include "kvcore/cache/mem_info_segment.h"

#include <sys/random.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <utility>

#include "kvcore/hook.h"
#include "kvcore/wire/socket_place.h"

namespace kv {
namespace {

constexpr std::uint64_t kMagic = 0x6b762d6d656d2d31;  // "kv-mem-1"
constexpr std::size_t kSets = 4;
constexpr std::int64_t kUnit = 4096;     // of the limit word
constexpr std::uint64_t kUnitBits = 40;  // so limits are below 4 PiB ...
constexpr std::uint64_t kUnitMask = (std::uint64_t{1} << kUnitBits) - 1;
constexpr std::uint64_t kMostRevision = ~std::uint64_t{0} >> kUnitBits;
constexpr int kReadAttempts = 1000;

using Word = std::atomic<std::int64_t>;
using Counter = std::atomic<std::uint64_t>;

struct Set {
  Word total, used, ready;
  Counter revision;
};

// As it lies in the file.
struct Layout {
  Word total, used, ready;  // what deployed tools know
  std::uint64_t magic;
  std::uint64_t generation;
  Counter limit;      // revision << 40 | 4 KiB units; 0: none was asked for
  Counter published;  // sets so far; the last one is sets[published % kSets]
  std::array<Set, kSets> sets;
};
static_assert(sizeof(Word) == sizeof(std::int64_t) && Word::is_always_lock_free);
static_assert(offsetof(Layout, magic) == 24);

Layout& layout(const SharedFile& file) {
  return *static_cast<Layout*>(file.data());
}

std::uint64_t new_generation() {
  std::uint64_t number = 0;
  while (number == 0 && ::getrandom(&number, sizeof number, 0) != sizeof number) {
  }
  return number;
}

Result<SharedFile> open_record(const std::string& path) {
  KV_ASSIGN_OR_RETURN(SharedFile file, SharedFile::open(path, sizeof(Layout)));
  if (layout(file).magic == kMagic) return file;
  return Status::error(Code::kProtocol, "mem_info", path, 0, "it is not such a record");
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

MemInfoSegment::MemInfoSegment(SharedFile file, std::uint64_t generation, std::int64_t total)
    : file_(std::move(file)), generation_(generation), maker_(::getpid()), mirrored_(total) {}

Result<std::unique_ptr<MemInfoSegment>> MemInfoSegment::make(const std::string& path,
                                                             std::int64_t total_bytes) {
  const std::uint64_t generation = new_generation();
  for (;;) {
    auto made = SharedFile::create(path, sizeof(Layout), /*lock=*/true, [&](void* data) {
      auto* fresh = static_cast<Layout*>(data);
      fresh->total.store(total_bytes, std::memory_order_relaxed);
      fresh->sets[0].total.store(total_bytes, std::memory_order_relaxed);
      fresh->generation = generation;
      fresh->magic = kMagic;
    });
    if (made.ok()) {
      return std::unique_ptr<MemInfoSegment>(
          new MemInfoSegment(std::move(*made), generation, total_bytes));
    }
    if (made.status().code() != Code::kAlreadyExists) return made.status();
    auto there = open_record(path);
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

void MemInfoSegment::publish(std::int64_t total_bytes, std::int64_t used_bytes,
                             std::int64_t ready_bytes, std::uint64_t revision) {
  Layout& record = layout(file_);
  const std::uint64_t next = record.published.load(std::memory_order_relaxed) + 1;
  Set& set = record.sets[next % kSets];
  set.total.store(total_bytes, std::memory_order_release);
  set.used.store(used_bytes, std::memory_order_release);
  set.ready.store(ready_bytes, std::memory_order_release);
  set.revision.store(revision, std::memory_order_release);
  record.published.store(next, std::memory_order_release);
  record.used.store(used_bytes, std::memory_order_relaxed);
  record.ready.store(ready_bytes, std::memory_order_relaxed);
  // Not over what a tool has written there since: that is its wish.
  std::int64_t ours = mirrored_;
  if (record.total.compare_exchange_strong(ours, total_bytes, std::memory_order_relaxed)) {
    mirrored_ = total_bytes;
  }
}

std::optional<PageRecord::Wish> MemInfoSegment::take_wish() {
  Layout& record = layout(file_);
  if (const std::uint64_t word = record.limit.load(std::memory_order_relaxed); word != taken_) {
    if (step<"record.wish.once">()) {
      taken_ = word;
      step_done<"record.wish.once">();
    }
    return Wish{static_cast<std::int64_t>(word & kUnitMask) * kUnit, word >> kUnitBits};
  }
  if (const std::int64_t total = record.total.load(std::memory_order_relaxed); total != mirrored_) {
    mirrored_ = total;
    return Wish{total, 0};
  }
  return std::nullopt;
}

// ---- the reader

Result<MemInfoReader> MemInfoReader::open(const std::string& path) {
  KV_ASSIGN_OR_RETURN(SharedFile file, open_record(path));
  return MemInfoReader(std::move(file));
}

Result<MemInfo> MemInfoReader::read() const {
  const Layout& record = layout(file_);
  for (int attempt = 0; attempt < kReadAttempts; ++attempt) {
    const std::uint64_t number = record.published.load(std::memory_order_acquire);
    const Set& set = record.sets[number % kSets];
    MemInfo info;
    info.total = set.total.load(std::memory_order_acquire);
    info.used = set.used.load(std::memory_order_acquire);
    info.ready = set.ready.load(std::memory_order_acquire);
    info.revision = set.revision.load(std::memory_order_acquire);
    info.generation = record.generation;
    // The maker may be writing the set after the last one published, so one less than there are.
    if (record.published.load(std::memory_order_acquire) - number < kSets - 1) return info;
  }
  return Status::error(Code::kUnavailable, "mem_info.read", file_.path(), 0,
                       "its maker publishes too fast");
}

Result<std::uint64_t> MemInfoReader::request_limit(std::int64_t bytes) {
  if (bytes < 0 || static_cast<std::uint64_t>(bytes / kUnit) > kUnitMask) {
    return Status::error(Code::kInvalidArgument, "mem_info.request_limit", std::to_string(bytes), 0,
                         "expected 0 to 4 PiB");
  }
  KV_ASSIGN_OR_RETURN(const MemInfo info, read());
  Counter& limit = layout(file_).limit;
  std::uint64_t word = limit.load(std::memory_order_relaxed), revision = 0;
  do {
    revision = std::max(word >> kUnitBits, info.revision) + 1;
    if (revision > kMostRevision) {
      return Status::error(Code::kFailedPrecondition, "mem_info.request_limit", file_.path(),
                           static_cast<std::int64_t>(revision), "the revisions have run out");
    }
  } while (!limit.compare_exchange_weak(
      word, revision << kUnitBits | static_cast<std::uint64_t>(bytes / kUnit),
      std::memory_order_relaxed));
  return revision;
}

}  // namespace kv
