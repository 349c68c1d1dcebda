// file: looks at a path, once nobody can move.
#include "harness/steps/parts.h"

namespace kv::drill {
namespace {

struct FileStep {
  enum class State { kPresent, kAbsent, kSocket, kSame };
  std::string path;  // with {run} and {PROCESS.FACT}
  State state = State::kPresent;
  // kPresent, kSocket: remembers device and inode under this name; kSame: compares.
  std::string as;

  std::string text() const {
    static const char* const kStates[] = {"present", "absent", "a socket", "the same as "};
    return fmt::format("file {} is {}{}", path, kStates[static_cast<int>(state)],
                       state == State::kSame ? as : "");
  }
  bool only_looks() const { return true; }

  void check(Flow& flow) const {
    flow.started_templates(path, "file");
    if (as.empty()) return;
    if (state != State::kSame) {
      flow.marks[as] = {true, flow.line()};
    } else if (flow.marks.find(as) == flow.marks.end()) {
      flow.refuse("as", fmt::format("no file was remembered as \"{}\", expected a file step with "
                                    "that as before{}",
                                    as, near_key(as, flow.marks)));
    }
  }

  Outcome carry_out(Executor& executor) const {
    Outcome settled = executor.settle("a file stays as it is");
    if (settled.how != Outcome::How::kDone) return settled;
    const auto where = executor.expand(path);
    if (!where) return wrong(where.error());
    const FileId id = identify(*where);
    if (state == State::kAbsent) {
      return id.exists ? wrong(*where + " is there") : Outcome{};
    }
    if (state == State::kSame) {
      const auto known = executor.remembered().find(as);
      if (known == executor.remembered().end()) return {Outcome::How::kNotJudged, {}};
      if (!id.exists) return wrong(*where + " is gone");
      if (known->second == id) return {};
      return wrong(fmt::format("{} is another file (inode {}, before {})", *where, id.inode,
                               known->second.inode));
    }
    if (!id.exists) return wrong(*where + " is not there");
    if (state == State::kSocket && !id.is_socket) return wrong(*where + " is no socket");
    if (!as.empty()) executor.remembered()[as] = id;
    return {};
  }
};

}  // namespace

Deeds read_file(StepReader& reader) {
  using State = FileStep::State;
  FileStep step;
  step.path = reader.path(*reader.fields.find("file"), "file");
  std::string state = "present";
  if (reader.fields.require("is", "present, absent, socket or same") != nullptr) {
    state = reader.fields.word("is", {"present", "absent", "socket", "same"}).value_or(state);
  }
  if (state == "absent") step.state = State::kAbsent;
  if (state == "socket") step.state = State::kSocket;
  if (state == "same") step.state = State::kSame;
  if (const Node* as = reader.fields.find("as")) {
    step.as = reader.name("as");
    if (step.state == State::kAbsent) {
      reader.faults.add(*as, "an absent file cannot be remembered, expected the step without as");
    }
  } else if (step.state == State::kSame) {
    reader.fields.require("as", "the name under which an earlier file step remembered it");
  }
  return {{step}};
}

}  // namespace kv::drill
