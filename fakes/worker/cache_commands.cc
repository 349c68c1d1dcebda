#include "fakes/worker/cache_commands.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "fakes/worker/caches.h"
#include "kvcore/wire/client.h"
#include "kvcore/wire/message.h"
#include "kvcore/wire/socket_place.h"

namespace kv::worker {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kCacheBytes = 4 << 20;

Value value_of(const Json& json) {
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer()) return json.get<std::int64_t>();
  if (json.is_string()) return json.get<std::string>();
  if (json.is_array()) {
    Value::List list;
    for (const Json& item : json) list.push_back(value_of(item));
    return list;
  }
  if (json.is_object()) {
    Value::Dict dict;
    for (const auto& [key, item] : json.items()) dict.emplace_back(key, value_of(item));
    return dict;
  }
  if (json.is_null()) return {};
  throw std::runtime_error("request: " + json.dump() + " has no form on the wire");
}

// "success", or what the worker's error is about, or why there is no reply.
std::string outcome(const Result<Message>& reply) {
  if (!reply.ok()) return std::string(code_name(reply.error().code()));
  const std::string status = text_field(*reply, "status").value_or("(no status)");
  return status == "error" ? text_field(*reply, "error_type").value_or(status) : status;
}

}  // namespace

// ---- producer

void build_cache(const Call& call) {
  const auto bytes = static_cast<std::size_t>(call.number("bytes", kCacheBytes));
  const auto readers =
      call.truth("shared") ? CacheTransfer::Readers::kOthers : CacheTransfer::Readers::kOwnWorker;
  const auto cache = call.worker.caches->transfer().build(bytes, readers);
  if (!cache.ok()) return call.answer(cache.status());
  call.answer(std::to_string(cache->id));
}

void stamp_cache(const Call& call) {
  const auto cache = call.worker.caches->transfer().find(call.number("cache"));
  if (!cache.ok()) return call.answer(cache.status());
  call.answer(write_stamps(call.runtime.vmm(), cache->address, cache->bytes, call.number("value")));
}

void drop_cache(const Call& call) {
  call.answer(stop_result_name(call.worker.caches->transfer().drop(call.number("cache"))));
}

// The numbers go up by one from 1.
void drop_caches(const Call& call) {
  CacheTransfer& transfer = call.worker.caches->transfer();
  for (std::int64_t id = 1;; ++id) {
    Status why;
    const StopResult result = transfer.drop(id, &why);
    if (why.code() == Code::kNotFound) break;
    if (result != StopResult::kDone) return call.answer(stop_result_name(result));
  }
  call.answer(stop_result_name(StopResult::kDone));
}

void cache_leases(const Call& call) {
  call.answer(std::to_string(call.worker.caches->transfer().leases(call.number("cache"))));
}

// ---- reader

void open_cache(const Call& call) {
  call.answer(call.worker.caches->with_reader(call.number("rank", 0), [&](CacheReader& reader) {
    return reader.open(call.number("cache")).status();
  }));
}

void verify_cache(const Call& call) {
  call.answer(
      call.worker.caches->with_reader(call.number("rank", 0), [&](CacheReader& reader) -> Status {
        const std::int64_t cache = call.number("cache");
        KV_ASSIGN_OR_RETURN(const CacheReader::View view,
                            call.truth("orphan") ? reader.orphan(cache) : reader.view(cache));
        return verify_stamps(call.runtime.vmm(), view.address, view.bytes, call.number("value"));
      }));
}

void release_cache(const Call& call) {
  call.answer(call.worker.caches->with_reader(call.number("rank", 0), [&](CacheReader& reader) {
    return reader.release(call.number("cache"));
  }));
}

// ---- scheduler

void broadcast(const Call& call) {
  const RuntimeConfig& config = call.worker.options.runtime;
  std::vector<Peer> peers;
  for (const Json& entry : call.arguments.at("peers")) {
    const std::string wrong = entry.is_object() ? wrong_arguments(entry, "rank, stage?")
                                                : "expected tables {rank, stage?}";
    if (!wrong.empty()) throw std::runtime_error("peers: " + wrong);
    Peer peer;
    peer.rank = entry.at("rank").get<int>();
    peer.stage = entry.value("stage", 0);
    const auto place = socket_place(config.socket_root, config.ipc_name, peer.rank, peer.stage);
    if (!place.ok()) return call.answer(place.status());
    peer.socket_path = place->path;
    peers.push_back(std::move(peer));
  }
  const Value request = value_of(call.arguments.at("request"));
  Client client(*call.worker.clock);
  Json outcomes = Json::array();
  for (const auto& reply : client.broadcast(peers, *request.as_dict())) {
    outcomes.push_back(outcome(reply));
  }
  call.answer(outcomes.dump());
}

}  // namespace kv::worker
