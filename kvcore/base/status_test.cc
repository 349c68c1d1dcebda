#include "kvcore/base/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <set>
#include <string>
#include <utility>

namespace kv {
namespace {

using ::testing::HasSubstr;

TEST(Status, FineIsANullPointerWithoutAnyText) {
  static_assert(sizeof(Status) == sizeof(std::shared_ptr<const void>));
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), Code::kOk);
  EXPECT_EQ(status.native(), 0);
  EXPECT_EQ(status.operation(), "");
  EXPECT_EQ(status.object(), "");
  EXPECT_EQ(status.text(), "");
  EXPECT_EQ(status.to_string(), "ok");
}

TEST(Status, KeepsEveryPartOfAFailureAndItsCopiesShareIt) {
  const Status status =
      Status::error(Code::kOutOfMemory, "vmm.map", "page 7 of layer 3", 2, "no page left");
  const Status copy = status;  // NOLINT(performance-unnecessary-copy-initialization)
  for (const Status* each : {&status, &copy}) {
    EXPECT_FALSE(each->ok());
    EXPECT_EQ(each->code(), Code::kOutOfMemory);
    EXPECT_EQ(each->native(), 2);
    EXPECT_EQ(each->operation(), "vmm.map");
    EXPECT_EQ(each->object(), "page 7 of layer 3");
    EXPECT_EQ(each->text(), "no page left");
  }
  EXPECT_EQ(status.operation().data(), copy.operation().data());
  EXPECT_EQ(status.to_string(), "vmm.map: page 7 of layer 3: out_of_memory (2): no page left");
}

TEST(Status, LineLeavesOutThePartsThatAreNotThere) {
  EXPECT_EQ(Status::error(Code::kCancelled, "client.call").to_string(), "client.call: cancelled");
  EXPECT_EQ(Status::error(Code::kNotFound, "open", "", 0, "no such group").to_string(),
            "open: not_found: no such group");
}

TEST(Status, AFailureWithoutAReasonIsNotFine) {
  const Status status = Status::error(Code::kOk, "somewhere");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), Code::kInternal);
}

TEST(Status, OfTheKernelCarriesErrnoAndItsText) {
  const Status status = Status::system("bind", "/tmp/x.sock", EADDRINUSE);
  EXPECT_EQ(status.code(), Code::kSystem);
  EXPECT_EQ(status.native(), EADDRINUSE);
  EXPECT_THAT(status.to_string(), HasSubstr("bind: /tmp/x.sock: system (98): "));
  EXPECT_THAT(std::string(status.text()), HasSubstr("in use"));
}

TEST(Status, EveryCodeHasAWordOfItsOwnThatLeadsBackToIt) {
  std::set<std::string> words;
  for (int i = 0; i <= static_cast<int>(Code::kInternal); ++i) {
    const auto code = static_cast<Code>(i);
    const std::string word(code_name(code));
    EXPECT_NE(word, "unknown") << i;
    EXPECT_TRUE(words.insert(word).second) << word;
    Code back = Code::kInternal;
    EXPECT_TRUE(code_from_name(word, &back)) << word;
    EXPECT_EQ(back, code) << word;
  }
}

TEST(Status, AWordOfNoCodeIsRefused) {
  Code code = Code::kInternal;
  EXPECT_FALSE(code_from_name("out of memory", &code));
  EXPECT_EQ(code, Code::kOk);
  EXPECT_FALSE(code_from_name("", &code));
  EXPECT_EQ(code_name(static_cast<Code>(200)), "unknown");
}

TEST(Result, HasAValueOrTheStatusThatSaysWhyNot) {
  const Result<int> value = 7;
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(*value, 7);
  EXPECT_TRUE(value.status().ok());
  const Result<int> failure = Status::error(Code::kDeadline, "wait");
  ASSERT_FALSE(failure.ok());
  EXPECT_EQ(failure.status().code(), Code::kDeadline);
}

TEST(Result, MovesWhatCannotBeCopied) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(3);
  ASSERT_TRUE(result.ok());
  const std::unique_ptr<int> taken = std::move(*result);
  EXPECT_EQ(*taken, 3);
}

Result<int> half(int n) {
  if (n % 2 != 0) return Status::error(Code::kInvalidArgument, "half", std::to_string(n));
  return n / 2;
}

Result<int> quarter(int n) {
  KV_ASSIGN_OR_RETURN(const int once, half(n));
  KV_ASSIGN_OR_RETURN(const int twice, half(once));
  return twice;
}

Status check_quarter(int n, int* reached) {
  KV_RETURN_IF_ERROR(quarter(n).status());
  ++*reached;
  return {};
}

TEST(Macros, GoOnWithTheValueAndLeaveWithTheFailure) {
  EXPECT_EQ(*quarter(8), 2);
  EXPECT_EQ(quarter(6).status().object(), "3");
  int reached = 0;
  EXPECT_TRUE(check_quarter(8, &reached).ok());
  EXPECT_EQ(check_quarter(7, &reached).object(), "7");
  EXPECT_EQ(reached, 1);
}

TEST(Status, OfALongQuoteTheMiddleIsLeftOut) {
  const std::string usual(1024, 'u');
  EXPECT_EQ(Status::error(Code::kProtocol, "x", usual, 0, usual).object(), usual);
  const std::string quoted = "begin" + std::string(16u << 20, 'q') + "end";
  const Status status = Status::error(Code::kProtocol, "x", quoted, 0, quoted);
  for (const std::string_view kept : {status.object(), status.text()}) {
    EXPECT_LE(kept.size(), 1024u);
    EXPECT_TRUE(kept.starts_with("begin")) << kept;
    EXPECT_TRUE(kept.ends_with("end")) << kept;
    EXPECT_NE(kept.find(" (16776328 bytes left out) "), std::string_view::npos) << kept;
  }
}

}  // namespace
}  // namespace kv
