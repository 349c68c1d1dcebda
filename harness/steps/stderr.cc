// stderr: what a process wrote to its standard error: nothing at all, or a text.
#include <utility>

#include "harness/steps/parts.h"

namespace kv::drill {
namespace {

struct StderrStep {
  std::string process;
  std::string part;  // it holds this; empty: it is empty, and stays so until nobody can move

  std::string text() const {
    return part.empty() ? fmt::format("stderr of {} is empty", process)
                        : fmt::format("stderr of {} holds \"{}\"", process, part);
  }
  bool only_looks() const { return true; }
  void check(Flow& flow) const { flow.was_started(process, "stderr"); }

  Outcome carry_out(Executor& executor) const {
    Instance* instance = executor.situation().find(process);
    if (instance == nullptr) return {Outcome::How::kNotJudged, {}};
    tl::expected<std::string, std::string> said;
    const auto read = [&] {
      instance->err.settle();
      said = read_output(instance->stderr_path);
      return said.has_value();
    };
    if (!read()) return {Outcome::How::kBroken, said.error()};
    if (part.empty()) {
      Outcome settled = executor.settle(process + " can still write to its standard error",
                                        [&] { return !read() || !said->empty(); });
      if (settled.how != Outcome::How::kDone) return settled;
      if (!read()) return {Outcome::How::kBroken, said.error()};
      if (said->empty()) return {};
      return wrong(fmt::format("{} wrote to its standard error: {}", process, words_of(*instance)));
    }
    Outcome outcome =
        executor.wait_for([&] { return read() && said->find(part) != std::string::npos; },
                          [&] { return executor.nobody_left(process); });
    if (outcome.how == Outcome::How::kHung || outcome.how == Outcome::How::kHopeless) {
      return wrong(fmt::format("the standard error of {} does not hold '{}': {}; {}", process, part,
                               words_of(*instance), outcome.why));
    }
    return outcome;
  }
};

}  // namespace

Deeds read_stderr(StepReader& reader) {
  StderrStep step;
  step.process = reader.process("stderr");
  const bool empty = reader.fields.word("is", {"empty"}).has_value();
  const Node* holds = reader.fields.find("holds");
  if (holds != nullptr)
    step.part = reader.fields.required_text("holds", "a part of it").value_or("");
  if (holds != nullptr && empty) {
    reader.faults.add(*holds, "is and holds exclude each other, expected one of them");
  } else if (holds == nullptr && reader.fields.find("is") == nullptr) {
    reader.faults.add(reader.fields.node(),
                      "stderr of what kind, expected is = \"empty\" or holds");
  }
  return {{std::move(step)}};
}

}  // namespace kv::drill
