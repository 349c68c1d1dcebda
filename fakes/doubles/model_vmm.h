// Device memory as a few maps: the obvious model that the allocator's tests compare with. It
// answers as the recorded driver does, and besides writes down every call that a correct caller
// never makes, also not on its error paths ("rule broken"), whether or not the driver would accept
// it.
//
// A call can be told to fail by its number: it then changes nothing, like the driver's. Each object
// is a process of its own: plain memory that one shares can be opened by the others.
//
// Threads: any (one mutex). Ownership: values; the destructor checks nothing.
#ifndef FAKES_DOUBLES_MODEL_VMM_H_
#define FAKES_DOUBLES_MODEL_VMM_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "kvcore/driver/vmm.h"

namespace kv {

class ModelVmm final : public Vmm {
 public:
  static constexpr std::size_t kPage = 4096;  // small, so that a test can afford many

  struct Mapping {
    MemHandle handle = MemHandle::kNone;
    std::size_t size = 0;
    Access access = Access::kNone;
    bool operator==(const Mapping&) const = default;
  };
  using Mappings = std::map<DeviceAddress, Mapping>;

  explicit ModelVmm(std::size_t total = std::size_t{1} << 30) : total_(total) {}

  // ---- what a test may ask and set

  // Called for each driver call with its name ("map") and its number from 0 since the last
  // start_counting(); a value other than 0 is the CUresult it fails with.
  std::function<int(const std::string& call, int number)> fault;
  // The same for calls on pages and addresses: true, and it reports success without being made.
  std::function<bool(const std::string& call, int number)> pretend;
  void start_counting() {
    const std::lock_guard<std::mutex> lock(mutex_);
    calls_.clear();
  }
  // The calls since then, by name, failed ones too.
  std::vector<std::string> calls() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return calls_;
  }
  Mappings mappings() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return mappings_;
  }
  std::size_t handles() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return static_cast<std::size_t>(std::count_if(
        memory_.begin(), memory_.end(), [](const auto& entry) { return entry.second.held; }));
  }
  std::size_t reserved_bytes() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::size_t bytes = 0;
    for (const auto& [address, size] : ranges_) bytes += size;
    return bytes;
  }
  std::size_t used_bytes() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return used_;
  }
  // Plain allocations that were not freed, and openings that were not closed.
  std::size_t allocations() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return plain_.size();
  }
  std::uint64_t openings() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::uint64_t all = 0;
    for (const auto& [address, opened] : opened_) all += opened.count;
    return all;
  }
  // Rules that were broken, in order.
  std::vector<std::string> broken() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return broken_;
  }

  // ---- Vmm

  Result<std::size_t> granularity() override { return kPage; }

  Result<MemoryInfo> memory_info() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const Status status = call("memory_info"); !status.ok()) return status;
    return MemoryInfo{total_ - used_, total_};
  }

  Result<DeviceAddress> reserve(std::size_t size) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const Status status = call("reserve"); !status.ok()) return status;
    if (size == 0 || size % kPage != 0) return refuse("reserve", 1, "a size that is no page");
    const DeviceAddress address = new_address(size);
    ranges_[address] = size;
    return address;
  }

  Status free_address(DeviceAddress address, std::size_t size) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const Status status = call("free_address"); !status.ok() || pretended_) return status;
    const auto range = ranges_.find(address);
    if (range == ranges_.end()) return refuse("free_address", 1, "not a range");
    if (range->second != size) return refuse("free_address", 1, "not the range's size");
    if (overlaps(address, size)) return refuse("free_address", 1, "something is mapped in it");
    ranges_.erase(range);
    return {};
  }

  Result<MemHandle> create(std::size_t size, bool) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const Status status = call("create"); !status.ok()) return status;
    if (size == 0 || size % kPage != 0) return refuse("create", 1, "a size that is no page");
    if (size > total_ - used_) return Status::error(Code::kOutOfMemory, "create", "", 2);
    used_ += size;
    const MemHandle handle{next_handle_++};
    memory_[handle] = {std::vector<std::uint8_t>(size), true, 0};
    return handle;
  }

  Status release(MemHandle handle) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const Status status = call("release"); !status.ok() || pretended_) return status;
    const auto memory = memory_.find(handle);
    if (memory == memory_.end() || !memory->second.held) {
      return refuse("release", 1, "not a handle, or released before");
    }
    memory->second.held = false;
    give_back(memory);
    return {};
  }

  Status map(DeviceAddress address, std::size_t size, MemHandle handle) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const Status status = call("map"); !status.ok() || pretended_) return status;
    const auto memory = memory_.find(handle);
    if (memory == memory_.end() || !memory->second.held) {
      return refuse("map", 1, "not a handle, or released before");
    }
    if (memory->second.bytes.size() != size) return refuse("map", 801, "not the handle's size");
    if (!inside_a_range(address, size)) return refuse("map", 1, "outside of all ranges");
    if (address % kPage != 0) return refuse("map", 1, "misaligned");
    if (overlaps(address, size)) return refuse("map", 1, "something is mapped there");
    mappings_[address] = {handle, size, Access::kNone};
    ++memory->second.mappings;
    return {};
  }

  Status unmap(DeviceAddress address, std::size_t size) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const Status status = call("unmap"); !status.ok() || pretended_) return status;
    if (const auto range = ranges_.find(address); range != ranges_.end() && range->second == size) {
      auto inside = mappings_.lower_bound(address);
      while (inside != mappings_.end() && inside->first < address + size) inside = take_off(inside);
      return {};
    }
    const auto mapping = mappings_.find(address);
    if (mapping == mappings_.end() || mapping->second.size != size) {
      // The driver accepts an empty range; an engine that does this has lost count.
      return refuse("unmap", 1, "not exactly one mapping, and not a whole range");
    }
    take_off(mapping);
    return {};
  }

  Status set_access(DeviceAddress address, std::size_t size, Access access) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const Status status = call("set_access"); !status.ok() || pretended_) return status;
    const auto mapping = mappings_.find(address);
    if (mapping == mappings_.end() || mapping->second.size != size) {
      return refuse("set_access", 1, "not exactly one mapping");
    }
    mapping->second.access = access;
    return {};
  }

  Result<int> export_handle(MemHandle) override { return unsupported("export"); }
  Result<MemHandle> import_handle(int) override { return unsupported("import"); }

  Result<DeviceAddress> allocate(std::size_t size) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    KV_RETURN_IF_ERROR(call("allocate"));
    if (size == 0) return refuse("allocate", 1, "no bytes");
    if (size > total_ - used_) return Status::error(Code::kOutOfMemory, "allocate", "", 2);
    used_ += size;
    const DeviceAddress address = new_address(size);
    plain_[address] = std::make_shared<Bytes>(size);
    return address;
  }
  Status free(DeviceAddress address) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    KV_RETURN_IF_ERROR(call("free"));
    const auto plain = plain_.find(address);
    if (plain == plain_.end()) return refuse("free", 1, "not allocated, or freed before");
    used_ -= plain->second->size();
    plain_.erase(plain);
    return {};
  }

  Result<ShareHandle> share(DeviceAddress address) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    KV_RETURN_IF_ERROR(call("share"));
    const auto plain = plain_.find(address);
    if (plain == plain_.end()) return refuse("share", 1, "not allocated here");
    const std::uint64_t name = Shared::all().add({plain->second, this});
    ShareHandle handle;
    std::memcpy(handle.bytes.data(), &name, sizeof name);
    return handle;
  }
  Result<DeviceAddress> open_shared(const ShareHandle& handle) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    KV_RETURN_IF_ERROR(call("open_shared"));
    std::uint64_t name = 0;
    std::memcpy(&name, handle.bytes.data(), sizeof name);
    const Shared::Entry shared = Shared::all().get(name);
    if (shared.maker == this) return refuse("open_shared", 201, "in the process that made it");
    const auto bytes = shared.bytes.lock();
    if (bytes == nullptr) return Status::error(Code::kDriver, "open_shared", "", 1, "it is gone");
    for (auto& [address, opened] : opened_) {
      if (opened.bytes != bytes) continue;
      ++opened.count;
      return address;
    }
    const DeviceAddress address = new_address(bytes->size());
    opened_[address] = {bytes, 1};
    return address;
  }
  Status close_shared(DeviceAddress address) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    KV_RETURN_IF_ERROR(call("close_shared"));
    const auto opened = opened_.find(address);
    if (opened == opened_.end()) return refuse("close_shared", 1, "not open");
    if (--opened->second.count == 0) opened_.erase(opened);
    return {};
  }

  Status copy_to_device(DeviceAddress to, const void* from, std::size_t size) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    KV_RETURN_IF_ERROR(call("copy"));
    std::uint8_t* bytes = reach(to, size);
    if (bytes == nullptr) return Status::error(Code::kDriver, "copy", "", 1);
    std::memcpy(bytes, from, size);
    return {};
  }
  Status copy_from_device(void* to, DeviceAddress from, std::size_t size) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    KV_RETURN_IF_ERROR(call("copy"));
    const std::uint8_t* bytes = reach(from, size, Access::kRead);
    if (bytes == nullptr) return Status::error(Code::kDriver, "copy", "", 1);
    std::memcpy(to, bytes, size);
    return {};
  }
  Status fill(DeviceAddress to, std::uint8_t value, std::size_t size) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    KV_RETURN_IF_ERROR(call("fill"));
    std::uint8_t* bytes = reach(to, size);
    if (bytes == nullptr) return Status::error(Code::kDriver, "fill", "", 1);
    std::memset(bytes, value, size);
    return {};
  }
  Status synchronize() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return call("synchronize");
  }

 private:
  using Bytes = std::vector<std::uint8_t>;
  struct Opened {
    std::shared_ptr<Bytes> bytes;
    std::uint64_t count = 0;
  };
  // What the processes of the model know of each other: memory by its name.
  class Shared {
   public:
    struct Entry {
      std::weak_ptr<Bytes> bytes;
      const ModelVmm* maker = nullptr;
    };
    static Shared& all() {
      static Shared instance;
      return instance;
    }
    std::uint64_t add(Entry entry) {
      const std::lock_guard<std::mutex> lock(mutex_);
      entries_.push_back(std::move(entry));
      return entries_.size();
    }
    Entry get(std::uint64_t name) {
      const std::lock_guard<std::mutex> lock(mutex_);
      return name >= 1 && name <= entries_.size() ? entries_[name - 1] : Entry{};
    }

   private:
    std::mutex mutex_;
    std::vector<Entry> entries_;
  };
  struct Memory {
    Bytes bytes;
    bool held = false;  // by handle
    int mappings = 0;
  };
  using AllMemory = std::map<MemHandle, Memory>;

  Status call(const std::string& name) {
    const int number = static_cast<int>(calls_.size());
    calls_.push_back(name);
    pretended_ = pretend && pretend(name, number);
    const int code = fault ? fault(name, number) : 0;
    if (code == 0) return {};
    return Status::error(code == 2 ? Code::kOutOfMemory : Code::kDriver, name, "", code,
                         "injected");
  }
  Status refuse(const std::string& name, int code, const std::string& why) {
    broken_.push_back(name + ": " + why);
    return Status::error(Code::kDriver, name, "", code, why);
  }
  static Status unsupported(const char* name) {
    return Status::error(Code::kDriver, name, "", 801, "not in the model");
  }
  DeviceAddress new_address(std::size_t size) {
    const DeviceAddress address = next_address_;
    next_address_ += size + 16 * kPage;
    return address;
  }
  bool overlaps(DeviceAddress address, std::size_t size) const {
    return std::any_of(mappings_.begin(), mappings_.end(), [&](const auto& entry) {
      return entry.first < address + size && address < entry.first + entry.second.size;
    });
  }
  bool inside_a_range(DeviceAddress address, std::size_t size) const {
    return std::any_of(ranges_.begin(), ranges_.end(), [&](const auto& entry) {
      return entry.first <= address && address + size <= entry.first + entry.second;
    });
  }
  // The bytes behind a range that lies in one accessible mapping, or in one piece of plain memory.
  std::uint8_t* reach(DeviceAddress address, std::size_t size, Access needed = Access::kReadWrite) {
    for (const auto& [start, bytes] : plain_) {
      if (auto* found = within(start, *bytes, address, size)) return found;
    }
    for (const auto& [start, opened] : opened_) {
      if (auto* found = within(start, *opened.bytes, address, size)) return found;
    }
    auto mapping = mappings_.upper_bound(address);
    if (mapping == mappings_.begin()) return nullptr;
    --mapping;
    if (address + size > mapping->first + mapping->second.size) return nullptr;
    if (mapping->second.access < needed) return nullptr;
    return memory_.at(mapping->second.handle).bytes.data() + (address - mapping->first);
  }
  static std::uint8_t* within(DeviceAddress start, Bytes& bytes, DeviceAddress address,
                              std::size_t size) {
    const bool inside = address >= start && address + size <= start + bytes.size();
    return inside ? bytes.data() + (address - start) : nullptr;
  }
  Mappings::iterator take_off(Mappings::iterator mapping) {
    const auto memory = memory_.find(mapping->second.handle);
    --memory->second.mappings;
    give_back(memory);
    return mappings_.erase(mapping);
  }
  void give_back(AllMemory::iterator memory) {
    if (memory->second.held || memory->second.mappings > 0) return;
    used_ -= memory->second.bytes.size();
    memory_.erase(memory);
  }

  const std::size_t total_;
  mutable std::mutex mutex_;
  std::size_t used_ = 0;
  DeviceAddress next_address_ = 0x7f0000000000;
  std::uint64_t next_handle_ = 1;
  std::map<DeviceAddress, std::size_t> ranges_;
  Mappings mappings_;
  AllMemory memory_;
  std::map<DeviceAddress, std::shared_ptr<Bytes>> plain_;
  std::map<DeviceAddress, Opened> opened_;
  std::vector<std::string> calls_;
  bool pretended_ = false;  // the last one
  std::vector<std::string> broken_;
};

}  // namespace kv

#endif  // FAKES_DOUBLES_MODEL_VMM_H_
