// From one file to its runs: the base, its arms, and the cross product of [matrix].
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "harness/scenario/loader_drill.h"
#include "harness/scenario/names.h"

namespace kv::drill {
namespace {

constexpr std::size_t kMostArms = 1000;
const std::vector<std::string> kDrillKeys = {"steps",     "clock",      "deadline", "events",
                                             "card",      "small_root", "waive",    "expect",
                                             "not_under", "reason"};

void put(Node& table, const Entry& entry) {
  for (Entry& present : table.table) {
    if (present.key == entry.key) {
      present = entry;
      return;
    }
  }
  table.table.push_back(entry);
}

void remove(Node& table, const std::string& key) {
  std::erase_if(table.table, [&](const Entry& entry) { return entry.key == key; });
}

class Variants {
 public:
  explicit Variants(Faults& faults) : faults_(faults) {}

  std::vector<Variant> read(Fields& root) {
    Variant base;
    if (const Node* params = root.table("params")) {
      for (const Entry& entry : params->table) {
        if (!is_parameter_name(entry.key)) {
          faults_.add(entry.key_place, fmt::format("\"{}\" is no name of a parameter, expected "
                                                   "letters, digits and \"_\"",
                                                   entry.key));
          continue;
        }
        base.values[entry.key] = &entry.value;
      }
    }
    if (root.require("processes", "[processes] with worker = {role = ...}") != nullptr) {
      if (const Node* processes = root.table("processes")) base.processes = *processes;
    }
    if (root.require("drill", "[drill] with steps = [...]") != nullptr) {
      if (const Node* drill = root.table("drill")) {
        base.drill = *drill;
        base.place = drill->place;
        Fields fields(*drill, "in [drill]", faults_);
        for (const std::string& key : kDrillKeys) fields.find(key);
        fields.require("steps", "a list of steps");
        fields.finish();
      }
    }
    all_.push_back(std::move(base));
    if (const Node* arms = root.list("arm")) {
      for (const Node& arm : arms->list) read_arm(arm);
    }
    if (const Node* matrix = root.table("matrix")) read_matrix(*matrix);
    return std::move(all_);
  }

 private:
  void check_name(const std::string& name, const Place& place) {
    const auto same = std::find_if(all_.begin(), all_.end(),
                                   [&](const Variant& variant) { return variant.arm == name; });
    if (same == all_.end()) return;
    faults_.add(place, fmt::format("arm \"{}\" is there already, in line {}, expected another name",
                                   name, same->place.line));
  }

  bool declared(const Entry& entry) {
    const Parameters& params = all_.front().values;
    if (params.find(entry.key) != params.end()) return true;
    std::vector<std::string> names;
    for (const auto& [name, value] : params) names.push_back(name);
    faults_.add(entry.key_place, fmt::format("unknown parameter \"{}\"{}", entry.key,
                                             expected_one(entry.key, names)));
    return false;
  }

  void read_arm(const Node& node) {
    if (!expect_kind(node, Node::Kind::kTable, "an arm", faults_)) return;
    Fields fields(node, "in [[arm]]", faults_);
    Variant arm = all_.front();
    arm.place = node.place;
    const auto name = fields.required_text("name", "a name");
    if (const Node* set = fields.table("set")) {
      for (const Entry& entry : set->table) {
        if (!declared(entry)) continue;
        arm.values[entry.key] = &entry.value;
        arm.set[entry.key] = entry.key_place;
      }
    }
    if (const Node* processes = fields.table("processes")) {
      for (const Entry& entry : processes->table) put(arm.processes, entry);
    }
    // A reason belongs to what it explains.
    const bool new_reason = node.find("expect") != nullptr || node.find("not_under") != nullptr;
    if (new_reason) remove(arm.drill, "reason");
    bool changed = !arm.set.empty() || node.find("processes") != nullptr;
    for (const std::string& key : kDrillKeys) {
      if (fields.find(key) == nullptr) continue;
      changed = true;
      const auto entry = std::find_if(node.table.begin(), node.table.end(),
                                      [&](const Entry& each) { return each.key == key; });
      put(arm.drill, *entry);
    }
    const std::size_t before = faults_.size();
    fields.finish();
    if (!changed && node.find("set") == nullptr && faults_.size() == before) {
      faults_.add(node,
                  "the arm changes nothing, expected set, steps, processes or another key of "
                  "[drill]");
    }
    arm.arm = name.value_or("without a name");
    if (name) check_name(arm.arm, fields.place("name"));
    all_.push_back(std::move(arm));
  }

  void read_matrix(const Node& matrix) {
    std::vector<const Entry*> axes;
    std::size_t arms = 1;
    for (const Entry& axis : matrix.table) {
      if (!declared(axis)) continue;
      if (!expect_kind(axis.value, Node::Kind::kList, axis.key, faults_)) continue;
      if (axis.value.list.empty()) {
        faults_.add(axis.value, fmt::format("{} has no values, expected at least one", axis.key));
        continue;
      }
      axes.push_back(&axis);
      arms *= std::min(axis.value.list.size(), kMostArms + 1);
      if (arms > kMostArms) {
        faults_.add(axis.value,
                    fmt::format("the matrix makes more than {} arms, expected fewer", kMostArms));
        return;
      }
    }
    if (axes.empty()) {
      if (matrix.table.empty()) {
        faults_.add(matrix, "[matrix] is empty, expected parameter = [values]");
      }
      return;
    }
    std::vector<std::size_t> at(axes.size(), 0);
    do {
      add_combination(matrix, axes, at);
    } while (advance(axes, at));
  }

  // The first axis turns slowest.
  static bool advance(const std::vector<const Entry*>& axes, std::vector<std::size_t>& at) {
    for (std::size_t i = axes.size(); i-- > 0;) {
      if (++at[i] < axes[i]->value.list.size()) return true;
      at[i] = 0;
    }
    return false;
  }

  void add_combination(const Node& matrix, const std::vector<const Entry*>& axes,
                       const std::vector<std::size_t>& at) {
    Variant arm = all_.front();
    arm.place = matrix.place;
    for (std::size_t i = 0; i < axes.size(); ++i) {
      const Node& value = axes[i]->value.list[at[i]];
      arm.values[axes[i]->key] = &value;
      arm.set[axes[i]->key] = axes[i]->key_place;
      arm.place = value.place;
      if (!arm.arm.empty()) arm.arm += ", ";
      arm.arm += fmt::format("{}={}", axes[i]->key,
                             value.is(Node::Kind::kText) ? value.text : shown(value));
    }
    check_name(arm.arm, arm.place);
    all_.push_back(std::move(arm));
  }

  Faults& faults_;
  std::vector<Variant> all_;
};

}  // namespace

std::vector<Variant> read_variants(Fields& root, Faults& faults) {
  return Variants(faults).read(root);
}

}  // namespace kv::drill
