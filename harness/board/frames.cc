// Frames of a thread as text, from inside a signal handler: no allocation and no lock. The unwinder
// is warmed up beforehand; modules come from the dynamic linker's lock-free lookup, and symbols are
// read from the module's own tables, because dladdr() takes the linker's lock, which the
// interrupted thread may hold.
#include <dlfcn.h>
#include <elf.h>
#include <execinfo.h>
#include <link.h>
#include <sys/syscall.h>
#include <sys/uio.h>
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

// Where the thread was interrupted, as far as its registers tell.
struct Registers {
  std::uintptr_t instruction = 0;
  std::uintptr_t frame = 0;   // the frame pointer, where code keeps one
  std::uintptr_t called = 0;  // return address of a call that went to `instruction`
};

// Reads a word of this process, wherever it is; false where nothing is mapped.
bool read_word(std::uintptr_t at, std::uintptr_t* word) {
  iovec here{word, sizeof *word};
  iovec there{reinterpret_cast<void*>(at), sizeof *word};
  return ::syscall(SYS_process_vm_readv, ::getpid(), &here, 1, &there, 1, 0) ==
         static_cast<long>(sizeof *word);
}

Registers registers_of(const void* context) {
  Registers registers;
  const auto& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  registers.instruction = static_cast<std::uintptr_t>(machine.gregs[REG_RIP]);
  registers.frame = static_cast<std::uintptr_t>(machine.gregs[REG_RBP]);
  if (!read_word(static_cast<std::uintptr_t>(machine.gregs[REG_RSP]), &registers.called)) {
    registers.called = 0;
  }
#elif defined(__aarch64__)
  registers.instruction = static_cast<std::uintptr_t>(machine.pc);
  registers.frame = static_cast<std::uintptr_t>(machine.regs[29]);
  registers.called = static_cast<std::uintptr_t>(machine.regs[30]);
#else
  static_cast<void>(machine);
#endif
  return registers;
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

bool is_code(std::uintptr_t address) {
  dl_find_object found{};
  return ::_dl_find_object(reinterpret_cast<void*>(address), &found) == 0;
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

// The callers by the chain of frame pointers. For a jump to nowhere, which no unwinder gets out of:
// the stack is as it was just after the call.
void write_chain(const Registers& registers, Out* out) {
  std::uintptr_t caller = registers.called;
  std::uintptr_t frame = registers.frame;
  for (int i = 0; i < kMaxFrames && caller > 1; ++i) {
    write_frame(caller - 1, out);
    std::uintptr_t above = 0;
    if (!read_word(frame + sizeof frame, &caller) || !read_word(frame, &above)) return;
    if (above <= frame) return;
    frame = above;
  }
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
  const Registers registers = registers_of(context);
  Out out(to, room);
  write_frame(registers.instruction, &out);
  // The handler's own frames come first; the interrupted instruction ends them. Under a race
  // detector the handler runs late, on the same stack a few calls further: then all frames are
  // worth having.
  int next = 0;
  while (next < count && reinterpret_cast<std::uintptr_t>(frames[next]) != registers.instruction) {
    ++next;
  }
  if (next < count) {
    ++next;
  } else if (is_code(registers.instruction)) {
    next = 0;
  }
  if (next == count) write_chain(registers, &out);
  for (; next < count; ++next) {
    // A return address belongs to the call before it.
    write_frame(reinterpret_cast<std::uintptr_t>(frames[next]) - 1, &out);
  }
  return out.used();
}

}  // namespace kv::drill
