// The main of this folder's tests. Started as an engine is (with --socket-root), the program is
// one: it obeys a drill and does wrong when it is told to; supervisor_judging_test.cc drills it.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
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
kvdrill_site dispatch_note = {"listener.dispatch", KVDRILL_NOTE, 0, &exit_point, nullptr};
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
// Writes into the card's ledger that this process holds so many handles.
bool write_ledger(std::uint64_t handles) {
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
  owner.handles = handles;
  ::mkdir("card", 0700);
  std::FILE* file = std::fopen("card/ledger", "wb");
  const bool written = file != nullptr && std::fwrite(&header, sizeof header, 1, file) == 1 &&
                       std::fwrite(&device, sizeof device, 1, file) == 1 &&
                       std::fwrite(&owner, sizeof owner, 1, file) == 1;
  if (file != nullptr) std::fclose(file);
  return written;
}
void hold_card(void*, const char*, kvdrill_reply* reply) {
  if (!write_ledger(1)) kvdrill_answer_error(reply, "no ledger");
}
// Every byte that a client sends has its effect, and each much later than it was sent.
void obey_late(int listening) {
  kvdrill_thread("late");
  const int peer = ::accept(listening, nullptr, nullptr);
  std::uint64_t times = 0;
  for (char order = 0; ::read(peer, &order, 1) == 1;) {
    ++times;
    for (volatile int turns = 0; turns < 1'000'000;) turns = turns + 1;
    if (order == 'd') kvdrill_note(&dispatch_note, 1, 0, "late");
    if (order == 'c') write_ledger(times);
    if (order == 'f') {
      const std::string path = "late" + std::to_string(times);
      ::close(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    }
  }
}
void listen(void*, const char*, kvdrill_reply* reply) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = std::filesystem::current_path().string() + "/s/late";
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(fd, 1) != 0) {
    kvdrill_answer_error(reply, "no socket");
    return;
  }
  kvdrill_announce("socket", path.c_str());
  std::thread(obey_late, fd).detach();
}
// Waits for what never comes, with a limit of its own by the real clock.
void wait_in_vain(void*, const char*, kvdrill_reply* reply) {
  std::mutex mutex;
  std::condition_variable never;
  std::unique_lock lock(mutex);
  never.wait_for(lock, std::chrono::milliseconds(300));
  kvdrill_note(&dispatch_note, 1, 0, "gave up");
  kvdrill_answer(reply, "gave up");
}

// ---- cheating

std::string argument(int argc, char** argv, std::string_view name) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (argv[i] == name) return argv[i + 1];
  }
  return {};
}

std::string process_name, ipc_name, cheat;
std::atomic<int> helpers_told{0};
std::thread helper;
int kept_file = -1, kept_event = -1;

