// Frames of a thread as text, from inside a signal handler: no allocation and no lock. The unwinder
// is warmed up beforehand; modules come from the dynamic linker's lock-free lookup, and symbols are
// read from the module's own tables, because dladdr() takes the linker's lock, which the
// interrupted thread may hold.
#include <dlfcn.h>
#include <elf.h>
#include <execinfo.h>
#include <link.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "harness/board/session.h"

namespace kv::drill {
namespace {

constexpr int kMaxFrames = 64;

char program[PATH_MAX];  // of the main program: the linker calls it ""
std::size_t program_length = 0;

class Out {
 public:
  Out(char* to, std::size_t room) : to_(to), room_(room) {}
  void text(std::string_view text) {
    const std::size_t n = std::min(text.size(), room_ - used_);
    std::copy_n(text.data(), n, to_ + used_);
    used_ += n;
  }
  void hex(std::uintptr_t value) {
    char digits[2 * sizeof value];
    std::size_t n = 0;
    do {
      digits[n++] = "0123456789abcdef"[value & 15];
      value >>= 4;
    } while (value != 0);
    std::reverse(digits, digits + n);
    text("0x");
    text({digits, n});
  }
  std::size_t room() const { return room_ - used_; }
  std::size_t used() const { return used_; }

 private:
  char* to_;
  std::size_t room_;
  std::size_t used_ = 0;
};

std::uintptr_t interrupted_at(const void* context) {
  const auto* machine = &static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return static_cast<std::uintptr_t>(machine->gregs[REG_RIP]);
#elif defined(__aarch64__)
  return static_cast<std::uintptr_t>(machine->pc);
#else
  static_cast<void>(machine);
  return 0;
#endif
}

// The tables of one module that a lookup by address needs.
struct Symbols {
  const ElfW(Sym) * symbols = nullptr;
  const char* strings = nullptr;
  const std::uint32_t* hash = nullptr;  // DT_GNU_HASH: the only place that bounds the table

  explicit Symbols(const link_map& module) {
    for (const ElfW(Dyn)* entry = module.l_ld; entry->d_tag != DT_NULL; ++entry) {
      // Relocated by the linker, except where the table is read-only (the kernel's own module).
      std::uintptr_t at = entry->d_un.d_ptr;
      if (at < module.l_addr) at += module.l_addr;
      if (entry->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const ElfW(Sym)*>(at);
      if (entry->d_tag == DT_STRTAB) strings = reinterpret_cast<const char*>(at);
      if (entry->d_tag == DT_GNU_HASH) hash = reinterpret_cast<const std::uint32_t*>(at);
    }
  }

  // One more than the last symbol's index: the end of the chain of the highest bucket.
  std::uint32_t count() const {
    const std::uint32_t buckets = hash[0], first = hash[1], bloom_words = hash[2];
    const std::uint32_t* bucket = hash + 4 + bloom_words * (sizeof(ElfW(Addr)) / 4);
    const std::uint32_t* chain = bucket + buckets;
    std::uint32_t last = 0;
    for (std::uint32_t i = 0; i < buckets; ++i) last = std::max(last, bucket[i]);
    if (last < first) return first;
    while ((chain[last - first] & 1) == 0) ++last;
    return last + 1;
  }
};

// The function around `address`; empty when the module does not export it.
std::string_view symbol_at(const link_map& module, std::uintptr_t address) {
  const Symbols tables(module);
  if (tables.symbols == nullptr || tables.strings == nullptr || tables.hash == nullptr) return {};
  const std::uintptr_t offset = address - module.l_addr;
  const std::uint32_t count = tables.count();
  for (std::uint32_t i = 0; i < count; ++i) {
    const ElfW(Sym)& symbol = tables.symbols[i];
    if (symbol.st_shndx == SHN_UNDEF || (symbol.st_info & 15) != STT_FUNC) continue;
    if (offset - symbol.st_value < symbol.st_size) return tables.strings + symbol.st_name;
  }
  return {};
}

void write_frame(std::uintptr_t address, Out* out) {
  dl_find_object found{};
  if (::_dl_find_object(reinterpret_cast<void*>(address), &found) != 0) {
    out->text("?+");
    out->hex(address);
    out->text("\n");
    return;
  }
  const link_map& module = *found.dlfo_link_map;
  const std::string_view name = module.l_name;
  out->text(name.empty() ? std::string_view(program, program_length) : name);
  out->text("+");
  out->hex(address - module.l_addr);
  const std::string_view symbol = symbol_at(module, address);
  if (!symbol.empty()) {
    out->text(" ");
    out->text(symbol);
  }
  out->text("\n");
}

}  // namespace

void prepare_frames() {
  const ssize_t length = ::readlink("/proc/self/exe", program, sizeof program);
  if (length > 0) program_length = static_cast<std::size_t>(length);
  void* frames[2];
  ::backtrace(frames, 2);  // loads the unwinder, which allocates
}

std::size_t write_frames(const void* context, char* to, std::size_t room) {
  void* frames[kMaxFrames];
  const int count = std::max(0, ::backtrace(frames, kMaxFrames));
  const std::uintptr_t at = interrupted_at(context);
  // The handler's own frames come first; the interrupted instruction ends them. A jump to nowhere
  // cannot be unwound from there: then the instruction itself, and all that the unwinder has.
  int first = 0;
  while (first < count && reinterpret_cast<std::uintptr_t>(frames[first]) != at) ++first;
  Out out(to, room);
  write_frame(at, &out);
  if (first == count) first = -1;
  for (int i = first + 1; i < count && out.room() > 0; ++i) {
    // A return address belongs to the call before it.
    write_frame(reinterpret_cast<std::uintptr_t>(frames[i]) - 1, &out);
  }
  return out.used();
}

}  // namespace kv::drill
