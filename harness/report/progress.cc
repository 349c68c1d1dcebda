#include "harness/report/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "harness/report/report.h"

namespace kv::drill {
namespace {

constexpr std::size_t kUsualColumns = 80;

std::size_t terminal_columns() {
  struct winsize size {};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsualColumns;
  return size.ws_col;
}

// The first `columns` characters of UTF-8.
std::string_view cut(std::string_view text, std::size_t columns) {
  std::size_t characters = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool begins = (static_cast<unsigned char>(text[i]) & 0xc0) != 0x80;
    if (begins && characters++ == columns) return text.substr(0, i);
  }
  return text;
}

}  // namespace

std::string progress_text(std::size_t done, std::size_t total, std::uint64_t failed,
                          std::int64_t ns, std::string_view running, std::size_t columns) {
  std::string text = fmt::format("[{}/{}] ", done, total);
  if (failed > 0) text += fmt::format("{} failed, ", failed);
  text += fmt::format("{} s", ns / 1'000'000'000);
  if (!running.empty()) text += ": " + one_line(running);
  return std::string(cut(text, columns));
}

void Progress::started(std::size_t job, std::string name, std::int64_t ns) {
  running_[job] = std::move(name);
  show(ns);
}

void Progress::ended(std::size_t job, std::int64_t ns) {
  running_.erase(job);
  ++done_;
  show(ns);
}

void Progress::show(std::int64_t ns) {
  if (!shown_) return;
  const std::string_view running = running_.empty() ? std::string_view() : running_.begin()->second;
  // One column stays free: a full line would wrap on some terminals.
  fmt::print("\r{}\x1b[K",
             progress_text(done_, total_, failed_, ns, running, terminal_columns() - 1));
  std::fflush(stdout);
  visible_ = true;
}

void Progress::clear() {
  if (visible_) fmt::print("\r\x1b[K");
  visible_ = false;
}

}  // namespace kv::drill
