// JSON text of a Value, both ways. The reader is nlohmann's event parser, so that a text can be
// refused (doubled keys, depth) before a tree of it exists.
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>

#include "harness/wire/wire.h"

namespace kv::drill {

namespace {

constexpr std::size_t kDeepest = 64;

// The length of the well-formed UTF-8 sequence at `at`, or 0.
std::size_t sequence_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const auto follows = [&](std::size_t i, unsigned low = 0x80, unsigned high = 0xbf) {
    return byte(i) >= low && byte(i) <= high;
  };
  const unsigned lead = byte(at);
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead <= 0xdf) return follows(at + 1) ? 2 : 0;
  if (lead >= 0xe0 && lead <= 0xef) {
    const unsigned low = lead == 0xe0 ? 0xa0 : 0x80;
    const unsigned high = lead == 0xed ? 0x9f : 0xbf;  // no surrogates
    return follows(at + 1, low, high) && follows(at + 2) ? 3 : 0;
  }
  if (lead >= 0xf0 && lead <= 0xf4) {
    const unsigned low = lead == 0xf0 ? 0x90 : 0x80;
    const unsigned high = lead == 0xf4 ? 0x8f : 0xbf;
    return follows(at + 1, low, high) && follows(at + 2) && follows(at + 3) ? 4 : 0;
  }
  return 0;
}

void write_text(std::string_view text, std::string* out) {
  out->push_back('"');
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const std::size_t length = sequence_length(text, at);
    if (byte == '"' || byte == '\\') {
      out->push_back('\\');
      out->push_back(text[at]);
    } else if (byte == '\n') {
      out->append("\\n");
    } else if (byte == '\t') {
      out->append("\\t");
    } else if (byte < 0x20 || byte == 0x7f) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(byte));
      out->append(escaped);
    } else if (length == 0) {
      out->append("\\ufffd");  // a byte that is not UTF-8: JSON has no way to say which
    } else {
      out->append(text.substr(at, length));
    }
    at += length == 0 ? 1 : length;
  }
  out->push_back('"');
}

void write(const Value& value, std::string* out) {
  if (const auto* truth = std::get_if<bool>(&value.data)) {
    out->append(*truth ? "true" : "false");
  } else if (const auto* number = std::get_if<std::int64_t>(&value.data)) {
    out->append(std::to_string(*number));
  } else if (const auto* real = std::get_if<double>(&value.data)) {
    out->append(nlohmann::json(*real).dump());  // as short as reads back the same, with its point
  } else if (const auto* text = std::get_if<std::string>(&value.data)) {
    write_text(*text, out);
  } else if (const auto* list = std::get_if<Value::List>(&value.data)) {
    out->push_back('[');
    for (std::size_t i = 0; i < list->size(); ++i) {
      if (i != 0) out->append(", ");
      write((*list)[i], out);
    }
    out->push_back(']');
  } else if (const auto* fields = std::get_if<Value::Dict>(&value.data)) {
    out->push_back('{');
    for (std::size_t i = 0; i < fields->size(); ++i) {
      if (i != 0) out->append(", ");
      write_text((*fields)[i].first, out);
      out->append(": ");
      write((*fields)[i].second, out);
    }
    out->push_back('}');
  } else {
    out->append("null");
  }
}

// Builds a Value from nlohmann's events; every method answers whether to go on.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return add(Value()); }
  bool boolean(bool value) override { return add(Value(value)); }
  bool number_integer(number_integer_t value) override { return add(Value(std::int64_t{value})); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return refuse(std::to_string(value) + " does not fit into 64 bits with a sign");
    }
    return add(Value(static_cast<std::int64_t>(value)));
  }
  bool number_float(number_float_t value, const string_t& text) override {
    if (text.find_first_of(".eE") != std::string::npos) return add(Value(value));
    return refuse(text + " is not an integer of 64 bits");
  }
  bool string(string_t& text) override { return add(Value(std::move(text))); }
  bool binary(binary_t&) override { return refuse("binary data cannot stand in JSON"); }
  bool start_object(std::size_t) override { return open(Value(Value::Dict())); }
  bool key(string_t& text) override {
    if (open_.back().value.find(text) != nullptr)
      return refuse("the key '" + text + "' is doubled");
    open_.back().key = std::move(text);
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(Value(Value::List())); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    // The library's text begins with its own number and name of the error, and its place.
    std::string text = error.what();
    if (const auto colon = text.find(": "); colon != std::string::npos) text.erase(0, colon + 2);
    return refuse("byte " + std::to_string(position) + ": " + text);
  }

  tl::expected<Value, std::string> result(bool whole) {
    if (!why_.empty()) return tl::unexpected(why_);
    if (!whole) return tl::unexpected<std::string>("not a JSON text");
    return std::move(result_);
  }

 private:
  struct Open {
    Value value;
    std::string key;  // the one whose value comes next
  };

  bool refuse(std::string why) {
    why_ = std::move(why);
    return false;
  }
  bool open(Value value) {
    if (open_.size() == kDeepest) {
      return refuse("nested deeper than " + std::to_string(kDeepest) + " levels");
    }
    open_.push_back({std::move(value), {}});
    return true;
  }
  bool close() {
    Value value = std::move(open_.back().value);
    open_.pop_back();
    return add(std::move(value));
  }
  bool add(Value value) {
    if (open_.empty()) {
      result_ = std::move(value);
    } else if (auto* list = std::get_if<Value::List>(&open_.back().value.data)) {
      list->push_back(std::move(value));
    } else {
      std::get<Value::Dict>(open_.back().value.data)
          .emplace_back(std::move(open_.back().key), std::move(value));
    }
    return true;
  }

  std::vector<Open> open_;
  Value result_;
  std::string why_;
};

}  // namespace

std::string to_json(const Value& value) {
  std::string out;
  write(value, &out);
  return out;
}

tl::expected<Value, std::string> from_json(std::string_view text) {
  Builder builder;
  const bool whole = nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  return builder.result(whole);
}

}  // namespace kv::drill
