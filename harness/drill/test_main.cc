// The main of this folder's tests. Started as an engine is (with --socket-root), the program is one: it obeys a drill and
// does wrong when it is told to; supervisor_judging_test.cc drills it.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>

#include "harness/board/kvdrill.h"
#include "harness/process/card_ledger.h"

namespace kv::drill {
namespace {

kvdrill_site child_point = {"engine.child", KVDRILL_POINT, 0, nullptr, nullptr};
kvdrill_site work_point = {"engine.work", KVDRILL_POINT, 0, &child_point, nullptr};
kvdrill_site exit_point = {"engine.exit", KVDRILL_POINT, 0, &work_point, nullptr};
std::string own_path;  // announced; whoever gives back removes it

void shut_down(void*, const char*, kvdrill_reply* reply) {
  ::unlink(own_path.c_str());
  kvdrill_answer(reply, "done");
}
void nothing(void*, const char*, kvdrill_reply*) {}
void work(void*, const char*, kvdrill_reply*) {
  kvdrill_point(&work_point, 0);
}
void open_one(void*, const char*, kvdrill_reply* reply) {
  if (::open("/dev/zero", O_RDONLY | O_CLOEXEC) < 0) kvdrill_answer_error(reply, "no descriptor");
}
void make_file(void*, const char*, kvdrill_reply* reply) {
  const int fd = ::open("scratch", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) kvdrill_answer_error(reply, "no file");
  ::close(fd);
}
void crash_in_child(void*, const char*, kvdrill_reply* reply) {
  const pid_t child = ::fork();
  if (child == 0) {
    kvdrill_point(&child_point, 0);
    std::abort();
  }
  if (::waitpid(child, nullptr, 0) != child) kvdrill_answer_error(reply, "no child");
}
void warn(void*, const char*, kvdrill_reply*) {
  kvdrill_log(1, "this engine is made up");
}
void remove_folder(void*, const char*, kvdrill_reply*) {
  std::error_code error;
  std::filesystem::remove_all(std::filesystem::current_path(error), error);
}
void abort_itself(void*, const char*, kvdrill_reply*) {
  std::abort();
}
// Writes into the card's ledger that this process holds a handle.
void hold_card(void*, const char*, kvdrill_reply* reply) {
  LedgerHeader header{};
  std::memcpy(header.magic, "kvcard1", 8);
  header.version = 1;
  header.devices = 1;
  header.device_size = sizeof(LedgerDevice);
  header.owners = header.owner_capacity = 1;
  header.owner_size = sizeof(LedgerOwner);
  header.devices_offset = sizeof header;
  header.owners_offset = sizeof header + sizeof(LedgerDevice);
  const LedgerDevice device{1 << 30, 0};
  LedgerOwner owner{};
  owner.pid = ::getpid();
  owner.handles = 1;
  ::mkdir("card", 0700);
  std::FILE* file = std::fopen("card/ledger", "wb");
  if (file == nullptr || std::fwrite(&header, sizeof header, 1, file) != 1 ||
      std::fwrite(&device, sizeof device, 1, file) != 1 ||
      std::fwrite(&owner, sizeof owner, 1, file) != 1) {
    kvdrill_answer_error(reply, "no ledger");
  }
  if (file != nullptr) std::fclose(file);
}

constexpr const char* kRoles[] = {"worker", nullptr};
constexpr kvdrill_command kCommands[] = {{"shutdown", "", shut_down},
                                         {"look", "", nothing},
                                         {"start_again", "", nothing},
                                         {"work", "", work},
                                         {"open", "", open_one},
                                         {"file", "", make_file},
                                         {"crash_in_child", "", crash_in_child},
                                         {"warn", "", warn},
                                         {"abort", "", abort_itself},
                                         {"remove_folder", "", remove_folder},
                                         {"hold_card", "", hold_card},
                                         {nullptr, nullptr, nullptr}};
constexpr kvdrill_engine kEngine = {
    KVDRILL_CONTRACT_VERSION, "made up", kRoles, kCommands, &exit_point, nullptr, 0};

}  // namespace

int engine() {
  kvdrill_attach(&kEngine);
  own_path = "s/own";
  own_path.insert(0, std::string(::get_current_dir_name()) + "/");
  const int fd = ::open(own_path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return 1;
  ::close(fd);
  std::atexit([] { kvdrill_point(&exit_point, 0); });
  kvdrill_announce("own", own_path.c_str());
  kvdrill_ready();
  return kvdrill_serve();
}

}  // namespace kv::drill

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--socket-root") return kv::drill::engine();
  }
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
