// client: a raw connection, played by the harness; what it does is said by a verb.
#include "harness/steps/client.h"

#include <algorithm>
#include <cstring>

namespace kv::drill {
namespace {

struct Verb {
  const char* word;
  ClientDeeds read;
};
constexpr Verb kVerbs[] = {
    {"connect", read_connect}, {"send", read_send},
    {"send_bytes", read_send}, {"send_rest", read_send_rest},
    {"request", read_request}, {"expect", read_expect},
    {"close", read_close},     {"half_close", read_half_close},
};

// The step's verb; null: none or several, which was reported.
const Verb* verb_of(StepReader& reader) {
  const Verb* found = nullptr;
  for (const Entry& entry : reader.fields.node().table) {
    const auto* verb = std::find_if(std::begin(kVerbs), std::end(kVerbs),
                                    [&](const Verb& one) { return entry.key == one.word; });
    if (verb == std::end(kVerbs)) continue;
    if (found != nullptr) {
      reader.faults.add(entry.key_place, fmt::format("{} and {} are two steps, expected one table "
                                                     "each",
                                                     found->word, verb->word));
      for (const Entry& each : reader.fields.node().table) reader.fields.find(each.key);
      return nullptr;
    }
    found = verb;
  }
  if (found != nullptr) return found;
  std::vector<std::string> words;
  for (const Verb& known : kVerbs) words.emplace_back(known.word);
  // So that a misspelled verb finds its word.
  for (const std::string& known : words) reader.fields.find(known);
  const auto& table = reader.fields.node().table;
  const bool others = std::any_of(table.begin(), table.end(), [](const Entry& entry) {
    return entry.key != "client" && entry.key != "id" && entry.key != "deadline";
  });
  if (!others) {
    reader.faults.add(reader.fields.node(),
                      fmt::format("a client step without a deed, expected {}", listed(words)));
  }
  return nullptr;
}

}  // namespace

Deeds read_client(StepReader& reader) {
  const std::string client = reader.name("client");
  const Verb* verb = verb_of(reader);
  Deeds deeds;
  if (verb != nullptr) {
    reader.fields.find(verb->word);
    deeds = verb->read(reader, client);
  }
  if (deeds.empty()) reader.lost = true;
  return deeds;
}

void read_flag(StepReader& reader, const std::string& key) {
  const auto flag = reader.fields.boolean(key);
  if (flag && !*flag) {
    reader.faults.add(*reader.fields.find(key),
                      fmt::format("{} = false, expected true or no such step", key));
  }
}

std::string error_name(int error) {
  const char* name = ::strerrorname_np(error);
  return name == nullptr ? fmt::format("error {}", error)
                         : fmt::format("{} ({})", name, std::strerror(error));
}

}  // namespace kv::drill
