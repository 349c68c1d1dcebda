// Probes of memory shared between processes: descriptors, IPC, and what a killed process leaves.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "fakes/card/probes/probe.h"

namespace kv::card {
namespace {

constexpr int kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

void* as_shareable(int fd) {
  return reinterpret_cast<void*>(static_cast<std::intptr_t>(fd));
}

int export_of(const Driver& driver, CUmemGenericAllocationHandle handle) {
  int fd = -1;
  must(driver.cuMemExportToShareableHandle(&fd, handle, kDescriptor, 0), "export");
  return fd;
}

// ---- Roles: the second process -----------------------------------------------------------------

// A page of 'p', exported.
void vmm_producer(const Driver& driver, const Partner& me) {
  driver.start();
  const auto handle = driver.create(kPageSize, true);
  const CUdeviceptr base = driver.reserve(4);
  driver.map(base, handle);
  must(driver.access(base), "cuMemSetAccess");
  must(driver.cuMemsetD8(base, 'p', kPageSize), "cuMemsetD8");
  must(driver.cuCtxSynchronize(), "cuCtxSynchronize");
  me.send("page", export_of(driver, handle));
  me.receive();  // until it is killed
}

// A plain allocation of 'p', by IPC handle; freed on "free", answering with the code.
void ipc_producer(const Driver& driver, const Partner& me) {
  driver.start();
  CUdeviceptr address = 0;
  must(driver.cuMemAlloc(&address, 2 * kPageSize), "cuMemAlloc");
  must(driver.cuMemsetD8(address, 'p', 2 * kPageSize), "cuMemsetD8");
  must(driver.cuCtxSynchronize(), "cuCtxSynchronize");
  CUipcMemHandle handle = {};
  must(driver.cuIpcGetMemHandle(&handle, address), "cuIpcGetMemHandle");
  me.send(std::string(handle.reserved, sizeof handle.reserved));
  me.receive();  // "free"
  me.send(std::to_string(driver.cuMemFree(address)));
  me.receive();  // until it is killed
}

// Holds `size` bytes, says so, and waits to be killed; with `queue_export` it first queues a
// descriptor of them and closes its own.
void hold(const Driver& driver, const Partner& me, std::uint64_t size, bool queue_export) {
  driver.start();
  const auto handle = driver.create(size, queue_export);
  if (queue_export) {
    const int fd = export_of(driver, handle);
    me.send("exported", fd);
    ::close(fd);
  } else {
    me.send("holding");
  }
  me.receive();
}
void exporter(const Driver& driver, const Partner& me) {
  hold(driver, me, kGiB, true);
}
void holder(const Driver& driver, const Partner& me) {
  hold(driver, me, 16 * kGiB, false);
}

// ---- Probes ------------------------------------------------------------------------------------

void descriptors(const Driver& driver, const Facts& facts) {
  driver.start();
  int fd = -1;
  const auto plain = driver.create();
  facts.status("export.not_requested",
               driver.cuMemExportToShareableHandle(&fd, plain, kDescriptor, 0));
  const auto handle = driver.create(kPageSize, true);
  facts.status("export.requested",
               driver.cuMemExportToShareableHandle(&fd, handle, kDescriptor, 0));
  CUmemGenericAllocationHandle imported = 0;
  facts.status("import.same_process",
               driver.cuMemImportFromShareableHandle(&imported, as_shareable(fd), kDescriptor));
  std::int64_t before = driver.free_bytes();
  const auto freed = [&] { return driver.free_bytes() - before; };
  must(driver.cuMemRelease(handle), "cuMemRelease");
  facts.number("release.exporter_while_imported.freed_bytes", freed());
  must(driver.cuMemRelease(imported), "cuMemRelease");
  facts.number("release.last_import_fd_open.freed_bytes", freed());
  ::close(fd);
  facts.number("close.last_fd.freed_bytes", freed());
  facts.status("import.bad_fd",
               driver.cuMemImportFromShareableHandle(&imported, as_shareable(-1), kDescriptor));
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  facts.status("import.not_a_driver_fd",
               driver.cuMemImportFromShareableHandle(&imported, as_shareable(null), kDescriptor));
}

void ipc_alone(const Driver& driver, const Facts& facts) {
  driver.start();
  CUdeviceptr address = 0, opened = 0;
  must(driver.cuMemAlloc(&address, kPageSize), "cuMemAlloc");
  CUipcMemHandle handle = {};
  facts.status("ipc.get_handle_of_cuMemAlloc", driver.cuIpcGetMemHandle(&handle, address));
  facts.status("ipc.open_in_same_process",
               driver.cuIpcOpenMemHandle(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  const CUdeviceptr base = driver.reserve(4);
  driver.page_at(base);
  facts.status("ipc.get_handle_of_vmm_memory", driver.cuIpcGetMemHandle(&handle, base));
}

void import_from_other(const Driver& driver, const Facts& facts) {
  driver.start();
  const Partner producer = start_partner("vmm_producer");
  int fd = -1;
  producer.receive(&fd);
  CUmemGenericAllocationHandle handle = 0, again = 0;
  facts.status("import.other_process",
               driver.cuMemImportFromShareableHandle(&handle, as_shareable(fd), kDescriptor));
  facts.status("import.same_fd_twice",
               driver.cuMemImportFromShareableHandle(&again, as_shareable(fd), kDescriptor));
  const CUdeviceptr base = driver.reserve(4);
  driver.map(base, handle);
  facts.status("import.set_access", driver.access(base));
  std::vector<char> bytes(kPageSize);
  const auto all_there = [&] {
    return std::all_of(bytes.begin(), bytes.end(), [](char byte) { return byte == 'p'; });
  };
  must(driver.cuMemcpyDtoH(bytes.data(), base, kPageSize), "cuMemcpyDtoH");
  facts.truth("import.reads_producer_bytes", all_there());
  ::close(fd);
  const std::int64_t before = driver.free_bytes();
  producer.kill();
  facts.number("producer_killed.vmm.freed_bytes_beyond_context", driver.free_bytes() - before);
  std::fill(bytes.begin(), bytes.end(), '\0');
  facts.status("copy.after_vmm_producer_killed",
               driver.cuMemcpyDtoH(bytes.data(), base, kPageSize));
  facts.truth("vmm.bytes_survive_producer_death", all_there());
}

void ipc_with_other(const Driver& driver, const Facts& facts) {
  driver.start();
  const Partner producer = start_partner("ipc_producer");
  CUipcMemHandle handle = {};
  const std::string sent = producer.receive();
  std::memcpy(handle.reserved, sent.data(), std::min(sent.size(), sizeof handle.reserved));
  CUdeviceptr first = 0, second = 0;
  char byte = 0;
  const auto open = [&](CUdeviceptr* address) {
    return driver.cuIpcOpenMemHandle(address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  };
  const auto copy = [&] { return driver.cuMemcpyDtoH(&byte, first, 1); };
  facts.status("ipc.open", open(&first));
  facts.status("ipc.open_twice", open(&second));
  facts.truth("ipc.open_twice_same_address", first == second);
  facts.status("ipc.copy", copy());
  facts.status("ipc.close_first_of_two", driver.cuIpcCloseMemHandle(first));
  facts.status("ipc.copy_after_first_close", copy());
  facts.status("ipc.close_second_of_two", driver.cuIpcCloseMemHandle(first));
  facts.status("ipc.copy_after_second_close", copy());
  facts.status("ipc.close_once_too_often", driver.cuIpcCloseMemHandle(first));
  facts.status("ipc.reopen", open(&first));
  const std::int64_t before = driver.free_bytes();
  facts.status("ipc.producer_frees_while_open",
               static_cast<CUresult>(std::stoul(producer.ask("free"))));
  facts.number("ipc.producer_frees_while_open.freed_bytes", driver.free_bytes() - before);
  facts.status("ipc.copy_after_producer_free", copy());
  facts.status("ipc.open_after_producer_free", open(&second));
  producer.kill();
  facts.status("ipc.copy_after_producer_killed", copy());
  facts.status("ipc.close_after_producer_killed", driver.cuIpcCloseMemHandle(second));
  facts.status("ipc.open_after_producer_killed", open(&second));
}

void fd_in_flight(const Driver& driver, const Facts& facts) {
  driver.start();
  const std::int64_t before = driver.free_bytes();
  const Partner other = start_partner("exporter");
  // Killed with the descriptor in the socket and nowhere else: the queue says when it is there.
  char byte = 0;
  if (::recv(other.socket, &byte, 1, MSG_PEEK) != 1) give_up("the exporter is gone");
  other.kill();
  facts.number("fd_in_flight.queued_descriptor_keeps_bytes", before - driver.free_bytes());
  int fd = -1;
  other.receive(&fd);
  CUmemGenericAllocationHandle handle = 0;
  facts.status("fd_in_flight.import_after_exporter_killed",
               driver.cuMemImportFromShareableHandle(&handle, as_shareable(fd), kDescriptor));
  must(driver.cuMemRelease(handle), "cuMemRelease");
  ::close(fd);
  facts.number("fd_in_flight.after_release_and_close_keeps_bytes", before - driver.free_bytes());
}

void kill_gives_back(const Driver& driver, const Facts& facts) {
  driver.start();
  const std::int64_t before = driver.free_bytes();
  const Partner other = start_partner("holder");
  other.receive();
  facts.number("kill_gives_back.visible_in_other_process_bytes", before - driver.free_bytes());
  other.kill();
  facts.number("kill_gives_back.held_when_reaped_bytes", before - driver.free_bytes());
}

constexpr auto kNothing = Probe::Needs::kNothing;
constexpr auto kEnds = Probe::End::kProcess;

}  // namespace

Role role_named(const std::string& name) {
  static const std::map<std::string, Role> roles = {{"vmm_producer", vmm_producer},
                                                    {"ipc_producer", ipc_producer},
                                                    {"exporter", exporter},
                                                    {"holder", holder}};
  const auto found = roles.find(name);
  return found == roles.end() ? nullptr : found->second;
}

const Probe kSharingProbes[] = {
    {"descriptors", descriptors},
    {"ipc_alone", ipc_alone},
    {"import", import_from_other},
    {"ipc", ipc_with_other},
    {"fd_in_flight", fd_in_flight, kNothing, kEnds},
    {"kill_gives_back", kill_gives_back, kNothing, kEnds},
    {nullptr, nullptr},
};

}  // namespace kv::card
