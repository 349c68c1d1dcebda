#include "kvcore/runtime/service.h"

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kvcore/wire/pickle.h"

namespace kv {
namespace {

Message success(std::string_view status = "success") {
  return Message{{"status", Value(status)}};
}

// What every request carries beside its own fields.
struct Request {
  KvAllocator& allocator;
  const Message& message;
  std::int64_t group;
};

Message created(const Request& request) {
  Message reply = success();
  reply.emplace_back("created", request.allocator.tensors_created(request.group));
  return reply;
}

Message map(const Request& request) {
  const auto offsets = integers_field(request.message, "offsets");
  if (!offsets.ok()) return error_reply(offsets.status());
  const auto mapped = request.allocator.map(request.group, *offsets);
  if (!mapped.ok()) return error_reply(mapped.status());
  Value::List newly(mapped->begin(), mapped->end());
  Message reply = success();
  reply.emplace_back("newly_mapped_offsets", std::move(newly));
  return reply;
}

Message unmap(const Request& request) {
  const auto offsets = integers_field(request.message, "offsets");
  if (!offsets.ok()) return error_reply(offsets.status());
  const Status status = request.allocator.unmap(request.group, *offsets);
  return status.ok() ? success() : error_reply(status);
}

// With commit: true both halves in one exchange; a failure then says which half it was.
Message prepare(const Request& request) {
  const Value* field = find(request.message, "commit");
  if (field != nullptr && field->as_bool() == nullptr) {
    return error_reply(
        Status::error(Code::kProtocol, "request", "commit", 0, "expected a truth value"));
  }
  const bool commit = field != nullptr && *field->as_bool();
  const std::string_view phase = commit ? "prepare" : "";
  const auto offsets = integers_field(request.message, "offsets");
  if (!offsets.ok()) return error_reply(offsets.status(), phase);
  const auto transaction = text_view(request.message, "transaction_id");
  if (!transaction.ok()) return error_reply(transaction.status(), phase);
  Status status = request.allocator.prepare_unmap(request.group, *offsets, *transaction);
  if (!status.ok()) return error_reply(status, phase);
  if (!commit) return success("prepared");
  status = request.allocator.commit_unmap(request.group, *transaction);
  return status.ok() ? success("committed") : error_reply(status, "commit");
}

Message commit(const Request& request) {
  const auto transaction = text_view(request.message, "transaction_id");
  if (!transaction.ok()) return error_reply(transaction.status());
  const Status status = request.allocator.commit_unmap(request.group, *transaction);
  return status.ok() ? success("committed") : error_reply(status);
}

Message abort_unmap(const Request& request) {
  const auto transaction = text_view(request.message, "transaction_id");
  if (!transaction.ok()) return error_reply(transaction.status());
  const Status status = request.allocator.abort_unmap(request.group, *transaction);
  return status.ok() ? success("aborted") : error_reply(status);
}

struct Command {
  std::string_view name;
  Message (*run)(const Request&);
};
constexpr std::array<Command, 6> kCommands{{
    {"kv_tensors_created", created},
    {"map_to_kv_tensors", map},
    {"unmap_from_kv_tensors", unmap},
    {"prepare_unmap_from_kv_tensors", prepare},
    {"commit_unmap_from_kv_tensors", commit},
    {"abort_unmap_from_kv_tensors", abort_unmap},
}};

}  // namespace

Message serve_request(KvAllocator& allocator, const Message& request) {
  const auto name = text_view(request, "cmd");
  if (!name.ok()) return error_reply(name.status());
  for (const Command& command : kCommands) {
    if (command.name != *name) continue;
    const auto group = integer_field(request, "group_id", 0);
    if (!group.ok()) return error_reply(group.status());
    return command.run(Request{allocator, request, *group});
  }
  return error_reply(Status::error(Code::kInvalidArgument, "request", *name, 0, "unknown command"));
}

}  // namespace kv
