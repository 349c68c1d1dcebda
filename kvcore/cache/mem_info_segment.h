// The record of what an engine holds and may hold, in shared memory: its maker publishes, outside
// tools read, and write the limit. A few small reads and writes of one descriptor, no mapping: a
// tool that cuts the file off ends nobody.
//
// The first 24 bytes are what deployed tools know: three native int64, bytes in total, in use, and
// mapped ahead. They lock the file (flock) and write the first to resize; so do we. Behind them
// lies what makes the record safe to read without a lock: sets of the three under one number, so
// that a reader always finds a whole one and a writer that is stopped in the middle of the next
// stalls nobody; and the limit with its revision in one word.
//
// Whatever is read here may be anybody's: every field is checked before it is used. What the maker
// finds cut off or overwritten is no limit; it writes the record anew and says so.
//
// A record belongs to the process that made it and to nobody else: the kernel keeps a lock for it
// for as long as it lives, and only its maker unlinks its name, and only while the name still
// denotes this record. What a dead maker left is replaced by the next.
//
// Threads: MemInfoSegment: publish() and take_wish() from one thread at a time (PageAllocator's
// lock does that). MemInfoReader: one at a time.
// Ownership: the segment owns its name; borrows the clock.
// Source: the deployed record's name and first three fields.
#ifndef KVCORE_CACHE_MEM_INFO_SEGMENT_H_
#define KVCORE_CACHE_MEM_INFO_SEGMENT_H_

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "kvcore/base/clock.h"
#include "kvcore/base/log.h"
#include "kvcore/base/peer_log.h"
#include "kvcore/base/status.h"
#include "kvcore/cache/page_allocator.h"
#include "kvcore/cache/shared_file.h"

namespace kv {

struct MemInfo {  // bytes
  std::int64_t total = 0, used = 0, ready = 0;
  std::uint64_t revision = 0;    // of the limit in force, or on its way
  std::uint64_t generation = 0;  // of the record: another maker, another number
  bool operator==(const MemInfo&) const = default;
};

// <root>/<ipc name>, for groups other than 0 <root>/<ipc name>_g<group>.
// kInvalidArgument: an empty root, an IPC name that sanitize_ipc_name() would change, a group < 0.
Result<std::string> mem_info_path(std::string_view root, std::string_view ipc_name,
                                  std::int64_t group);

// As it lies in the file.
struct MemInfoLayout {
  static constexpr std::uint64_t kMagic = 0x6b762d6d656d2d31;  // "kv-mem-1"
  static constexpr std::size_t kSets = 4;
  struct Set {
    std::int64_t total = 0, used = 0, ready = 0;
    std::uint64_t revision = 0;
  };
  std::int64_t total = 0, used = 0, ready = 0;  // what deployed tools know
  std::uint64_t magic = kMagic;
  std::uint64_t generation = 0;
  std::uint64_t limit = 0;      // revision << 40 | 4 KiB units; 0: none was asked for
  std::uint64_t published = 0;  // sets so far; the last one is sets[published % kSets]
  std::array<Set, kSets> sets{};
};

class MemInfoSegment final : public PageRecord {
 public:
  // kAlreadyExists: a living process has one of this name. kProtocol: a file of this name is no
  // such record; kFailedPrecondition: it belongs to another user. Either is left alone.
  static Result<std::unique_ptr<MemInfoSegment>> make(const std::string& path,
                                                      std::int64_t total_bytes, const Clock& clock,
                                                      LogSink log);
  ~MemInfoSegment() override;  // unlinks what it made, not so in a forked child
  MemInfoSegment(const MemInfoSegment&) = delete;
  MemInfoSegment& operator=(const MemInfoSegment&) = delete;

  void publish(std::int64_t total_bytes, std::int64_t used_bytes, std::int64_t ready_bytes,
               std::uint64_t revision) override;
  std::optional<Wish> take_wish() override;

  const std::string& path() const { return file_.path(); }
  std::uint64_t generation() const { return generation_; }

 private:
  MemInfoSegment(SharedFile file, const MemInfoLayout& fresh, const Clock& clock, LogSink log);
  Status write_set(const MemInfoLayout::Set& set);
  Status mirror_total(std::int64_t total);
  std::optional<Wish> new_limit(std::uint64_t word);
  std::optional<Wish> new_total(std::int64_t total);
  void restore(const std::string& why);
  void say(const std::string& line);

  SharedFile file_;
  const std::uint64_t generation_;
  const pid_t maker_;
  std::uint64_t published_ = 0;
  MemInfoLayout::Set last_;  // the set that was published last
  std::int64_t mirrored_;    // what we wrote last to the first field, or took from it
  std::uint64_t taken_ = 0;  // the limit word that was taken last
  PeerLog log_;
};

// What an outside tool does.
class MemInfoReader {
 public:
  // kNotFound, kProtocol: no such record.
  static Result<MemInfoReader> open(const std::string& path);

  // One set that was published whole. kProtocol: the file was cut off or overwritten.
  // kUnavailable: the maker published faster than it could be read, a thousand times over.
  Result<MemInfo> read() const;
  // Asks for a limit, under the next revision, which it returns: above every one asked for before
  // and the one in force. The engine takes it over when it next allocates or frees.
  // Rounded down to 4 KiB. kInvalidArgument: negative, or more than 4 PiB. kFailedPrecondition: the
  // revisions, of which there are 2^24, have run out. kUnavailable: another tool keeps its lock.
  Result<std::uint64_t> request_limit(std::int64_t bytes);

 private:
  explicit MemInfoReader(SharedFile file) : file_(std::move(file)) {}
  Result<std::uint64_t> write_limit(std::int64_t bytes, std::uint64_t in_force);
  SharedFile file_;
};

}  // namespace kv

#endif  // KVCORE_CACHE_MEM_INFO_SEGMENT_H_