void help_until(int told) {
  for (int seen = 0; (seen = helpers_told.load()) < told;) helpers_told.wait(seen);
}
// A file that has lost its name, so that the next one looks just like it.
int nameless_file() {
  const int fd = ::open("nameless", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ::unlink("nameless");
  return fd;
}
// One ends, another begins: their number stays.
void swap_threads(void*, const char*, kvdrill_reply*) {
  helpers_told.store(1);
  helpers_told.notify_all();
  helper.join();
  helper = std::thread(help_until, 2);
  helper.detach();
}
void swap_into(int slot, int fresh) {
  ::dup3(fresh, slot, O_CLOEXEC);
  ::close(fresh);
}
void swap_file(void*, const char*, kvdrill_reply*) {
  swap_into(kept_file, nameless_file());
}
void swap_event(void*, const char*, kvdrill_reply*) {
  swap_into(kept_event, ::eventfd(0, EFD_CLOEXEC));
}
void leave_in_default_places(void*, const char*, kvdrill_reply* reply) {
  const int fd =
      ::open(("/dev/shm/" + ipc_name + "_x").c_str(), O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0 || ::mkdir(("/tmp/kvcached-tp-" + process_name + "-0123abcd").c_str(), 0700) != 0) {
    kvdrill_answer_error(reply, "not made");
  }
  ::close(fd);
}
void flood(void*, const char*, kvdrill_reply* reply) {
  constexpr int kMiB = 64;
  const std::string begin = "the beginning\n", end = "\nthe end";
  const std::string mib(std::size_t{1} << 20, 'x');
  bool good = ::write(STDOUT_FILENO, begin.data(), begin.size()) > 0;
  for (int i = 0; i < kMiB; ++i) {
    // A pipe takes the whole of it or, until somebody reads, waits.
    good = good && ::write(STDOUT_FILENO, mib.data(), mib.size()) == ssize_t{1} << 20;
  }
  good = good && ::write(STDOUT_FILENO, end.data(), end.size()) > 0;
  if (!good) kvdrill_answer_error(reply, "not written");
}
void empty_folder(void*, const char*, kvdrill_reply*) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(".", error)) {
    std::filesystem::remove_all(entry.path(), error);
  }
}
void take_placed(void*, const char*, kvdrill_reply* reply) {
  ::unlink("s/placed");
  const int fd = ::open("s/placed", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) kvdrill_answer_error(reply, "no file");
  ::close(fd);
}
void hide_in_out(void*, const char*, kvdrill_reply* reply) {
  if (::mkdir("out/hidden", 0700) != 0) kvdrill_answer_error(reply, "no folder");
}
kvdrill_site secret_point = {"engine.secret", KVDRILL_POINT, 0, nullptr, nullptr};
void reach_secret(void*, const char*, kvdrill_reply*) {
  kvdrill_point(&secret_point, 0);
}
kvdrill_site init_fault = {"driver.cuInit", KVDRILL_FAULT, 0, nullptr, nullptr};
void lose_ledger(void*, const char*, kvdrill_reply*) {
  kvdrill_done(&init_fault, 0, 0);
  ::unlink("card/ledger");
}
void become_another(void*, const char*, kvdrill_reply* reply) {
  ::execl("/proc/self/exe", "another", "--wait", nullptr);
  kvdrill_answer_error(reply, "no exec");
}
// Without a system call: whether it moves is seen only by the processor time that it takes.
void spin() {
  for (std::atomic<unsigned> turns{0};;) turns.fetch_add(1, std::memory_order_relaxed);
}

void before_attach() {
  if (cheat == "clock early") {
    kvdrill_on_clock([](void*, std::int64_t) { kvdrill_log(0, "moved"); }, nullptr);
  }
  if (cheat == "never attaches") ::pause();
}
void before_ready() {
  if (cheat == "swaps") {
    helper = std::thread(help_until, 1);
    kept_file = nameless_file();
    kept_event = ::eventfd(0, EFD_CLOEXEC);
  }
  if (cheat == "never ready") kvdrill_serve();
  if (cheat == "spins") spin();
  if (cheat == "stops itself") ::raise(SIGTSTP);
}
void behind_ready() {
  if (cheat == "leaks behind ready") {
    std::thread(help_until, 1).detach();
    ::open("/dev/zero", O_RDONLY | O_CLOEXEC);
  }
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
                                         {"swap_threads", "", swap_threads},
                                         {"swap_file", "", swap_file},
                                         {"swap_event", "", swap_event},
                                         {"leave_in_default_places", "", leave_in_default_places},
                                         {"flood", "", flood},
                                         {"empty_folder", "", empty_folder},
                                         {"take_placed", "", take_placed},
                                         {"hide_in_out", "", hide_in_out},
                                         {"reach_secret", "", reach_secret},
                                         {"lose_ledger", "", lose_ledger},
                                         {"become_another", "", become_another},
                                         {"listen", "", listen},
                                         {"wait_in_vain", "", wait_in_vain},
                                         {nullptr, nullptr, nullptr}};
constexpr kvdrill_engine kEngine = {KVDRILL_CONTRACT_VERSION, "made up", kRoles, kCommands,
                                    &dispatch_note,           nullptr,   0};

}  // namespace

int engine(int argc, char** argv) {
  process_name = argument(argc, argv, "--name");
  ipc_name = argument(argc, argv, "--ipc");
  cheat = argument(argc, argv, "--cheat");
  before_attach();
  kvdrill_attach(&kEngine);
  kvdrill_add_sites(&init_fault);
  own_path = "s/own";
  own_path.insert(0, std::string(::get_current_dir_name()) + "/");
  const int fd = ::open(own_path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return 1;
  ::close(fd);
  std::atexit([] { kvdrill_point(&exit_point, 0); });
  kvdrill_announce("own", own_path.c_str());
  before_ready();
  kvdrill_ready();
  behind_ready();
  const int code = kvdrill_serve();
  if (helper.joinable()) helper.detach();
  return code;
}

}  // namespace kv::drill

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--socket-root") return kv::drill::engine(argc, argv);
    if (std::string_view(argv[i]) == "--wait") return ::pause();
  }
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
