#include "harness/scenario/step_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "harness/scenario/names.h"
#include "harness/scenario/units.h"

namespace kv::drill {

bool StepReader::known_process(const Node& value, const std::string& name) {
  const auto names = world.process_names();
  if (std::find(names.begin(), names.end(), name) != names.end()) return true;
  lost = true;
  // Without any process that one fault was reported, and would only be repeated here.
  if (!names.empty()) {
    faults.add(value, fmt::format("unknown process \"{}\"{}", name, expected_one(name, names)));
  }
  return false;
}

std::string StepReader::process(const std::string& key) {
  const auto name = fields.required_text(key, "the name of a process");
  if (!name) lost = true;
  if (!name || !known_process(*fields.find(key), *name)) return {};
  return *name;
}

std::string StepReader::name(const std::string& key) {
  const auto name = fields.required_text(key, "a name");
  if (!name) lost = true;
  return name.value_or("");
}

std::string StepReader::in() {
  if (fields.find("in") != nullptr) return process("in");
  if (world.processes.size() == 1) return world.processes.front().name;
  if (!world.processes.empty()) {
    fields.require("in", fmt::format("{}", listed(world.process_names())));
  }
  lost = true;
  return {};
}

Address StepReader::site(const std::string& key, Use use, bool exact) {
  Address address;
  const auto text = fields.required_text(key, "the name of a point");
  const Node* value = fields.find(key);
  if (text) {
    if (auto parsed = parse_address(*text)) {
      address = *std::move(parsed);
      if (auto why = why_not_site(world.engine, address.site, use); !why.empty()) {
        faults.add(*value, std::move(why));
      }
    } else {
      faults.add(*value, parsed.error());
    }
  }
  const auto twice = [&](const std::string& what) {
    faults.add(*fields.find(what),
               fmt::format("{} is given twice, as a key and in \"{}\"", what, *text));
  };
  if (!address.process.empty()) {
    if (fields.find("in") != nullptr) twice("in");
    if (!known_process(*value, address.process)) address.process.clear();
  } else {
    address.process = in();
  }
  if (const auto thread = fields.text("thread")) {
    if (!address.thread.empty()) twice("thread");
    address.thread = *thread;
  }
  if (exact) {
    if (const auto hit = fields.integer("hit", 1, INT64_MAX)) {
      if (address.hit) twice("hit");
      address.hit = static_cast<std::uint64_t>(*hit);
    }
  }
  if (const auto number = fields.integer("key", INT64_MIN, INT64_MAX)) {
    if (address.key) twice("key");
    address.key = *number;
  }
  return address;
}

std::string StepReader::command(const std::string& key) {
  const auto name = fields.required_text(key, "a command of the engine");
  if (!name) return {};
  const auto& known = world.engine.commands;
  if (std::find(known.begin(), known.end(), *name) == known.end()) {
    faults.add(*fields.find(key),
               fmt::format("unknown command \"{}\"{}", *name, expected_one(*name, known)));
  }
  return *name;
}

Value StepReader::arguments() {
  const Node* table = fields.table("args");
  return table == nullptr ? Value(Value::Dict{}) : read_value(*table, faults);
}

std::optional<std::uint64_t> StepReader::amount(const std::string& key) {
  const auto number = fields.integer(key, 0, INT64_MAX);
  if (!number) return std::nullopt;
  return static_cast<std::uint64_t>(*number);
}

std::optional<int> StepReader::exit_code(const std::string& key) {
  constexpr std::int64_t kHighest = 255;
  const auto code = fields.integer(key, 0, kHighest);
  if (!code) return std::nullopt;
  return static_cast<int>(*code);
}

std::optional<int> StepReader::signal(const std::string& key) {
  const auto name = fields.required_text(key, "a signal such as \"TERM\"");
  if (!name) return std::nullopt;
  const auto signal = signal_by_name(*name);
  if (!signal) {
    faults.add(*fields.find(key),
               fmt::format("unknown signal \"{}\"{}", *name, expected_one(*name, signal_names())));
  }
  return signal;
}

std::vector<int> StepReader::allowed_errors() {
  std::vector<int> errors;
  const Node* list = fields.list("allow");
  if (list == nullptr) return errors;
  for (const Node& item : list->list) {
    if (!expect_kind(item, Node::Kind::kText, "an entry of allow", faults)) continue;
    if (const auto error = errno_by_name(item.text)) {
      errors.push_back(*error);
    } else {
      faults.add(item, fmt::format("unknown error \"{}\"{}", item.text,
                                   expected_one(item.text, errno_names())));
    }
  }
  return errors;
}

std::string StepReader::path(const Node& value, const std::string& what) {
  if (!expect_kind(value, Node::Kind::kText, what, faults)) return {};
  const auto names = template_names(value.text);
  if (!names) {
    faults.add(value, fmt::format("{}: {}", what, names.error()));
    return value.text;
  }
  for (const std::string& name : *names) {
    if (name == "run") continue;
    const auto dot = name.find('.');
    if (dot == std::string::npos) {
      faults.add(value, fmt::format("unknown template \"{{{}}}\", expected {{run}} or "
                                    "{{PROCESS.FACT}} such as {{worker.socket}}",
                                    name));
    } else {
      known_process(value, name.substr(0, dot));
    }
  }
  if (value.text.empty() || (value.text.front() != '/' && value.text.front() != '{')) {
    faults.add(value, fmt::format("{} = \"{}\", expected a path from the root, or beginning with "
                                  "{{run}} or {{PROCESS.FACT}}",
                                  what, value.text));
  }
  return value.text;
}

}  // namespace kv::drill
