// one_of: of several calls exactly one wins.
#include <algorithm>
#include <utility>

#include "harness/steps/parts.h"

namespace kv::drill {
namespace {

struct OneOfStep {
  std::vector<std::string> calls;
  std::string value;                  // what exactly one of them answers
  std::optional<std::string> others;  // what the rest answers; unset: anything else

  std::string text() const {
    return fmt::format("one of {} returns {}{}", fmt::join(calls, ", "), value,
                       others ? ", the others " + *others : "");
  }
  bool only_looks() const { return true; }

  void check(Flow& flow) const {
    for (const std::string& name : calls) {
      if (auto* call = flow.call_out(name, "one_of")) *call = {false, flow.line()};
    }
  }

  static std::string answer(const ScriptedCall& call) {
    return call.failed ? std::string("error") : call.answer;
  }

  Outcome carry_out(Executor& executor) const {
    std::vector<const ScriptedCall*> all;
    for (const std::string& name : calls) {
      all.push_back(executor.situation().find_call(name));
      if (all.back() == nullptr || !all.back()->delivered) return {Outcome::How::kNotJudged, {}};
    }
    Outcome outcome;
    for (const ScriptedCall* call : all) {
      outcome = executor.wait_for([call] { return call->returned; },
                                  [&] { return executor.nobody_left(call->process); });
      if (outcome.how != Outcome::How::kDone) return outcome;
    }
    const auto winners = std::count_if(all.begin(), all.end(),
                                       [this](const auto* call) { return answer(*call) == value; });
    const bool rest = std::all_of(all.begin(), all.end(), [this](const auto* call) {
      return !others || answer(*call) == value || answer(*call) == *others;
    });
    if (winners == 1 && rest) return {};
    std::string got;
    for (const ScriptedCall* call : all) {
      got += fmt::format("{}{} returned {}'{}'", got.empty() ? "" : ", ", call->name,
                         call->failed ? "the error " : "", call->answer);
    }
    return wrong(fmt::format("{}; expected '{}' of exactly one{}", got, value,
                             others ? fmt::format(" and '{}' of the others", *others) : ""));
  }
};

}  // namespace

Deeds read_one_of(StepReader& reader) {
  OneOfStep step;
  step.calls = reader.fields.texts("one_of").value_or(std::vector<std::string>());
  const Node* list = reader.fields.find("one_of");
  if (list->is(Node::Kind::kList) && list->list.size() < 2) {
    reader.faults.add(*list, "one_of has fewer than two calls, expected at least two");
  }
  step.value = reader.fields.required_text("value", "the answer of the one that wins").value_or("");
  step.others = reader.fields.text("others");
  if (step.others == step.value) {
    reader.faults.add(*reader.fields.find("others"),
                      "the others answer what the one does, expected another text");
  }
  return {{std::move(step)}};
}

}  // namespace kv::drill
