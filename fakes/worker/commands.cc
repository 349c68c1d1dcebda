#include "fakes/worker/commands.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "fakes/worker/block_commands.h"
#include "fakes/worker/cache_commands.h"
#include "fakes/worker/caches.h"
#include "fakes/worker/call.h"
#include "fakes/worker/kv_caches.h"
#include "kvcore/hook.h"
#include "kvcore/wire/socket_place.h"

namespace kv::worker {
namespace {

using Json = nlohmann::json;

// ---- life

// The caches first: what they lie in goes down with the runtime.
void shutdown(const Call& call) {
  Status why;
  StopResult result = call.worker.caches->close();
  if (result == StopResult::kDone) result = call.worker.blocks->close_all(&why);
  if (result == StopResult::kDone) result = call.runtime.shutdown();
  call.answer(stop_result_name(result));
}

void start_listener(const Call& call) {
  const RuntimeConfig& config = call.worker.options.runtime;
  const std::int64_t rank = call.number("rank", config.rank);
  const std::int64_t stage = call.number("stage", config.stage);
  const Status status = call.runtime.start_listener(rank, stage);
  if (status.ok()) announce_socket(call.worker, rank, stage);
  call.answer(status);
}

void stop_listener(const Call& call) {
  const RuntimeConfig& config = call.worker.options.runtime;
  call.answer(stop_result_name(call.runtime.stop_listener(call.number("rank", config.rank),
                                                          call.number("stage", config.stage))));
}

void initialised(const Call& call) {
  call.answer(call.runtime.initialised() ? "yes" : "no");
}

void engine_shutdown(const Call& call) {
  const bool throws = call.truth("throws");
  call.runtime.set_engine_shutdown([throws] {
    point<"engine.shutdown">();
    if (throws) throw std::runtime_error("the engine's shutdown was told to throw");
  });
}

// A child that leaves by exit(), as a careless helper of an engine does, must not take its parent's
// listener down.
void exit_in_fork(const Call& call) {
  const pid_t child = ::fork();
  if (child == 0) std::exit(0);  // NOLINT(concurrency-mt-unsafe): it has one thread
  if (child < 0) return call.answer(Status::system("fork", "", errno));
  int state = 0;
  while (::waitpid(child, &state, 0) < 0) {
    if (errno != EINTR) return call.answer(Status::system("waitpid", "", errno));
  }
  if (WIFEXITED(state)) return call.answer("exit " + std::to_string(WEXITSTATUS(state)));
  call.answer("signal " + std::to_string(WTERMSIG(state)));
}

// ---- pages

void create_tensors(const Call& call) {
  call.answer(call.runtime.allocator().create_tensors(call.group(), call.worker.options.shape));
}

void map(const Call& call) {
  const auto mapped = call.runtime.allocator().map(call.group(), call.numbers("offsets"));
  if (!mapped.ok()) return call.answer(mapped.status());
  call.answer(Json(*mapped).dump());
}

void unmap(const Call& call) {
  call.answer(call.runtime.allocator().unmap(call.group(), call.numbers("offsets")));
}

void counts(const Call& call) {
  const KvCounts counts = call.runtime.allocator().counts();
  const Json json{{"reserved_bytes", counts.reserved_bytes},
                  {"mapped_pages", counts.mapped_pages},
                  {"quarantined_pages", counts.quarantined_pages},
                  {"pending_unmaps", counts.pending_unmaps},
                  {"degraded", counts.degraded}};
  call.answer(json.dump());
}

Result<DeviceAddress> stamped(const Call& call) {
  KV_ASSIGN_OR_RETURN(
      const DeviceAddress base,
      call.runtime.allocator().tensor(call.group(), static_cast<int>(call.number("layer", 0))));
  return base + static_cast<DeviceAddress>(call.number("offset", 0));
}

void write_stamp(const Call& call) {
  const auto address = stamped(call);
  if (!address.ok()) return call.answer(address.status());
  const std::int64_t value = call.number("value");
  call.answer(call.runtime.vmm().copy_to_device(*address, &value, sizeof value));
}

void read_stamp(const Call& call) {
  const auto address = stamped(call);
  if (!address.ok()) return call.answer(address.status());
  std::int64_t value = 0;
  const Status status = call.runtime.vmm().copy_from_device(&value, *address, sizeof value);
  if (!status.ok()) return call.answer(status);
  call.answer(std::to_string(value));
}

}  // namespace

const kvdrill_command kCommands[] = {
    {"shutdown", "Shuts the runtime down. Answers done, not_drained or failed.", command<shutdown>},
    {"start_listener", "Starts a listener: {rank, stage}, the worker's own without them.",
     command<start_listener, "rank?, stage?">},
    {"stop_listener",
     "Stops one listener: {rank, stage}, the worker's own without them. Answers as shutdown.",
     command<stop_listener, "rank?, stage?">},
    {"initialised", "Whether the runtime is up: yes or no.", command<initialised>},
    {"engine_shutdown", "Gives the engine a shutdown of its own: {throws: bool}.",
     command<engine_shutdown, "throws?: truth">},
    {"exit_in_fork", "Forks a child that calls exit(0). Answers how it ended: exit 0.",
     command<exit_in_fork>},
    {"create_tensors", "Makes the tensors of a group: {group}.", command<create_tensors, "group?">},
    {"map", "Maps pages: {offsets, group}. Answers the newly mapped ones, as [0,2097152].",
     command<map, "offsets: numbers, group?">},
    {"unmap", "Unmaps pages: {offsets, group}.", command<unmap, "offsets: numbers, group?">},
    {"counts", "The allocator's counts, as a JSON object.", command<counts>},
    {"write_stamp", "Writes 8 bytes to a page: {layer, offset, value, group}.",
     command<write_stamp, "value, layer?, offset?, group?">},
    {"read_stamp", "Reads 8 bytes of a page: {layer, offset, group}. Answers the number.",
     command<read_stamp, "layer?, offset?, group?">},
    {"build_cache",
     "Builds a cache: {bytes, shared: whether others read it}; 4 MiB of its own without them. "
     "Answers its number.",
     command<build_cache, "bytes?, shared?: truth">},
    {"stamp_cache", "Writes the stamps of all pages: {cache, value}.",
     command<stamp_cache, "cache, value">},
    {"drop_cache", "Drops a cache: {cache}. Answers done, not_drained or failed.",
     command<drop_cache, "cache">},
    {"drop_caches", "Drops all caches, as drop_cache each.", command<drop_caches>},
    {"cache_leases", "How many readers hold a cache: {cache}. Answers the number.",
     command<cache_leases, "cache">},
    {"open_cache", "Opens a producer's cache: {cache, rank: the producer's}.",
     command<open_cache, "cache, rank?">},
    {"verify_cache",
     "Reads the stamps of all pages and compares: {cache, value, rank, orphan: also without its "
     "producer}.",
     command<verify_cache, "cache, value, rank?, orphan?: truth">},
    {"release_cache", "Releases what open_cache opened: {cache, rank}.",
     command<release_cache, "cache, rank?">},
    {"broadcast",
     "Sends a request to workers at once: {request, peers: [{rank, stage}]}. Answers how each "
     "went, as [\"success\",\"deadline\"].",
     command<broadcast, "request: table, peers: list">},
    {"make_cache",
     "Makes the cache of a group: {group, pages, page_bytes, block_bytes, null_block, low, high, "
     "keeper, wait_limit: in ns, record: bool, budget: a file's name, budget_bytes, "
     "removes_budget}.",
     command<make_cache,
             "group?, pages?, page_bytes?, block_bytes?, null_block?: truth, low?, high?, "
             "keeper?: truth, wait_limit?, record?: truth, budget?: text, budget_bytes?, "
             "removes_budget?: truth">},
    {"close_cache", "Stops a group's cache and gives its pages back: {group}. Answers as shutdown.",
     command<close_cache, "group?">},
    {"alloc", "Takes blocks: {group, n}. Answers them, as [0,1], or miss.",
     command<alloc, "n, group?">},
    {"free", "Gives blocks back: {group, blocks}.",
     command<free_blocks, "blocks: numbers, group?">},
    {"reserve", "Sets blocks aside for allocations to come: {group, n}. Answers ok or miss.",
     command<reserve, "n, group?">},
    {"free_reserved", "Gives back what was set aside: {group}.", command<free_reserved, "group?">},
    {"clear", "Takes all blocks back: {group}.", command<clear, "group?">},
    {"occupancy", "Blocks in use of each open page: {group}. Answers [[page,blocks]].",
     command<occupancy, "group?">},
    {"trim", "Unmaps all ready pages: {group}.", command<trim, "group?">},
    {"set_limit",
     "Sets how many pages there may be: {group, pages, revision}. Answers applied, deferred, stale "
     "or conflict.",
     command<set_limit, "pages, revision, group?">},
    {"cache_counts",
     "Pages and blocks that are not 0: {group}. Answers free=3 used=1 total=4 wanted=4.",
     command<cache_counts, "group?">},
    {"request_limit",
     "As an outside tool: writes a limit to the record of a group: {group, bytes}. Answers its "
     "revision.",
     command<request_limit, "bytes, group?">},
    {"read_record",
     "As an outside tool: reads the record of a group: {group}. Answers total=1 used=0 ready=0 "
     "revision=0.",
     command<read_record, "group?">},
    {"cut_segment", "As somebody who means harm: cuts off a file of the segments: {name, bytes}.",
     command<cut_segment, "name: text, bytes">},
    {"write_segment",
     "As somebody who means harm: writes 64-bit numbers into a file of the segments: {name, at: a "
     "byte, numbers}.",
     command<write_segment, "name: text, at, numbers: numbers">},
    {"budget_bytes", "What the budget of a group has claimed: {group}. Answers own=1 all=2.",
     command<budget_bytes, "group?">},
    {"second_runtime", "Brings up a runtime where one is up, which is refused.",
     command<second_runtime>},
    {nullptr, nullptr, nullptr},
};

void announce_socket(const Worker& worker, std::int64_t rank, std::int64_t stage) {
  const RuntimeConfig& config = worker.options.runtime;
  const auto place = socket_place(config.socket_root, config.ipc_name, static_cast<int>(rank),
                                  static_cast<int>(stage));
  if (!place.ok()) return;  // then there is no such listener either
  if (rank == config.rank && stage == config.stage) {
    kvdrill_announce("socket", place->path.c_str());
    kvdrill_announce("socket_dir", place->directory.c_str());
    return;
  }
  const std::string fact = "socket_" + std::to_string(rank) + "_" + std::to_string(stage);
  kvdrill_announce(fact.c_str(), place->path.c_str());
}

}  // namespace kv::worker
