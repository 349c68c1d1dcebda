#include "fakes/card/ledger.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <system_error>

#include "fakes/card/byte_lock.h"
#include "fakes/card/tear.h"

namespace kv::card {
namespace {

bool init_mutex(pthread_mutex_t* mutex) {
  pthread_mutexattr_t attributes;
  if (::pthread_mutexattr_init(&attributes) != 0) return false;
  const bool made = ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED) == 0 &&
                    ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0 &&
                    ::pthread_mutex_init(mutex, &attributes) == 0;
  ::pthread_mutexattr_destroy(&attributes);
  return made;
}

bool write_ledger(LedgerFile* file, const Config& config) {
  LedgerHeader& header = file->header;
  header.version = kLedgerVersion;
  header.devices = config.devices;
  header.device_size = sizeof(LedgerDevice);
  header.owners = 0;
  header.owner_size = sizeof(LedgerOwner);
  header.owner_capacity = kOwners;
  header.devices_offset = offsetof(LedgerFile, devices);
  header.owners_offset = offsetof(LedgerFile, owners);
  for (std::uint32_t device = 0; device < config.devices; ++device) {
    file->devices[device] = {config.device_bytes, 0};
  }
  tear();
  Tables& tables = file->tables;
  if (!init_mutex(&tables.mutex) ||
      ::getrandom(&tables.card, sizeof tables.card, 0) != sizeof tables.card) {
    return false;
  }
  tear();
  std::memcpy(header.magic, kLedgerMagic, sizeof header.magic);
  return true;
}

bool is_blank(const LedgerHeader& header) {
  static constexpr char kBlank[sizeof header.magic] = {};
  return std::memcmp(header.magic, kBlank, sizeof kBlank) == 0;
}

bool is_ours(const LedgerHeader& header) {
  return std::memcmp(header.magic, kLedgerMagic, sizeof header.magic) == 0 &&
         header.version == kLedgerVersion && header.devices <= kMaxDevices &&
         header.device_size == sizeof(LedgerDevice) && header.owner_size == sizeof(LedgerOwner) &&
         header.owner_capacity == kOwners;
}

}  // namespace

LedgerFile* open_ledger(const Store& store, const Config& config, std::string* error) {
  const auto failed = [error](const char* what) {
    *error = std::string("ledger: ") + what + ": " + std::generic_category().message(errno);
    return nullptr;
  };
  // One process at a time from here on: a byte of the ledger, locked by a description of its own,
  // so that the lock goes with this process whatever happens to it.
  const UniqueFd turn(reopen(store.ledger.get()));
  if (!turn || !await_byte(turn.get(), 0)) return failed("lock");
  const off_t size = ::lseek(turn.get(), 0, SEEK_END);
  if (size < 0) return failed("seek");
  if (size != 0 && size != static_cast<off_t>(sizeof(LedgerFile))) {
    *error = "ledger: is " + std::to_string(size) + " bytes, expected " +
             std::to_string(sizeof(LedgerFile)) + ": it is not one of this version";
    return nullptr;
  }
  // Not by ftruncate: on a full disk the first write to the mapping would be a SIGBUS.
  if (size == 0) {
    do {
      errno = ::posix_fallocate(turn.get(), 0, sizeof(LedgerFile));
    } while (errno == EINTR);
    if (errno != 0) {
      const bool full = errno == ENOSPC || errno == EDQUOT;
      const std::string what = (full ? "no space on " : "extend in ") +
                               (config.directory.empty() ? "memory" : config.directory);
      failed(what.c_str());
      // Whatever was reserved goes: a file of another size would be taken for a foreign one.
      if (::ftruncate(turn.get(), 0) != 0) return failed("shorten");
      return nullptr;
    }
  }
  void* mapping = ::mmap(nullptr, sizeof(LedgerFile), PROT_READ | PROT_WRITE, MAP_SHARED,
                         store.ledger.get(), 0);
  if (mapping == MAP_FAILED) return failed("map");
  auto* file = static_cast<LedgerFile*>(mapping);
  // A creator that was killed before the magic was written left nothing that anybody used.
  if (is_blank(file->header) && !write_ledger(file, config)) return failed("write");
  if (!is_ours(file->header)) {
    *error = "ledger: not one of this version (expected magic kvcard1, version 1)";
    return nullptr;
  }
  return file;
}

}  // namespace kv::card
