// fail: the call at the moment fails with a code, and is not made.
#include <cstdint>
#include <limits>

#include "harness/steps/give.h"

namespace kv::drill {
namespace {

// The code that a failing call gives: a number, or the name of a driver result or errno value.
std::int64_t read_code(StepReader& reader) {
  const Node* code = reader.fields.require("code",
                                           "a number other than 0, a driver result or an "
                                           "errno value");
  if (code == nullptr) return 0;
  if (code->is(Node::Kind::kInteger)) {
    // The least of all means another thing to the engine: KVDRILL_PRETEND.
    const auto number = reader.fields.integer("code", -std::numeric_limits<std::int32_t>::max(),
                                              std::numeric_limits<std::int32_t>::max());
    if (number && *number == 0) {
      reader.faults.add(*code, "code = 0, which is no failure, expected another number");
    }
    return number.value_or(0);
  }
  if (!expect_kind(*code, Node::Kind::kText, "code", reader.faults)) return 0;
  if (const auto result = result_by_name(code->text)) return *result;
  if (const auto error = errno_by_name(code->text)) return *error;
  std::vector<std::string> known = result_names();
  known.insert(known.end(), errno_names().begin(), errno_names().end());
  reader.faults.add(
      *code, fmt::format("unknown code \"{}\"{}", code->text, expected_one(code->text, known)));
  return 0;
}

}  // namespace

Deeds read_fail(StepReader& reader) {
  GiveStep step = order_at(reader, "fail", Action::kFail, Use::kFail, "fail");
  read_from(reader, step);
  step.order.code = read_code(reader);
  step.order.times = read_times(reader, 1);
  return finished_order(reader, step);
}

}  // namespace kv::drill
