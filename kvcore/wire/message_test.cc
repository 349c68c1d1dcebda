#include "kvcore/wire/message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kv {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Message& request() {
  static const Message message = {{"cmd", "map_to_kv_tensors"},
                                  {"offsets", Value::List{0, 2097152}},
                                  {"group_id", 3},
                                  {"mixed", Value::List{0, "1"}},
                                  {"commit", true},
                                  {"note", Value()},
                                  {"inner", Value::Dict{{"cmd", "other"}}}};
  return message;
}

template <typename T>
void expect_protocol_error(const Result<T>& result, const std::string& line) {
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code(), Code::kProtocol);
  EXPECT_EQ(result.error().to_string(), "message.field: " + line);
}

TEST(Message, FindsAFieldByItsWholeName) {
  ASSERT_NE(find(request(), "group_id"), nullptr);
  EXPECT_EQ(*find(request(), "group_id"), Value(3));
  EXPECT_EQ(find(request(), "group"), nullptr);
  EXPECT_EQ(find(request(), ""), nullptr);
}

TEST(Message, GivesTypedFields) {
  EXPECT_EQ(text_field(request(), "cmd").value(), "map_to_kv_tensors");
  const Message held = request();
  EXPECT_EQ(text_view(held, "cmd")->data(), find(held, "cmd")->as_text()->data());
  EXPECT_EQ(integer_field(request(), "group_id").value(), 3);
  EXPECT_THAT(integers_field(request(), "offsets").value(), ElementsAre(0, 2097152));
}

TEST(Message, FallsBackOnlyWhenTheFieldIsAbsent) {
  EXPECT_EQ(integer_field(request(), "rank", 7).value(), 7);
  EXPECT_EQ(integer_field(request(), "group_id", 7).value(), 3);
  expect_protocol_error(integer_field(request(), "cmd", 7),
                        "cmd: protocol: is a text; expected an integer");
}

TEST(Message, SaysWhichFieldIsMissingOrOfAnotherKind) {
  expect_protocol_error(text_field(request(), "transaction_id"),
                        "transaction_id: protocol: missing; expected a text");
  expect_protocol_error(text_field(request(), "note"), "note: protocol: is none; expected a text");
  expect_protocol_error(text_field(request(), "inner"),
                        "inner: protocol: is a dictionary; expected a text");
  expect_protocol_error(integer_field(request(), "commit"),
                        "commit: protocol: is a truth value; expected an integer");
  expect_protocol_error(integer_field(request(), "offsets"),
                        "offsets: protocol: is a list; expected an integer");
  expect_protocol_error(integers_field(request(), "group_id"),
                        "group_id: protocol: is an integer; expected a list of integers");
  expect_protocol_error(integers_field(request(), "mixed"),
                        "mixed: protocol: item 1 is a text; expected a list of integers");
  expect_protocol_error(integers_field(request(), "absent"),
                        "absent: protocol: missing; expected a list of integers");
}

}  // namespace
}  // namespace kv
