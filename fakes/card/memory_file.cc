#include "fakes/card/memory_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <system_error>

#include "fakes/card/report.h"

namespace kv::card {
namespace {

constexpr std::uint64_t kBuffer = std::uint64_t{256} << 10;
// From here on, zeros are a hole.
constexpr std::uint64_t kWorthAHole = std::uint64_t{64} << 10;
constexpr std::uint64_t kBlock = 4096;

CUresult failure(const char* what) {
  if (errno == EFAULT) return CUDA_ERROR_INVALID_VALUE;
  complain(std::string("memory file: ") + what + ": " + std::generic_category().message(errno));
  return CUDA_ERROR_UNKNOWN;
}

}  // namespace

CUresult MemoryFile::read(std::uint64_t offset, void* to, std::uint64_t size) const {
  auto* bytes = static_cast<char*>(to);
  while (size > 0) {
    const ssize_t got = ::pread(fd_, bytes, size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failure("read");
    if (got == 0) {  // behind the end of the file: never written
      std::memset(bytes, 0, size);
      return CUDA_SUCCESS;
    }
    bytes += got;
    offset += static_cast<std::uint64_t>(got);
    size -= static_cast<std::uint64_t>(got);
  }
  return CUDA_SUCCESS;
}

CUresult MemoryFile::write(std::uint64_t offset, const void* from, std::uint64_t size) const {
  const auto* bytes = static_cast<const char*>(from);
  while (size > 0) {
    const ssize_t put = ::pwrite(fd_, bytes, size, static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return failure("write");
    bytes += put;
    offset += static_cast<std::uint64_t>(put);
    size -= static_cast<std::uint64_t>(put);
  }
  return CUDA_SUCCESS;
}

CUresult MemoryFile::copy(std::uint64_t to, std::uint64_t from, std::uint64_t size) const {
  const auto buffer = std::make_unique<char[]>(std::min(size, kBuffer));
  for (std::uint64_t done = 0; done < size;) {
    const std::uint64_t part = std::min(size - done, kBuffer);
    if (const CUresult code = read(from + done, buffer.get(), part)) return code;
    if (const CUresult code = write(to + done, buffer.get(), part)) return code;
    done += part;
  }
  return CUDA_SUCCESS;
}

CUresult MemoryFile::fill(std::uint64_t offset, std::uint32_t value, unsigned width,
                          std::uint64_t size) const {
  if (value == 0 && size >= kWorthAHole && offset % kBlock == 0 && size % kBlock == 0 &&
      give_back(offset, size)) {
    return CUDA_SUCCESS;
  }
  const std::uint64_t length = std::min(size, kBuffer);
  const auto buffer = std::make_unique<char[]>(length);
  if (width == 1) {
    std::memset(buffer.get(), static_cast<int>(value), length);
  } else {
    for (std::uint64_t at = 0; at < length; at += width) {
      std::memcpy(buffer.get() + at, &value, width);
    }
  }
  for (std::uint64_t done = 0; done < size; done += length) {
    const std::uint64_t part = std::min(size - done, length);
    if (const CUresult code = write(offset + done, buffer.get(), part)) return code;
  }
  return CUDA_SUCCESS;
}

bool MemoryFile::give_back(std::uint64_t offset, std::uint64_t size) const {
  int result = 0;
  do {
    result = ::fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                         static_cast<off_t>(offset), static_cast<off_t>(size));
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

}  // namespace kv::card
