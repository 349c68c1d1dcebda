#include "harness/process/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <system_error>

#include "harness/base/files.h"
#include "harness/process/process_internal.h"

namespace kv::drill {
namespace {

constexpr std::size_t kRead = 65536;
// A turn of take(): a few fillings of a pipe. At the end: of one that was made as large as can be.
constexpr int kReadsOfATurn = 4, kReadsAtTheEnd = 64;

// The whole text from this offset of a file on; what cannot be written is lost.
void write_at(int fd, std::string_view text, std::uint64_t offset) {
  while (!text.empty()) {
    const ssize_t done = ::pwrite(fd, text.data(), text.size(), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(done));
    offset += static_cast<std::uint64_t>(done);
  }
}

}  // namespace

struct Output::Impl {
  void read(int times) {
    for (int i = 0; i < times && ours.get() >= 0; ++i) {
      if (!read_once()) return;
    }
  }

  // False: nothing is there now.
  bool read_once() {
    char bytes[kRead];
    const ssize_t got = ::read(ours.get(), bytes, sizeof bytes);
    if (got > 0) {
      keep({bytes, static_cast<std::size_t>(got)});
      return true;
    }
    if (got < 0 && errno == EINTR) return true;
    if (got == 0 || errno != EAGAIN) ours.close();
    return false;
  }

  void keep(std::string_view bytes) {
    if (written < kHead) {
      const auto head = bytes.substr(0, kHead - written);
      write_at(file.get(), head, written);
      written += head.size();
      bytes.remove_prefix(head.size());
    }
    written += bytes.size();
    if (bytes.empty()) return;
    tail += bytes;
    // Now and then: a move of the whole end for each read would be dear.
    if (tail.size() > 2 * kTail) tail.erase(0, tail.size() - kTail);
    unsettled = true;
  }

  std::uint64_t left_out() const { return written <= kHead + kTail ? 0 : written - kHead - kTail; }

  void complete() {
    if (!unsettled) return;
    unsettled = false;
    if (tail.size() > kTail) tail.erase(0, tail.size() - kTail);
    std::string end = tail;
    if (left_out() > 0) {
      end.insert(0, "\n[kvdrill: " + std::to_string(left_out()) + " of " + std::to_string(written) +
                        " bytes are left out here]\n");
    }
    write_at(file.get(), end, kHead);
  }

  Descriptor ours, its, file;
  std::uint64_t written = 0;
  std::string tail;  // what came behind the head, of it at least the last kTail bytes
  bool unsettled = false;
};

Output::Output() = default;
Output::Output(Output&&) noexcept = default;
Output& Output::operator=(Output&&) noexcept = default;
Output::~Output() = default;

tl::expected<Output, std::string> Output::make(const std::string& path) {
  const auto refused = [](const std::string& what) {
    return tl::unexpected(what + ": " + std::generic_category().message(errno));
  };
  auto made = std::make_unique<Impl>();
  made->file = Descriptor(open_regular(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, 0644));
  if (made->file.get() < 0) return refused("output file " + path);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return refused("a pipe for " + path);
  made->ours = Descriptor(ends[0]);
  made->its = Descriptor(ends[1]);
  if (::fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) return refused("a pipe for " + path);
  Output output;
  output.impl_ = std::move(made);
  return output;
}

int Output::writing_end() const {
  return impl_ ? impl_->its.get() : -1;
}

void Output::close_writing_end() {
  if (impl_) impl_->its.close();
}

int Output::fd() const {
  return impl_ ? impl_->ours.get() : -1;
}

void Output::take() {
  if (impl_) impl_->read(kReadsOfATurn);
}

void Output::settle() {
  if (!impl_) return;
  impl_->read(kReadsAtTheEnd);
  impl_->complete();
}

std::uint64_t Output::written() const {
  return impl_ ? impl_->written : 0;
}

std::uint64_t Output::left_out() const {
  return impl_ ? impl_->left_out() : 0;
}

}  // namespace kv::drill
