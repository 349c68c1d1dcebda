// One process's view of the card's memory: reserved ranges, handles to physical memory, and the
// page table that leads from device addresses to bytes of the memory file. Virtual-memory calls,
// plain allocations and memory opened over IPC share the one page table.
//
// Threads: any; one mutex. Lock order: this, then the ledger's.
// Ownership: what the process holds; nothing is given back at its end (the ledger says what it
// left, and the next process to account gives it back).
// Answers are those recorded from the real driver; fakes/card/facts names them.
#ifndef FAKES_CARD_ADDRESS_SPACE_H_
#define FAKES_CARD_ADDRESS_SPACE_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "fakes/card/accounts.h"
#include "fakes/card/cuda_abi.h"
#include "kvcore/base/thread_annotations.h"

namespace kv::card {

// Physical memory that this process holds in some way; the last holder gives it back.
class Physical {
 public:
  Physical(Accounts& accounts, const Lease& lease);
  ~Physical();
  Physical(const Physical&) = delete;
  Physical& operator=(const Physical&) = delete;
  const Lease& lease() const { return lease_; }

 private:
  Accounts& accounts_;
  const Lease lease_;
};
using PhysicalPtr = std::shared_ptr<Physical>;

// Bytes of the memory file, kept alive.
struct Piece {
  PhysicalPtr memory;
  std::uint64_t offset, size;
};

// What is known of an address.
struct Region {
  CUdeviceptr start = 0;
  std::uint64_t size = 0;
  int device = 0;
  bool plain = false;  // cuMemAlloc or IPC, not mapped by cuMemMap
  bool exportable = false;
  CUcontext context = nullptr;  // of a plain allocation
};

class AddressSpace {
 public:
  explicit AddressSpace(Accounts& accounts) : accounts_(accounts) {}

  CUresult reserve(std::uint64_t size, std::uint64_t alignment, CUdeviceptr* address);
  CUresult free_range(CUdeviceptr address, std::uint64_t size);

  CUresult create(std::uint64_t size, int device, bool exportable,
                  CUmemGenericAllocationHandle* handle);
  CUresult release(CUmemGenericAllocationHandle handle);
  CUresult retain(CUdeviceptr address, CUmemGenericAllocationHandle* handle);
  CUresult properties(CUmemGenericAllocationHandle handle, CUmemAllocationProp* prop);
  CUresult export_descriptor(CUmemGenericAllocationHandle handle, int* fd);
  CUresult import_descriptor(int fd, CUmemGenericAllocationHandle* handle);

  CUresult map(CUdeviceptr address, std::uint64_t size, std::uint64_t offset,
               CUmemGenericAllocationHandle handle);
  // The caller tells the streams afterwards: work in flight there dies.
  CUresult unmap(CUdeviceptr address, std::uint64_t size);
  CUresult set_access(CUdeviceptr address, std::uint64_t size, const CUmemAccessDesc* access,
                      std::size_t count);
  CUresult get_access(CUdeviceptr address, int device, unsigned long long* flags);

  CUresult allocate(std::uint64_t size, CUcontext context, int device, CUdeviceptr* address);
  CUresult free(CUdeviceptr address);
  // Everything that `context` allocated or opened: it is being destroyed.
  void free_all_of(CUcontext context);
  CUresult ipc_name(CUdeviceptr address, AllocationName* name);
  CUresult ipc_open(const AllocationName& name, CUcontext context, CUdeviceptr* address);
  CUresult ipc_close(CUdeviceptr address);

  // False: nothing is mapped there.
  bool find(CUdeviceptr address, Region* region);
  // The bytes behind a range as `device` may use them. False: part of it is not mapped, or not for
  // this device and use.
  bool pieces(CUdeviceptr address, std::uint64_t size, int device, bool write,
              std::vector<Piece>* result);

 private:
  struct Reservation {
    std::uint64_t size = 0;
    std::uint64_t room = 0;  // with the slack behind it
  };
  struct Handle {
    PhysicalPtr memory;
    std::uint64_t references = 0;  // created, imported, retained; at 0 it lives by its mappings
    std::uint64_t mappings = 0;
    bool exportable = false;
  };
  struct Mapping {
    std::uint64_t size = 0;
    PhysicalPtr memory;
    std::array<std::uint8_t, kMaxDevices> access{};
    CUmemGenericAllocationHandle handle = 0;  // 0: plain
    std::uint64_t opens = 0;                  // > 0: opened over IPC, that many times
    CUcontext context = nullptr;
  };
  using Mappings = std::map<CUdeviceptr, Mapping>;

  Mappings::iterator at(CUdeviceptr address) KV_REQUIRES(mutex_);
  bool inside_a_reservation(CUdeviceptr address, std::uint64_t size) KV_REQUIRES(mutex_);
  bool whole_mappings(CUdeviceptr address, std::uint64_t size) KV_REQUIRES(mutex_);
  bool covered(CUdeviceptr address, std::uint64_t size) KV_REQUIRES(mutex_);
  bool was_given_out(CUmemGenericAllocationHandle handle) const KV_REQUIRES(mutex_);
  [[noreturn]] void die_of_handle(CUmemGenericAllocationHandle handle, const char* call)
      KV_REQUIRES(mutex_);
  CUmemGenericAllocationHandle add_handle(PhysicalPtr memory, bool exportable) KV_REQUIRES(mutex_);
  PhysicalPtr share(const Lease& lease) KV_REQUIRES(mutex_);
  CUresult place(PhysicalPtr memory, std::uint64_t size, CUcontext context, std::uint64_t opens,
                 CUdeviceptr* address) KV_REQUIRES(mutex_);
  PhysicalPtr take_away(Mappings::iterator mapping) KV_REQUIRES(mutex_);

  Accounts& accounts_;
  Mutex mutex_;
  std::map<CUdeviceptr, Reservation> reservations_ KV_GUARDED_BY(mutex_);
  Mappings mappings_ KV_GUARDED_BY(mutex_);
  std::unordered_map<CUmemGenericAllocationHandle, Handle> handles_ KV_GUARDED_BY(mutex_);
  std::uint64_t handles_given_out_ KV_GUARDED_BY(mutex_) = 0;
  // Memory that can be had twice, by import or IPC: it counts once.
  std::unordered_map<std::uint64_t, std::weak_ptr<Physical>> shared_ KV_GUARDED_BY(mutex_);
};

}  // namespace kv::card

#endif  // FAKES_CARD_ADDRESS_SPACE_H_
