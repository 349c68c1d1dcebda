// Steps of a client: a raw connection to a listener, played by the supervisor.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "harness/scenario/names.h"
#include "harness/steps/steps_reader.h"
#include "harness/scenario/units.h"
#include "harness/wire/wire.h"

namespace kv::drill {
namespace {

void read_connect(StepReader& reader, const std::string& client, Deeds& deeds) {
  ConnectStep step;
  step.client = client;
  const auto target = reader.fields.required_text("connect", "a process or a path");
  if (!target) reader.lost = true;
  if (target && target->find_first_of("/{") != std::string::npos) {
    step.path = reader.path(*reader.fields.find("connect"), "connect");
  } else if (target) {
    step.process = reader.process("connect");
  }
  step.refused = reader.fields.boolean("refused").value_or(false);
  deeds.push_back({step});
}

// "map_to_kv_tensors" of a request, for the step's text.
std::string request_name(const Value& request) {
  const Value* command = request.find("cmd");
  const auto* text = command == nullptr ? nullptr : std::get_if<std::string>(&command->data);
  return text == nullptr ? std::string("a request") : *text;
}

void read_send(StepReader& reader, const std::string& client, Deeds& deeds) {
  SendStep step;
  step.client = client;
  std::string what;
  if (reader.fields.node().find("send") != nullptr) {
    if (const Node* table = reader.fields.table("send")) {
      const Value request = read_value(*table, reader.faults);
      step.bytes = frame(pickle(request));
      what = request_name(request);
    }
  } else if (const auto hex = reader.fields.text("send_bytes")) {
    auto bytes = parse_hex(*hex);
    if (bytes && bytes->empty()) bytes = tl::unexpected(std::string("no byte, expected some"));
    if (bytes) {
      step.bytes = *std::move(bytes);
      what = fmt::format("{} bytes", step.bytes.size());
    } else {
      reader.faults.add(*reader.fields.find("send_bytes"),
                        fmt::format("send_bytes: {}", bytes.error()));
    }
  }
  if (const auto first = reader.fields.integer("first", 0, INT64_MAX)) {
    step.first = static_cast<std::uint64_t>(*first);
    if (!step.bytes.empty() && *step.first > step.bytes.size()) {
      reader.faults.add(*reader.fields.find("first"),
                        fmt::format("first = {}, expected at most {}, the length of what is sent",
                                    *first, step.bytes.size()));
    }
  }
  step.allow = reader.allowed_errors();
  std::string text = fmt::format("{} sends {}", client, what);
  if (step.first) text += fmt::format(", the first {} of {} bytes", *step.first, step.bytes.size());
  deeds.push_back({std::move(step), std::move(text)});
}

ExpectReplyStep reply_with(StepReader& reader, const std::string& client, const Node& fields) {
  return {client, read_value(fields, reader.faults)};
}

void read_request(StepReader& reader, const std::string& client, Deeds& deeds) {
  const Node* request = reader.fields.table("request");
  reader.fields.require("reply", "what the answer holds, as in {status = \"success\"}");
  const Node* reply = reader.fields.table("reply");
  if (request == nullptr || reply == nullptr) return;
  SendStep step;
  step.client = client;
  const Value value = read_value(*request, reader.faults);
  step.bytes = frame(pickle(value));
  deeds.push_back({std::move(step), fmt::format("{} sends {}", client, request_name(value))});
  deeds.push_back({reply_with(reader, client, *reply)});
}

void read_expect(StepReader& reader, const std::string& client, Deeds& deeds) {
  const Node* what = reader.fields.find("expect");
  if (what->is(Node::Kind::kTable)) {
    deeds.push_back({reply_with(reader, client, *what)});
  } else if (what->is(Node::Kind::kText) && what->text == "eof") {
    deeds.push_back({ExpectEndStep{client}});
  } else if (what->is(Node::Kind::kText) && what->text == "nothing") {
    deeds.push_back({ExpectNothingStep{client}});
  } else {
    const std::string near =
        what->is(Node::Kind::kText) ? nearest(what->text, {"eof", "nothing"}) : "";
    reader.faults.add(
        *what, fmt::format("expect = {}, expected \"eof\", \"nothing\" or the "
                           "fields of a reply in braces{}",
                           shown(*what), near.empty() ? "" : fmt::format(" (nearest: {})", near)));
  }
}

// A flag that is a step of its own: true, or nothing.
bool read_flag(StepReader& reader, const std::string& key) {
  const auto flag = reader.fields.boolean(key);
  if (flag && !*flag) {
    reader.faults.add(*reader.fields.find(key),
                      fmt::format("{} = false, expected true or no such step", key));
  }
  return flag.value_or(false);
}

void read_verb(StepReader& reader, const std::string& client, const std::string& verb,
               Deeds& deeds) {
  if (verb == "connect") {
    read_connect(reader, client, deeds);
  } else if (verb == "send" || verb == "send_bytes") {
    reader.fields.find(verb);
    read_send(reader, client, deeds);
  } else if (verb == "request") {
    read_request(reader, client, deeds);
  } else if (verb == "expect") {
    read_expect(reader, client, deeds);
  } else if (verb == "send_rest") {
    read_flag(reader, verb);
    SendRestStep step{client, reader.allowed_errors(), std::nullopt};
    if (const auto first = reader.fields.integer("first", 1, INT64_MAX)) {
      step.first = static_cast<std::uint64_t>(*first);
    }
    deeds.push_back({std::move(step)});
  } else {
    read_flag(reader, verb);
    deeds.push_back({CloseStep{client, verb == "half_close"}});
  }
}

}  // namespace

Deeds read_client(StepReader& reader) {
  static const std::vector<std::string> kVerbs = {"connect", "send",   "send_bytes", "send_rest",
                                                  "request", "expect", "close",      "half_close"};
  const std::string client = reader.name("client");
  const Entry* verb = nullptr;
  for (const Entry& entry : reader.fields.node().table) {
    if (std::find(kVerbs.begin(), kVerbs.end(), entry.key) == kVerbs.end()) continue;
    if (verb != nullptr) {
      reader.faults.add(entry.key_place, fmt::format("{} and {} are two steps, expected one table "
                                                     "each",
                                                     verb->key, entry.key));
      for (const Entry& each : reader.fields.node().table) reader.fields.find(each.key);
      reader.lost = true;
      return {};
    }
    verb = &entry;
  }
  Deeds deeds;
  if (verb == nullptr) {
    // So that a misspelled verb finds its word.
    for (const std::string& known : kVerbs) reader.fields.find(known);
    const auto& table = reader.fields.node().table;
    const bool others = std::any_of(table.begin(), table.end(), [](const Entry& entry) {
      return entry.key != "client" && entry.key != "id" && entry.key != "deadline";
    });
    if (!others) {
      reader.faults.add(reader.fields.node(), fmt::format("a client step without a deed, expected "
                                                          "{}",
                                                          listed(kVerbs)));
    }
    reader.lost = true;
    return {};
  }
  read_verb(reader, client, verb->key, deeds);
  if (deeds.empty()) reader.lost = true;
  return deeds;
}

}  // namespace kv::drill
