// A drill's command as a function of what it gets, and the answer that it gives.
//
// Threads: each call is on a thread of its own. Ownership: borrows everything.
#ifndef FAKES_WORKER_CALL_H_
#define FAKES_WORKER_CALL_H_

#include <cstdint>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "fakes/worker/commands.h"
#include "harness/board/kvdrill.h"
#include "kvcore/base/status.h"

namespace kv::worker {

struct Call {
  Worker& worker;
  Runtime& runtime;
  const nlohmann::json& arguments;
  kvdrill_reply* reply;

  std::int64_t integer(const char* key, std::int64_t fallback) const {
    return arguments.value(key, fallback);
  }
  std::int64_t integer(const char* key) const { return arguments.at(key).get<std::int64_t>(); }
  std::vector<std::int64_t> offsets() const {
    return arguments.at("offsets").get<std::vector<std::int64_t>>();
  }
  void answer(const std::string& text) const { kvdrill_answer(reply, text.c_str()); }
  void answer(const Status& status) const {
    if (!status.ok()) kvdrill_answer_error(reply, status.to_string().c_str());
  }
};

// Runs `body` with the arguments parsed; whatever is wrong becomes the command's error.
template <void (*body)(const Call&)>
void command(void* engine, const char* text, kvdrill_reply* reply) {
  auto& worker = *static_cast<Worker*>(engine);
  Runtime* runtime = worker.runtime.load(std::memory_order_acquire);
  if (runtime == nullptr) {
    kvdrill_answer_error(reply, "the worker is not up yet");
    return;
  }
  try {
    const auto arguments = nlohmann::json::parse(text);
    if (!arguments.is_object()) {
      kvdrill_answer_error(reply, "arguments: expected a JSON object");
      return;
    }
    body(Call{worker, *runtime, arguments, reply});
  } catch (const std::exception& error) {
    kvdrill_answer_error(reply, error.what());
  }
}

}  // namespace kv::worker

#endif  // FAKES_WORKER_CALL_H_
