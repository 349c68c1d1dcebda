#include "kvcore/wire/socket_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace kv {
namespace {

using ::testing::HasSubstr;

void expect_refused(const Result<SocketPlace>& place, const std::string& why) {
  ASSERT_FALSE(place.ok());
  EXPECT_EQ(place.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(place.error().to_string(), HasSubstr(why));
}

TEST(SocketPlace, IsWhereDeployedEnginesLook) {
  std::ifstream file(KVDRILL_SOURCE_DIR "/kvcore/testdata/socket-dirs.jsonl");
  int compared = 0;
  for (std::string line; std::getline(file, line); ++compared) {
    const auto sample = nlohmann::json::parse(line);
    const auto place = socket_place("/tmp", sample.at("ipc_name").get<std::string>(), 0);
    ASSERT_TRUE(place.ok()) << place.error().to_string();
    EXPECT_EQ(place->directory, sample.at("dir").get<std::string>());
  }
  EXPECT_EQ(compared, 6);
}

TEST(SocketPlace, NamesTheSocketByRankAndTheFolderByStage) {
  const auto first = socket_place("/r", "probe", 0).value();
  EXPECT_EQ(first.directory, "/r/kvcached-tp-probe-8dc492bc");
  EXPECT_EQ(first.stage_directory, first.directory);
  EXPECT_EQ(first.path, "/r/kvcached-tp-probe-8dc492bc/w0.sock");
  const auto second = socket_place("/r", "probe", 12, 3).value();
  EXPECT_EQ(second.directory, first.directory);
  EXPECT_EQ(second.stage_directory, "/r/kvcached-tp-probe-8dc492bc/pp3");
  EXPECT_EQ(second.path, "/r/kvcached-tp-probe-8dc492bc/pp3/w12.sock");
}

TEST(SocketPlace, HoldsAPathOf107BytesAndNoMore) {
  const std::size_t rest = socket_place("/", "t", 0).value().path.size();
  const std::string root = "/" + std::string(kSocketPathLimit - rest - 1, 'r');
  EXPECT_EQ(socket_place(root, "t", 0).value().path.size(), 107u);
  expect_refused(socket_place(root + "r", "t", 0), "108 bytes; a socket's path holds 107");
  expect_refused(socket_place(root, "t", 10), "108 bytes");
}

TEST(SocketPlace, IsTheSameHoweverItsRootIsWritten) {
  const std::string plain = socket_place("/a/b", "t", 0).value().path;
  for (const char* root : {"/a/b/", "/a/b//", "//a///b/.", "/./a/b/./", "/a/./b"}) {
    EXPECT_EQ(socket_place(root, "t", 0).value().path, plain) << root;
  }
  for (const char* root : {"/", "//", "/./", "/."}) {
    EXPECT_EQ(socket_place(root, "t", 0).value().directory, "/kvcached-tp-t-96a6b1b7") << root;
  }
}

TEST(TidyPath, LeavesOutWhatChangesNothing) {
  EXPECT_EQ(tidy_path("/tmp"), "/tmp");
  EXPECT_EQ(tidy_path("//tmp//./x/./"), "/tmp/x");
  EXPECT_EQ(tidy_path("/a/../b/..c/.d/e."), "/a/../b/..c/.d/e.");
  EXPECT_EQ(tidy_path("x/./y/"), "x/y");
  EXPECT_EQ(tidy_path("./x"), "x");
  EXPECT_EQ(tidy_path("."), ".");
  EXPECT_EQ(tidy_path("//"), "/");
  EXPECT_EQ(tidy_path(""), "");
}

TEST(SocketPlace, RefusesWhatIsNoPlace) {
  expect_refused(socket_place("", "t", 0), "root");
  expect_refused(socket_place("/tmp", "", 0), "ipc_name: invalid_argument: is empty");
  expect_refused(socket_place("/tmp", "../t", 0), "expected e.g. \"---t\"");
  expect_refused(socket_place("/tmp", std::string(65, 'x'), 0), "too many");
  expect_refused(socket_place("/tmp", "t", -1), "rank");
  expect_refused(socket_place("/tmp", "t", 0, -1), "stage");
}

TEST(SanitizeIpcName, ReplacesEachOtherCharacterAndCutsAt64) {
  EXPECT_EQ(sanitize_ipc_name("kvcached_vLLM-1234"), "kvcached_vLLM-1234");
  EXPECT_EQ(sanitize_ipc_name("a/b.c d\n"), "a-b-c-d-");
  EXPECT_EQ(sanitize_ipc_name("na\xc3\xafve\xe9\xa1\xb5"), "na-ve-");
  EXPECT_EQ(sanitize_ipc_name(std::string(63, 'x') + "/yz"), std::string(63, 'x') + "-");
  EXPECT_EQ(sanitize_ipc_name(""), "");
}

}  // namespace
}  // namespace kv
