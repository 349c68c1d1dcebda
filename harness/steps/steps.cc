#include "harness/steps/steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "harness/scenario/names.h"
#include "harness/steps/steps_reader.h"

namespace kv::drill {
namespace {

struct Kind {
  const char* key;
  Deeds (*read)(StepReader&);  // null: repeat, which is read here
};
constexpr std::array<Kind, 23> kKinds{{
    {"start", read_start},     {"client", read_client},   {"wait", read_wait},
    {"hold", read_hold},       {"release", read_release}, {"fail", read_fail},
    {"skip", read_skip},       {"crash", read_crash},     {"freeze", read_freeze},
    {"run", read_run},         {"call", read_call},       {"returns", read_returns},
    {"pending", read_pending}, {"exit", read_exit},       {"ended", read_ended},
    {"advance", read_advance}, {"order", read_order},     {"count", read_count},
    {"logged", read_logged},   {"file", read_file},       {"place", read_place},
    {"card", read_card},       {"repeat", nullptr},
}};
// Also a further key of crash and ended, so it decides only when no other does.
constexpr Kind kSignal{"signal", read_signal};

constexpr std::int64_t kMostRounds = 1'000'000;
constexpr std::int64_t kLongestDeadline = 3'600'000'000'000;

class Steps {
 public:
  Steps(const World& world, Faults& faults) : world_(world), faults_(faults) {}

  std::vector<Draft> read(const Node& list) {
    std::vector<Draft> drafts;
    for (const Node& item : list.list) {
      if (expect_kind(item, Node::Kind::kTable, "a step", faults_)) {
        read_one(item, drafts);
      } else {
        drafts.push_back(lost(item));
      }
    }
    return drafts;
  }

 private:
  static Draft lost(const Node& item) {
    Draft draft;
    draft.source = &item;
    draft.broken = draft.lost = true;
    return draft;
  }

  // {exit = "worker", wait = false}: there it is no step of its own.
  static bool is_wait_of_exit(const Node& item, const Entry& entry) {
    return entry.key == "wait" && entry.value.is(Node::Kind::kBool) && item.find("exit") != nullptr;
  }

  // The step's kind; null: none or several, which was reported.
  const Kind* kind_of(const Node& item) {
    const Kind* found = nullptr;
    for (const Entry& entry : item.table) {
      const auto kind = std::find_if(kKinds.begin(), kKinds.end(),
                                     [&](const Kind& known) { return entry.key == known.key; });
      if (kind == kKinds.end() || is_wait_of_exit(item, entry)) continue;
      if (found != nullptr) {
        faults_.add(entry.key_place, fmt::format("{} and {} are two steps, expected one table each",
                                                 found->key, kind->key));
        return nullptr;
      }
      found = &*kind;
    }
    if (found == nullptr && item.find(kSignal.key) != nullptr) found = &kSignal;
    if (found == nullptr) report_no_kind(item);
    return found;
  }

  void report_no_kind(const Node& item) {
    for (const Entry& entry : item.table) {
      if (entry.key == "id" || entry.key == "deadline") continue;
      faults_.add(entry.key_place, fmt::format("unknown step \"{}\"{}", entry.key,
                                               expected_one(entry.key, step_kinds())));
      return;
    }
    faults_.add(item, fmt::format("a step without a deed, expected {}", listed(step_kinds())));
  }

  void read_one(const Node& item, std::vector<Draft>& drafts) {
    const std::size_t faults_before = faults_.size();
    const Kind* kind = kind_of(item);
    if (kind == nullptr) {
      drafts.push_back(lost(item));
      return;
    }
    Fields fields(item, fmt::format("in a {} step", kind->key), faults_);
    StepReader reader(fields, world_, faults_);
    fields.find(kind->key);
    std::vector<Draft> body;
    Deeds deeds = kind->read != nullptr ? kind->read(reader) : repeat(fields, body);
    std::optional<std::string> id;
    if (item.find("id") != nullptr) id = fields.required_text("id", "the check's name");
    fields.find("id");
    const auto deadline = fields.duration("deadline");
    if (deadline && (*deadline == 0 || *deadline > kLongestDeadline)) {
      faults_.add(*item.find("deadline"), "deadline is out of range, expected up to \"1h\"");
    }
    fields.finish();
    for (ReadDeed& read : deeds) {
      Draft draft;
      draft.source = &item;
      draft.broken = faults_.size() != faults_before;
      draft.lost = reader.lost;
      draft.step.text = read.text.empty() ? describe(read.deed) : std::move(read.text);
      draft.step.position = {world_.file, item.place.line, item.place.column};
      draft.step.deadline_ns = deadline;
      draft.step.deed = std::move(read.deed);
      drafts.push_back(std::move(draft));
    }
    if (deeds.empty()) drafts.push_back(lost(item));
    drafts.back().step.id = id.value_or("");
    drafts.back().body = std::move(body);
  }

