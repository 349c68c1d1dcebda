// From the tables of a list to drafts of steps: which step each is, and what all steps share.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "harness/scenario/names.h"
#include "harness/scenario/step_reader.h"

namespace kv::drill {
namespace {

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
  static bool is_key_of_another(const StepKind& kind, const Node& item) {
    return std::any_of(kind.key_of.begin(), kind.key_of.end(),
                       [&item](std::string_view word) { return item.find(word) != nullptr; });
  }

  // The step's kind; null: none or several, which was reported.
  const StepKind* kind_of(const Node& item) {
    const StepKind* found = nullptr;
    for (const Entry& entry : item.table) {
      const auto& kinds = world_.language.steps;
      const auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const StepKind& known) {
        return entry.key == known.word;
      });
      if (kind == kinds.end() || is_key_of_another(*kind, item)) continue;
      if (found != nullptr) {
        faults_.add(entry.key_place, fmt::format("{} and {} are two steps, expected one table each",
                                                 found->word, kind->word));
        return nullptr;
      }
      found = &*kind;
    }
    if (found == nullptr) report_no_kind(item);
    return found;
  }

  void report_no_kind(const Node& item) {
    for (const Entry& entry : item.table) {
      if (entry.key == "id" || entry.key == "deadline") continue;
      faults_.add(entry.key_place, fmt::format("unknown step \"{}\"{}", entry.key,
                                               expected_one(entry.key, world_.language.words())));
      return;
    }
    faults_.add(item,
                fmt::format("a step without a deed, expected {}", listed(world_.language.words())));
  }

  void read_one(const Node& item, std::vector<Draft>& drafts) {
    const std::size_t faults_before = faults_.size();
    const StepKind* kind = kind_of(item);
    if (kind == nullptr) {
      drafts.push_back(lost(item));
      return;
    }
    Fields fields(item, fmt::format("in a {} step", kind->word), faults_);
    StepReader reader(fields, world_, faults_);
    fields.find(std::string(kind->word));
    Deeds deeds = kind->read(reader);
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
      draft.step.text = read.text.empty() ? read.deed.text() : std::move(read.text);
      draft.step.position = {world_.file, item.place.line, item.place.column};
      draft.step.deadline_ns = deadline;
      draft.step.deed = std::move(read.deed);
      draft.step.rounds = read.rounds;
      draft.body = std::move(read.body);
      drafts.push_back(std::move(draft));
    }
    if (deeds.empty()) drafts.push_back(lost(item));
    drafts.back().step.id = id.value_or("");
  }

  const World& world_;
  Faults& faults_;
};

void foretell(const std::vector<Step>& steps, Ahead* ahead) {
  for (const Step& step : steps) {
    step.deed.foretell(*ahead);
    foretell(step.body, ahead);
  }
}

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
    steps.back().body = finished(draft.body);
  }
  return steps;
}

Ahead foretold(const std::vector<Step>& steps) {
  Ahead ahead;
  foretell(steps, &ahead);
  return ahead;
}

}  // namespace kv::drill
