#include "harness/process/card_ledger.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string_view>
#include <system_error>

namespace kv::drill {

namespace {

constexpr char kMagic[8] = {'k', 'v', 'c', 'a', 'r', 'd', '1', '\0'};
constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kMostDevices = 1024;
constexpr std::uint32_t kMostOwners = 1 << 20;

// The layout is written to a file by other programs: no field may move unnoticed.
static_assert(sizeof(LedgerHeader) == 56 && sizeof(LedgerDevice) == 16);
static_assert(sizeof(LedgerOwner) == 56 + 8 * 8);

struct File {
  int fd = -1;
  std::string path;
  std::uint64_t size = 0;
  ~File() {
    if (fd >= 0) ::close(fd);
  }
};

std::string number(std::uint64_t value) {
  return std::to_string(value);
}

std::string refuse(const File& file, const std::string& what) {
  return file.path + " is not the card's ledger: " + what;
}

// Reads exactly `size` bytes at `offset`; false: they are not there (it shrank) or cannot be read.
bool read_at(const File& file, std::uint64_t offset, void* into, std::size_t size) {
  auto* bytes = static_cast<char*>(into);
  while (size > 0) {
    const ssize_t got = ::pread(file.fd, bytes, size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    bytes += got;
    offset += static_cast<std::uint64_t>(got);
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

// Whether a table lies within the file, behind the header; otherwise what is wrong with it.
std::string wrong_table(const File& file, const std::string& name, std::uint64_t offset,
                        std::uint64_t count, std::uint64_t item, std::uint64_t expected_item) {
  if (item != expected_item) {
    return name + " of " + number(item) + " bytes each, expected " + number(expected_item);
  }
  if (offset < sizeof(LedgerHeader) || offset % 8 != 0) {
    return name + " at offset " + number(offset) + ", expected a multiple of 8 from " +
           number(sizeof(LedgerHeader)) + " on";
  }
  if (offset > file.size || count * item > file.size - offset) {
    return number(count) + " " + name + " at offset " + number(offset) +
           " reach beyond its end at " + number(file.size);
  }
  return "";
}

std::string wrong_header(const File& file, const LedgerHeader& header) {
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) {
    return "it does not begin with \"kvcard1\"";
  }
  if (header.version != kVersion) {
    return "version " + number(header.version) + ", expected " + number(kVersion);
  }
  if (header.devices > kMostDevices) {
    return number(header.devices) + " devices, expected at most " + number(kMostDevices);
  }
  if (header.owner_capacity > kMostOwners || header.owners > header.owner_capacity) {
    return number(header.owners) + " owners of " + number(header.owner_capacity) +
           ", expected at most " + number(kMostOwners);
  }
  std::string wrong = wrong_table(file, "devices", header.devices_offset, header.devices,
                                  header.device_size, sizeof(LedgerDevice));
  if (wrong.empty()) {
    wrong = wrong_table(file, "owners", header.owners_offset, header.owner_capacity,
                        header.owner_size, sizeof(LedgerOwner));
  }
  return wrong;
}

Holding holding_of(const LedgerOwner& owner) {
  Holding holding;
  holding.pid = owner.pid;
  holding.process.assign(owner.process, ::strnlen(owner.process, sizeof owner.process));
  holding.bytes = owner.bytes;
  holding.handles = owner.handles;
  holding.mappings = owner.mappings;
  holding.reservations = owner.reservations;
  holding.allocations = owner.allocations;
  holding.contexts = owner.contexts;
  holding.exports = owner.exports;
  return holding;
}

}  // namespace

bool is_fake_card(const std::string& driver) {
  constexpr std::string_view kControl("\0kvcardHoldStream\0", 18);  // in the table of names
  constexpr std::size_t kChunk = std::size_t{1} << 20;
  std::ifstream file(driver, std::ios::binary);
  std::string text;
  while (file) {
    // The end of what was read before may hold the first part of the name.
    if (text.size() > kControl.size()) text.erase(0, text.size() - kControl.size());
    const std::size_t before = text.size();
    text.resize(before + kChunk);
    file.read(text.data() + before, kChunk);
    text.resize(before + static_cast<std::size_t>(file.gcount()));
    if (text.find(kControl) != std::string::npos) return true;
  }
  return false;
}

tl::expected<CardState, std::string> read_ledger(const std::string& path) {
  File file;
  file.path = path;
  file.fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.fd < 0 && errno == ENOENT) return CardState();
  struct stat status {};
  if (file.fd < 0 || ::fstat(file.fd, &status) != 0) {
    return tl::unexpected("cannot read the card's ledger " + path + ": " +
                          std::generic_category().message(errno));
  }
  if (!S_ISREG(status.st_mode)) return tl::unexpected(refuse(file, "not a regular file"));
  file.size = static_cast<std::uint64_t>(status.st_size);

  LedgerHeader header;
  if (file.size < sizeof header || !read_at(file, 0, &header, sizeof header)) {
    return tl::unexpected(refuse(
        file, "it holds " + number(file.size) + " bytes, its header " + number(sizeof header)));
  }
  if (const auto wrong = wrong_header(file, header); !wrong.empty()) {
    return tl::unexpected(refuse(file, wrong));
  }
  CardState state;
  state.devices.resize(header.devices);
  std::vector<LedgerOwner> owners(header.owners);
  if (!read_at(file, header.devices_offset, state.devices.data(),
               state.devices.size() * sizeof(LedgerDevice)) ||
      !read_at(file, header.owners_offset, owners.data(), owners.size() * sizeof(LedgerOwner))) {
    return tl::unexpected(refuse(file, "it shrank while it was read"));
  }
  for (const auto& owner : owners) {
    if (owner.pid > 0) state.owners.push_back(holding_of(owner));  // 0: taken, not filled in yet
  }
  return state;
}

}  // namespace kv::drill
