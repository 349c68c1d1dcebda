#include "fakes/worker/block_commands.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <utility>
#include <vector>

#include "fakes/worker/kv_caches.h"
#include "kvcore/base/unique_fd.h"
#include "kvcore/cache/mem_info_segment.h"

namespace kv::worker {
namespace {

using Json = nlohmann::json;

// Where the drill said no other: the record of a group of this engine.
std::string record_path(const Call& call, std::int64_t group) {
  const Options& options = call.worker.options;
  const auto path = mem_info_path(options.segment_root, options.runtime.ipc_name, group);
  if (!path.ok()) throw std::runtime_error(path.status().to_string());
  return *path;
}

std::string segment_path(const Call& call) {
  return call.worker.options.segment_root + "/" + call.text("name");
}

// "record" for group 0, "record_1" for others; "budget" likewise.
void announce(const char* what, std::int64_t group, const std::string& path) {
  const std::string fact = group == 0 ? what : std::string(what) + "_" + std::to_string(group);
  kvdrill_announce(fact.c_str(), path.c_str());
}

template <typename Use>
void with_cache(const Call& call, const Use& use) {
  call.answer(call.worker.blocks->with(call.group(),
                                       [&use](KvCache& cache) -> Status { return use(cache); }));
}

std::int64_t pages_of(const Options& options) {
  const auto buffers = static_cast<std::size_t>(options.shape.buffers);
  return static_cast<std::int64_t>(options.shape.tensor_bytes / buffers / options.shape.page_bytes);
}

}  // namespace

// ---- a cache

void make_cache(const Call& call) {
  const Options& options = call.worker.options;
  KvCacheSpec spec;
  spec.group = call.group();
  spec.page_bytes = static_cast<std::size_t>(call.number("page_bytes", 0));
  spec.block_bytes = static_cast<std::size_t>(call.number("block_bytes", 512 << 10));
  spec.null_block = call.truth("null_block");
  spec.pages.pages = call.number("pages", pages_of(options));
  spec.pages.low = call.number("low", 0);
  spec.pages.high = call.number("high", spec.pages.low);
  spec.pages.keeper = call.truth("keeper");
  spec.pages.wait_limit = Nanos(call.number("wait_limit", spec.pages.wait_limit.count()));
  if (call.truth("record")) spec.record = record_path(call, spec.group);
  if (const std::string name = call.text("budget"); !name.empty()) {
    spec.budget = options.segment_root + "/" + name;
    spec.budget_bytes = call.number("budget_bytes", 0);
    spec.removes_budget = call.truth("removes_budget");
  }
  const std::string record = spec.record, budget = spec.budget;
  const std::int64_t group = spec.group;
  const Status status = call.worker.blocks->make(std::move(spec));
  if (!status.ok()) return call.answer(status);
  if (!record.empty()) announce("record", group, record);
  if (!budget.empty()) announce("budget", group, budget);
}

void close_cache(const Call& call) {
  Status why;
  call.answer(stop_result_name(call.worker.blocks->close(call.group(), &why)));
}

// ---- blocks

void alloc(const Call& call) {
  with_cache(call, [&call](KvCache& cache) -> Status {
    KV_ASSIGN_OR_RETURN(const auto blocks, cache.blocks->alloc(call.number("n")));
    call.answer(blocks ? Json(*blocks).dump() : "miss");
    return {};
  });
}

void free_blocks(const Call& call) {
  const auto blocks = call.numbers("blocks");
  with_cache(call, [&blocks](KvCache& cache) { return cache.blocks->free(blocks); });
}

void reserve(const Call& call) {
  with_cache(call, [&call](KvCache& cache) -> Status {
    KV_ASSIGN_OR_RETURN(const bool reserved, cache.blocks->reserve(call.number("n")));
    call.answer(reserved ? "ok" : "miss");
    return {};
  });
}

void free_reserved(const Call& call) {
  with_cache(call, [](KvCache& cache) { return cache.blocks->free_reserved(); });
}

void clear(const Call& call) {
  with_cache(call, [](KvCache& cache) { return cache.blocks->clear(); });
}

void occupancy(const Call& call) {
  with_cache(call, [&call](KvCache& cache) -> Status {
    call.answer(Json(cache.blocks->occupancy()).dump());
    return {};
  });
}

// ---- pages and their limit

void trim(const Call& call) {
  with_cache(call, [](KvCache& cache) { return cache.pages->trim(); });
}

void set_limit(const Call& call) {
  with_cache(call, [&call](KvCache& cache) -> Status {
    const auto revision = static_cast<std::uint64_t>(call.number("revision"));
    call.answer(limit_result_name(cache.pages->set_limit(call.number("pages"), revision)));
    return {};
  });
}

void cache_counts(const Call& call) {
  with_cache(call, [&call](KvCache& cache) -> Status {
    const CacheCounts counts = cache.blocks->counts();
    const PageCounts& pages = counts.pages;
    const std::vector<std::pair<const char*, std::int64_t>> all{
        {"free", pages.free},
        {"ready", pages.ready},
        {"used", pages.used},
        {"transit", pages.transit},
        {"quarantined", pages.quarantined},
        {"withheld", pages.withheld},
        {"total", pages.total},
        {"wanted", pages.wanted},
        {"used_blocks", counts.used_blocks},
        {"reserved_blocks", counts.reserved_blocks},
        {"open_blocks", counts.open_blocks},
        {"available_blocks", counts.available_blocks},
    };
    const std::int64_t sum =
        pages.free + pages.ready + pages.used + pages.transit + pages.quarantined;
    if (sum != pages.total) {
      return Status::error(
          Code::kInternal, "cache_counts", "", 0,
          "the pages are " + std::to_string(sum) + ", not " + std::to_string(pages.total));
    }
    // Only what there is, so that a line of a drill can hold it.
    std::string text;
    for (const auto& [name, value] : all) {
      if (value == 0) continue;
      text += (text.empty() ? "" : " ") + std::string(name) + "=" + std::to_string(value);
    }
    call.answer(text);
    return {};
  });
}

// ---- an outside tool

void request_limit(const Call& call) {
  auto reader = MemInfoReader::open(record_path(call, call.group()));
  if (!reader.ok()) return call.answer(reader.status());
  const auto revision = reader->request_limit(call.number("bytes"));
  if (!revision.ok()) return call.answer(revision.status());
  call.answer(std::to_string(*revision));
}

void read_record(const Call& call) {
  const auto reader = MemInfoReader::open(record_path(call, call.group()));
  if (!reader.ok()) return call.answer(reader.status());
  const auto info = reader->read();
  if (!info.ok()) return call.answer(info.status());
  call.answer("total=" + std::to_string(info->total) + " used=" + std::to_string(info->used) +
              " ready=" + std::to_string(info->ready) +
              " revision=" + std::to_string(info->revision));
}

void cut_segment(const Call& call) {
  const std::string path = segment_path(call);
  const int rc = ::truncate(path.c_str(), call.number("bytes"));
  call.answer(rc == 0 ? Status() : Status::system("truncate", path, errno));
}

void write_segment(const Call& call) {
  const std::string path = segment_path(call);
  const auto numbers = call.numbers("numbers");
  const auto bytes = static_cast<ssize_t>(numbers.size() * sizeof(std::int64_t));
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  const bool done = fd && ::pwrite(fd.get(), numbers.data(), static_cast<std::size_t>(bytes),
                                   call.number("at")) == bytes;
  call.answer(done ? Status() : Status::system("pwrite", path, errno));
}

// ---- the budget

void budget_bytes(const Call& call) {
  with_cache(call, [&call](KvCache& cache) -> Status {
    if (cache.budget == nullptr) throw std::runtime_error("the cache has no budget");
    KV_ASSIGN_OR_RETURN(const std::int64_t all, cache.budget->claimed());
    call.answer("own=" + std::to_string(cache.budget->own()) + " all=" + std::to_string(all));
    return {};
  });
}

// ---- runtime

void second_runtime(const Call& call) {
  call.answer(Runtime::init(call.worker.options.runtime, *call.worker.clock, [](Severity, auto) {
              }).status());
}

}  // namespace kv::worker
