#include "harness/process/leftovers.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace kv::drill {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

namespace fs = std::filesystem;

class LeftoversTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/kdlXXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    root_ = name;
  }
  void TearDown() override { fs::remove_all(root_); }
  static void make_file(const std::string& path) { std::ofstream(path) << "x"; }
  static void make_socket(const std::string& path) {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::copy(path.begin(), path.end(), address.sun_path);
    EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    ::close(fd);
  }
  std::string root_;
};

TEST_F(LeftoversTest, ATreeIsListedWithoutFollowingLinks) {
  fs::create_directories(root_ + "/b/deep");
  fs::create_directories(root_ + "/empty");
  make_file(root_ + "/b/deep/file");
  make_file(root_ + "/a");
  make_socket(root_ + "/b/w0.sock");
  fs::create_directory_symlink("/usr", root_ + "/link");
  fs::create_symlink("/no/such/place", root_ + "/dangling");
  EXPECT_THAT(tree(root_), ElementsAre("a", "b/", "b/deep/", "b/deep/file", "b/w0.sock", "dangling",
                                       "empty/", "link"));
}

// A file system may give the number of a file that is gone to the next one.
TEST_F(LeftoversTest, ANewFileOfTheSameNumberIsAnother) {
  make_file(root_ + "/file");
  const FileId first = identify(root_ + "/file");
  if (first.made_ns == 0) GTEST_SKIP() << "this file system does not say when a file was made";
  FileId next = first;
  for (int i = 0; i < 100 && next == first; ++i) {
    fs::remove(root_ + "/file");
    make_file(root_ + "/file");
    next = identify(root_ + "/file");
    EXPECT_NE(next, first);
    if (next.inode == first.inode) return;  // seen
    next = first;
  }
}

TEST_F(LeftoversTest, AnAbsentTreeIsEmpty) {
  EXPECT_THAT(tree(root_ + "/none"), IsEmpty());
}

TEST_F(LeftoversTest, RemovingATreeDoesNotFollowLinksOutOfIt) {
  fs::create_directories(root_ + "/outside");
  make_file(root_ + "/outside/kept");
  fs::create_directories(root_ + "/tree/sub");
  make_file(root_ + "/tree/sub/file");
  make_socket(root_ + "/tree/s");
  fs::create_directory_symlink(root_ + "/outside", root_ + "/tree/link");
  EXPECT_EQ(remove_tree(root_ + "/tree"), "");
  EXPECT_THAT(tree(root_), ElementsAre("outside/", "outside/kept"));

  fs::create_directory_symlink(root_ + "/outside", root_ + "/link");
  EXPECT_EQ(remove_tree(root_ + "/link"), "");
  EXPECT_THAT(tree(root_), ElementsAre("outside/", "outside/kept"));
}

TEST_F(LeftoversTest, RemovingNothingIsDoneAndTheRootOfAllIsRefused) {
  EXPECT_EQ(remove_tree(root_ + "/none"), "");
  EXPECT_NE(remove_tree(""), "");
  EXPECT_NE(remove_tree("/"), "");
  EXPECT_NE(remove_tree("/tmp/.."), "");
}

TEST_F(LeftoversTest, SaysWhenSomethingCannotBeRemoved) {
  EXPECT_NE(remove_tree("/proc/self/task"), "");
}

TEST_F(LeftoversTest, AFileIsKnownByDeviceAndInode) {
  make_file(root_ + "/file");
  make_socket(root_ + "/socket");
  fs::create_symlink(root_ + "/socket", root_ + "/link");
  fs::create_hard_link(root_ + "/socket", root_ + "/same");
  EXPECT_EQ(identify(root_ + "/none"), FileId());
  EXPECT_TRUE(identify(root_ + "/file").exists);
  EXPECT_FALSE(identify(root_ + "/file").is_socket);
  EXPECT_TRUE(identify(root_ + "/socket").is_socket);
  EXPECT_FALSE(identify(root_ + "/link").is_socket) << "a link is not what it points to";
  EXPECT_EQ(identify(root_ + "/same"), identify(root_ + "/socket"));
  EXPECT_NE(identify(root_ + "/file"), identify(root_ + "/socket"));
}

