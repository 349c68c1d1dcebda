// [[prove]]: which checks fail when which steps are skipped.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "harness/scenario/loader_drill.h"
#include "harness/scenario/names.h"
#include "harness/scenario/step_reader.h"
#include "harness/scenario/units.h"

namespace kv::drill {
namespace {

bool has(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

class Proofs {
 public:
  Proofs(const Source& source, std::vector<LoadedDrill>& drills, Faults& faults)
      : source_(source), drills_(drills), faults_(faults) {}

  void read(const Node& written) {
    if (!expect_kind(written, Node::Kind::kTable, "a proof", faults_)) return;
    LoadedDrill* drill = drill_of(written);
    if (drill == nullptr) return;
    const Node node = substitute(written, drill->values, drill->used, faults_);
    Fields fields(node, "in [[prove]]", faults_);
    fields.find("arm");
    Proof proof;
    proof.position = {source_.file, node.place.line, node.place.column};
    read_skip(fields, *drill, proof);
    read_fails(fields, *drill, proof);
    proof.not_under = read_not_under(fields, faults_);
    proof.reason = fields.text("reason").value_or("");
    fields.finish();
    if (!drill->drill.expect_fail.empty()) {
      faults_.add(node,
                  "the drill is expected to fail and can prove nothing, expected a drill "
                  "that passes");
    }
    check_twice(node, *drill, proof);
    drill->drill.proofs.push_back(std::move(proof));
  }

 private:
  LoadedDrill* drill_of(const Node& node) {
    const Node* arm = node.find("arm");
    if (arm == nullptr) return &drills_.front();
    if (!expect_kind(*arm, Node::Kind::kText, "arm", faults_)) return nullptr;
    std::vector<std::string> names;
    for (LoadedDrill& drill : drills_) {
      if (drill.drill.arm.empty()) continue;
      if (drill.drill.arm == arm->text) return &drill;
      names.push_back(drill.drill.arm);
    }
    faults_.add(*arm,
                fmt::format("unknown arm \"{}\"{}", arm->text, expected_one(arm->text, names)));
    return nullptr;
  }

  void read_skip(Fields& fields, const LoadedDrill& drill, Proof& proof) {
    fields.require("skip", "a list of steps to leave out");
    const Node* list = fields.list("skip");
    if (list == nullptr) return;
    if (list->list.empty()) faults_.add(*list, "skip is empty, expected at least one step");
    for (const Node& item : list->list) {
      if (!expect_kind(item, Node::Kind::kText, "an entry of skip", faults_)) continue;
      auto address = parse_address(item.text);
      if (!address) {
        faults_.add(item, address.error());
        continue;
      }
      std::vector<std::string> processes;
      for (const ProcessSpec& process : drill.drill.processes) processes.push_back(process.name);
      if (auto why = why_not_site(source_.engine, address->site, Use::kSkip); !why.empty()) {
        faults_.add(item, std::move(why));
      } else if (!address->process.empty() && !has(processes, address->process)) {
        faults_.add(item, fmt::format("unknown process \"{}\"{}", address->process,
                                      expected_one(address->process, processes)));
      } else if (contains(proof, *address)) {
        faults_.add(item, fmt::format("\"{}\" is skipped twice, expected it once", item.text));
      }
      proof.skip.push_back(*std::move(address));
    }
  }

  static bool contains(const Proof& proof, const Address& address) {
    return std::any_of(proof.skip.begin(), proof.skip.end(), [&](const Address& other) {
      return to_string(other) == to_string(address);
    });
  }

  void read_fails(Fields& fields, const LoadedDrill& drill, Proof& proof) {
    fields.require("fails", "a list of checks: ids of steps, or checks that every drill has");
    const Node* list = fields.list("fails");
    if (list == nullptr) return;
    if (list->list.empty()) faults_.add(*list, "fails is empty, expected at least one check");
    std::vector<std::string> known = drill.ids;
    const auto& checks = source_.language.checks;
    known.insert(known.end(), checks.begin(), checks.end());
    for (const Node& item : list->list) {
      if (!expect_kind(item, Node::Kind::kText, "an entry of fails", faults_)) continue;
      const auto waived =
          std::find_if(drill.drill.waived.begin(), drill.drill.waived.end(),
                       [&](const Waiver& waiver) { return waiver.check == item.text; });
      if (!has(known, item.text)) {
        faults_.add(
            item, fmt::format("unknown check \"{}\"{}", item.text, expected_one(item.text, known)));
      } else if (waived != drill.drill.waived.end()) {
        faults_.add(item,
                    fmt::format("{} is waived in this drill and cannot fail, expected another "
                                "check",
                                item.text));
      } else if (has(proof.fails, item.text)) {
        faults_.add(item, fmt::format("\"{}\" fails twice, expected it once", item.text));
      }
      proof.fails.push_back(item.text);
    }
  }

  void check_twice(const Node& node, const LoadedDrill& drill, const Proof& proof) {
    const auto key = [](const Proof& each) {
      std::vector<std::string> all;
      for (const Address& address : each.skip) all.push_back(to_string(address));
      std::sort(all.begin(), all.end());
      return all;
    };
    for (const Proof& other : drill.drill.proofs) {
      if (!proof.skip.empty() && key(other) == key(proof)) {
        faults_.add(node, fmt::format("the proof in line {} skips the same, expected one of them",
                                      other.position.line));
      }
    }
  }

  const Source& source_;
  std::vector<LoadedDrill>& drills_;
  Faults& faults_;
};

}  // namespace

void read_proofs(Fields& root, const Source& source, std::vector<LoadedDrill>& drills,
                 Faults& faults) {
  const Node* list = root.list("prove");
  if (list == nullptr) return;
  Proofs proofs(source, drills, faults);
  for (const Node& node : list->list) proofs.read(node);
}

}  // namespace kv::drill
