// Steps about processes and the calls made in them.
#include <fmt/format.h>

#include <cstdint>

#include "harness/scenario/names.h"
#include "harness/steps/steps_reader.h"

namespace kv::drill {
namespace {

constexpr std::int64_t kHighestExitCode = 255;

std::optional<int> read_signal_name(StepReader& reader, const std::string& key) {
  const auto name = reader.fields.required_text(key, "a signal such as \"TERM\"");
  if (!name) return std::nullopt;
  const auto signal = signal_by_name(*name);
  if (!signal) {
    reader.faults.add(*reader.fields.find(key), fmt::format("unknown signal \"{}\"{}", *name,
                                                            expected_one(*name, signal_names())));
  }
  return signal;
}

}  // namespace

Deeds read_start(StepReader& reader) {
  return {{StartStep{reader.process("start")}}};
}

Deeds read_signal(StepReader& reader) {
  SignalStep step;
  step.signal = read_signal_name(reader, "signal").value_or(0);
  step.process = reader.process("to");
  return {{step}};
}

Deeds read_exit(StepReader& reader) {
  ExitStep step;
  step.process = reader.process("exit");
  step.how = reader.fields.word("how", {"return", "exit", "_exit", "abort", "quick_exit"})
                 .value_or("return");
  step.code = static_cast<int>(reader.fields.integer("code", 0, kHighestExitCode).value_or(0));
  if (const Node* code = reader.fields.find("code"); code != nullptr && step.how == "abort") {
    reader.faults.add(*code, "abort has no code, expected the step without it");
  }
  step.wait = reader.fields.boolean("wait").value_or(true);
  return {{step}};
}

Deeds read_ended(StepReader& reader) {
  EndedStep step;
  step.process = reader.process("ended");
  if (const auto code = reader.fields.integer("code", 0, kHighestExitCode)) {
    step.code = static_cast<int>(*code);
  }
  if (const Node* signal = reader.fields.find("signal")) {
    step.signal = read_signal_name(reader, "signal");
    if (reader.fields.find("code") != nullptr) {
      reader.faults.add(*signal, "code and signal exclude each other, expected one of them");
    }
  }
  return {{step}};
}

Deeds read_call(StepReader& reader) {
  CallStep step;
  step.command = reader.command("call");
  step.process = reader.in();
  step.as = reader.fields.find("as") != nullptr ? reader.name("as") : step.command;
  step.arguments = reader.arguments();
  if (step.as.empty()) reader.lost = true;
  return {{step}};
}

Deeds read_returns(StepReader& reader) {
  ReturnsStep step;
  step.as = reader.name("returns");
  step.value = reader.fields.text("value");
  step.text = reader.fields.text("text").value_or("");
  return {{step}};
}

Deeds read_pending(StepReader& reader) {
  return {{PendingStep{reader.name("pending")}}};
}

}  // namespace kv::drill