TEST_F(LeftoversTest, TheDefaultPlacesAreSearchedForThisRunsNameOnly) {
  const std::string name = "kdtest-" + root_.substr(8) + "-" + std::to_string(::getpid());
  const std::string folder = "/tmp/kvcached-tp-" + name, segment = "/dev/shm/" + name;
  const std::vector<std::string> ours = {segment, segment + "_g12", segment + ".lock",
                                         segment + "_g0.lock"};
  const std::vector<std::string> others = {segment + "9", segment + "_2", segment + "_g",
                                           segment + "_gx"};
  for (const auto& path : ours) make_file(path);
  for (const auto& path : others) make_file(path);
  fs::create_directory(folder + "-0123abcd");
  fs::create_directory(folder + "-other-0123abcd");
  fs::create_directory(folder + "-0123abcx");
  const auto found = [](const InstanceNames& names) {
    std::vector<std::string> paths;
    for (const auto& [path, file] : default_places(names)) {
      EXPECT_TRUE(file == identify(path.ends_with('/') ? path.substr(0, path.size() - 1) : path));
      paths.push_back(path);
    }
    return paths;
  };
  const auto just_so = ElementsAre(segment, segment + ".lock", segment + "_g0.lock",
                                   segment + "_g12", folder + "-0123abcd/");
  EXPECT_THAT(found({"", {"none", name}}), just_so) << "a name that others may use";
  EXPECT_THAT(found({"", {"kdtest", ""}}), IsEmpty());
  EXPECT_THAT(found({name, {}}),
              UnorderedElementsAre(segment, segment + ".lock", segment + "_g0.lock",
                                   segment + "_g12", segment + "9", segment + "_2", segment + "_g",
                                   segment + "_gx", folder + "-0123abcd/", folder + "-0123abcx/",
                                   folder + "-other-0123abcd/"))
      << "a name of this run alone";
  for (const auto& path : ours) fs::remove(path);
  for (const auto& path : others) fs::remove(path);
  for (const char* end : {"-0123abcd", "-other-0123abcd", "-0123abcx"}) fs::remove(folder + end);
}

TEST_F(LeftoversTest, DescriptorsAreListedByNumber) {
  const int low = ::open(root_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const int ten = ::fcntl(low, F_DUPFD_CLOEXEC, 110), two = ::fcntl(low, F_DUPFD_CLOEXEC, 20);
  ASSERT_TRUE(ten >= 0 && two >= 0);
  const auto numbers_here = [&] {
    std::vector<int> numbers;
    for (const auto& one : open_descriptors(::getpid())) {
      if (one.target == root_) numbers.push_back(one.number);
    }
    return numbers;
  };
  EXPECT_THAT(numbers_here(), ElementsAre(low, two, ten)) << "by number, not by letter";
  ::close(ten);
  EXPECT_THAT(numbers_here(), ElementsAre(low, two));
  ::close(low);
  ::close(two);
}

TEST_F(LeftoversTest, ADescriptorIsKnownByWhatItIsOpenOn) {
  const auto at = [](int fd) {
    for (const auto& one : open_descriptors(::getpid())) {
      if (one.number == fd) return one;
    }
    return OpenDescriptor{};
  };
  make_file(root_ + "/file");
  const int slot = ::open((root_ + "/file").c_str(), O_RDONLY | O_CLOEXEC);
  const OpenDescriptor first = at(slot);
  fs::remove(root_ + "/file");
  EXPECT_EQ(at(slot), first) << "it has lost its name, and is the same";
  make_file(root_ + "/file");
  const int next = ::open((root_ + "/file").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(::dup3(next, slot, O_CLOEXEC), slot);
  EXPECT_EQ(at(slot).target, first.target);
  EXPECT_FALSE(at(slot) == first);
  ASSERT_EQ(::dup3(::eventfd(0, EFD_CLOEXEC), slot, O_CLOEXEC), slot);
  const OpenDescriptor event = at(slot);
  if (event.own_id.empty()) GTEST_SKIP() << "this kernel does not tell eventfds apart";
  ASSERT_EQ(::dup3(::eventfd(0, EFD_CLOEXEC), slot, O_CLOEXEC), slot);
  EXPECT_EQ(at(slot).target, event.target);
  EXPECT_FALSE(at(slot) == event);
}

TEST_F(LeftoversTest, AProcessThatEndedHoldsNothing) {
  int gate[2];
  ASSERT_EQ(::pipe(gate), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    char byte;
    ::close(gate[1]);
    ::_exit(::read(gate[0], &byte, 1) == 0 ? 0 : 1);
  }
  EXPECT_EQ(living_threads(child).size(), 1u);
  EXPECT_THAT(open_descriptors(child), Not(IsEmpty()));
  ::close(gate[0]);
  ::close(gate[1]);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_THAT(living_threads(child), IsEmpty()) << "not reaped yet";
  EXPECT_THAT(open_descriptors(child), IsEmpty());
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_THAT(living_threads(child), IsEmpty());
  EXPECT_THAT(open_descriptors(child), IsEmpty());
}

TEST_F(LeftoversTest, AThreadIsKnownByItsNumberAndItsStart) {
  std::thread([] {}).join();  // with the first one, a sanitizer starts one of its own
  const auto before = living_threads(::getpid());
  std::atomic<pid_t> tid{0};
  std::atomic<bool> over{false};
  std::thread other([&] {
    tid = static_cast<pid_t>(::syscall(SYS_gettid));
    tid.notify_all();
    over.wait(false);
  });
  tid.wait(0);
  auto now = living_threads(::getpid());
  ASSERT_EQ(now.size(), before.size() + 1);
  const auto found =
      std::find_if(now.begin(), now.end(), [&](const LivingThread& one) { return one.tid == tid; });
  ASSERT_NE(found, now.end());
  EXPECT_FALSE(found->start.empty());
  LivingThread later = *found;
  later.start += "0";
  EXPECT_FALSE(later == *found);
  now.erase(found);
  EXPECT_EQ(now, before);
  over = true;
  over.notify_all();
  other.join();
}

}  // namespace
}  // namespace kv::drill
