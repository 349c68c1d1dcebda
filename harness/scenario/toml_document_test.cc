#include "harness/scenario/toml_document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace kv::drill {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Node parsed(const std::string& text) {
  auto root = parse_toml(text);
  if (root) return *std::move(root);
  ADD_FAILURE() << root.error().message;
  return {};
}

TomlError error_of(const std::string& text) {
  const auto root = parse_toml(text);
  if (!root) return root.error();
  ADD_FAILURE() << "no error in " << text;
  return {};
}

TEST(TomlDocumentTest, KeysKeepTheOrderInWhichTheyWereWritten) {
  const Node root = parsed("zebra = 1\nant = 2\n[middle]\nb = 1\na = 2\n");
  ASSERT_EQ(root.table.size(), 3u);
  EXPECT_EQ(root.table[0].key, "zebra");
  EXPECT_EQ(root.table[1].key, "ant");
  EXPECT_EQ(root.table[2].key, "middle");
  EXPECT_EQ(root.table[2].value.table[0].key, "b");
}

TEST(TomlDocumentTest, KeysAndValuesKnowTheirPlaces) {
  const Node root = parsed("[drill]\nsteps = [\n  {start = \"w\", n = 2},\n]\n");
  const Node* steps = root.find("drill")->find("steps");
  ASSERT_NE(steps, nullptr);
  EXPECT_EQ(steps->place, (Place{2, 9}));
  const Node& step = steps->list.at(0);
  EXPECT_EQ(step.place, (Place{3, 3}));
  EXPECT_EQ(step.table[0].key_place, (Place{3, 4}));
  EXPECT_EQ(step.table[0].value.place, (Place{3, 12}));
  EXPECT_EQ(step.find("n")->place, (Place{3, 21}));
}

TEST(TomlDocumentTest, EveryKindOfValueKeepsItsKind) {
  const Node root =
      parsed("a = true\nb = -3\nc = 1.5\nd = \"x\"\ne = 2026-01-02\nf = [1]\ng = {}\n");
  EXPECT_TRUE(root.find("a")->is(Node::Kind::kBool));
  EXPECT_EQ(root.find("b")->integer, -3);
  EXPECT_TRUE(root.find("c")->is(Node::Kind::kReal));
  EXPECT_EQ(shown(*root.find("c")), "1.5");
  EXPECT_EQ(root.find("d")->text, "x");
  EXPECT_TRUE(root.find("e")->is(Node::Kind::kDate));
  EXPECT_EQ(shown(*root.find("e")), "2026-01-02");
  EXPECT_TRUE(root.find("f")->is(Node::Kind::kList));
  EXPECT_TRUE(root.find("g")->is(Node::Kind::kTable));
  EXPECT_EQ(root.find("h"), nullptr);
}

// The column of such a fault is the library's; its versions differ.
TEST(TomlDocumentTest, AKeyGivenTwiceIsNamed) {
  const TomlError top = error_of("a = 1\nb = 2\na = 3\n");
  EXPECT_EQ(top.place.line, 3);
  EXPECT_EQ(top.message, "key \"a\" is given twice (it is an integer already)");
  const TomlError inside = error_of("x = [\n {id = \"a\",\tid = \"b\"},\n]\n");
  EXPECT_EQ(inside.place.line, 2);
  EXPECT_EQ(inside.message, "key \"id\" is given twice (it is a string already)");
  const TomlError table = error_of("[drill]\n[drill]\n");
  EXPECT_EQ(table.place.line, 2);
  EXPECT_EQ(table.message, "key \"drill\" is given twice (it is a table already)");
}

TEST(TomlDocumentTest, BadTomlSaysWhereAndWhat) {
  const TomlError error = error_of("a = 1\nb = \"open\n");
  EXPECT_EQ(error.place.line, 2);
  EXPECT_THAT(error.message, StartsWith("not valid TOML: "));
  EXPECT_EQ(error_of("a = \xff\n").place.line, 1);
}

TEST(TomlDocumentTest, AHeaderWithoutANameIsAFaultLikeAnyOther) {
  for (const char* header : {"[$]", " [ {]", "[\x01]"}) {
    const TomlError error =
        error_of("a = \"\"\"\n[$]\n\"\"\"\n" + std::string(header) + "\nb = 1\n");
    EXPECT_EQ(error.place.line, 4) << header;
    EXPECT_THAT(error.message, StartsWith("not valid TOML: ")) << header;
  }
  EXPECT_EQ(error_of("  [$]").place, (Place{1, 4}));
  EXPECT_EQ(error_of("[").place.line, 1);
}

TEST(TomlDocumentTest, OnlyTextsAndCommentsGoBeyondAscii) {
  const Node root = parsed(
      "\xef\xbb\xbf# \xc3\xa4\n"
      "a = \"\xc3\xa4\\\"\xc3\xa4\"\n"
      "b = '\xc3\xa4\\'\n"
      "c = \"\"\"\n\xc3\xa4\"\"\xc3\xa4\"\"\"\"\" # \xc3\xa4\n"
      "d = '''\xc3\xa4\n'\xc3\xa4'''\n"
      "\"\xc3\xa4\" = \"\"\n"
      "e = \"\" # \xc3\xa4");
  EXPECT_EQ(root.find("a")->text, "\xc3\xa4\"\xc3\xa4");
  EXPECT_EQ(root.find("c")->text, "\xc3\xa4\"\"\xc3\xa4\"\"");
  EXPECT_EQ(root.find("d")->text, "\xc3\xa4\n'\xc3\xa4");
  ASSERT_NE(root.find("\xc3\xa4"), nullptr);
  for (const char* text :
       {"a = \"\xc3\xa4\"\n x\xc3\xa4 = 1", "a = ''\n[\xc3\xa4]", "#\nab\xff = 1"}) {
    const TomlError error = error_of(text);
    EXPECT_EQ(error.place.line, 2) << text;
    EXPECT_EQ(error.message,
              "not valid TOML: a character beyond ASCII, expected such only in texts and comments");
  }
  EXPECT_EQ(error_of("a = \"\xc3\xa4\xc3\xa4\" \xc3\xa4").place, (Place{1, 10}));
}

TEST(TomlDocumentTest, WhatWouldExhaustTheStackIsRefused) {
  EXPECT_THAT(error_of("a = " + std::string(10'000, '[')).message, HasSubstr("nest"));
  std::string dotted = "a";
  for (int i = 0; i < 5'000; ++i) dotted += ".a";
  EXPECT_EQ(error_of(dotted + " = 1").message, "nested too deep");
  EXPECT_EQ(error_of("x = 1\n# " + std::string(20'000, 'a')).message,
            "the line has 20002 bytes, expected at most 20000");
  EXPECT_EQ(error_of("x = 1\n# " + std::string(20'000, 'a')).place.line, 2);
  std::string large;
  while (large.size() <= (1u << 20)) large += "# a comment\n";
  EXPECT_THAT(error_of(large).message, HasSubstr("expected at most 1 MiB"));
}

}  // namespace
}  // namespace kv::drill
