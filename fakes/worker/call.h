// A drill's command as a function of what it gets, and the answer that it gives.
//
// Threads: each call is on a thread of its own. Ownership: borrows everything.
#ifndef FAKES_WORKER_CALL_H_
#define FAKES_WORKER_CALL_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "fakes/worker/arguments.h"
#include "fakes/worker/commands.h"
#include "harness/board/kvdrill.h"
#include "kvcore/base/status.h"

namespace kv::worker {

struct Call {
  Worker& worker;
  Runtime& runtime;
  const nlohmann::json& arguments;
  kvdrill_reply* reply;

  // Of what the command takes (see command()).
  std::int64_t number(const char* key) const { return arguments.at(key).get<std::int64_t>(); }
  std::int64_t number(const char* key, std::int64_t otherwise) const {
    return arguments.value(key, otherwise);
  }
  std::int64_t group() const { return number("group", 0); }
  std::vector<std::int64_t> numbers(const char* key) const {
    return arguments.at(key).get<std::vector<std::int64_t>>();
  }
  bool truth(const char* key) const { return arguments.value(key, false); }
  std::string text(const char* key) const { return arguments.value(key, std::string()); }
  void answer(const std::string& text) const { kvdrill_answer(reply, text.c_str()); }
  void answer(const Status& status) const {
    if (!status.ok()) kvdrill_answer_error(reply, status.to_string().c_str());
  }
};

template <std::size_t N>
struct Words {
  char chars[N]{};
  constexpr Words(const char (&text)[N]) { std::copy_n(text, N, chars); }  // NOLINT: a literal
};

// Runs `body` with the arguments parsed, when they are what it takes (see arguments.h); whatever is
// wrong becomes the command's error.
template <void (*body)(const Call&), Words kTakes = "">
void command(void* engine, const char* text, kvdrill_reply* reply) {
  auto& worker = *static_cast<Worker*>(engine);
  const auto refuse = [reply](const char* why) { kvdrill_answer_error(reply, why); };
  Runtime* runtime = worker.runtime.load(std::memory_order_acquire);
  if (runtime == nullptr) return refuse("the worker is not up yet");
  try {
    const auto arguments = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!arguments.is_object()) return refuse("arguments: expected a JSON object");
    const std::string wrong = wrong_arguments(arguments, kTakes.chars);
    if (!wrong.empty()) return refuse(wrong.c_str());
    body(Call{worker, *runtime, arguments, reply});
  } catch (const std::exception& error) {
    refuse(error.what());
  }
}

}  // namespace kv::worker

#endif  // FAKES_WORKER_CALL_H_