  Deeds repeat(Fields& fields, std::vector<Draft>& body) {
    RepeatStep step;
    step.times = static_cast<std::uint64_t>(fields.integer("repeat", 1, kMostRounds).value_or(1));
    if (fields.require("steps", "a list of steps") != nullptr) {
      if (const Node* list = fields.list("steps")) {
        body = read(*list);
        if (body.empty()) faults_.add(*list, "steps is empty, expected at least one step");
      }
    }
    return {{step}};
  }

  const World& world_;
  Faults& faults_;
};

std::string kind_of_site(const Engine& engine, const std::string& site) {
  const auto in = [&](const std::vector<std::string>& names) {
    return std::find(names.begin(), names.end(), site) != names.end();
  };
  if (in(engine.faults)) return "fault";
  if (in(engine.steps)) return "step";
  if (in(engine.points)) return "point";
  if (in(engine.notes)) return "note";
  return {};
}

std::vector<std::string> usable(const Engine& engine, Use use) {
  if (use == Use::kFail) return engine.faults;
  if (use == Use::kSkip) return engine.steps;
  std::vector<std::string> names = engine.points;
  names.insert(names.end(), engine.faults.begin(), engine.faults.end());
  names.insert(names.end(), engine.steps.begin(), engine.steps.end());
  if (use == Use::kWatch) names.insert(names.end(), engine.notes.begin(), engine.notes.end());
  return names;
}

}  // namespace

const std::vector<std::string>& step_kinds() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const Kind& kind : kKinds) names.emplace_back(kind.key);
    names.emplace_back(kSignal.key);
    return names;
  }();
  return kNames;
}

std::string why_not_site(const Engine& engine, const std::string& site, Use use) {
  constexpr std::string_view kDone = ".done";
  std::string kind = kind_of_site(engine, site);
  std::string base = site;
  bool done = false;
  if (kind.empty() && site.size() > kDone.size() && site.ends_with(kDone)) {
    base = site.substr(0, site.size() - kDone.size());
    kind = kind_of_site(engine, base);
    done = true;
  }
  const char* wanted = use == Use::kFail ? "fault" : use == Use::kSkip ? "step" : "point";
  if (kind.empty()) {
    const std::string& word = done ? base : site;
    return fmt::format("unknown {} \"{}\"{}", wanted, site,
                       expected_one(word, usable(engine, use)));
  }
  if (done && (kind == "point" || kind == "note")) {
    return fmt::format(
        "\"{}\": {} is a {} and has no end, expected a fault or a step before "
        ".done",
        site, base, kind);
  }
  if (use == Use::kAct && kind == "note") {
    return fmt::format(
        "\"{}\" is a note, which nothing can act on, expected a point, a fault or "
        "a step",
        site);
  }
  if ((use == Use::kFail || use == Use::kSkip) && (kind != wanted || done)) {
    return fmt::format("\"{}\" is {}{}", site, done ? "the end of a " : "a ",
                       kind + expected_one(base, usable(engine, use)));
  }
  return {};
}

std::vector<std::string> World::process_names() const {
  std::vector<std::string> names;
  for (const ProcessSpec& process : processes) names.push_back(process.name);
  return names;
}

Place Draft::place(std::string_view key) const {
  const Node* value = source->find(key);
  return value == nullptr ? source->place : value->place;
}

std::vector<Draft> read_steps(const Node& list, const World& world, Faults& faults) {
  return Steps(world, faults).read(list);
}

std::vector<Step> finished(const std::vector<Draft>& drafts) {
  std::vector<Step> steps;
  for (const Draft& draft : drafts) {
    steps.push_back(draft.step);
    if (auto* repeat = std::get_if<RepeatStep>(&steps.back().deed)) {
      repeat->steps = finished(draft.body);
    }
  }
  return steps;
}

}  // namespace kv::drill
