// Stacks as people can read them: the frames that a process wrote on the board ("module+0xoffset
// symbol", one a line, the innermost first), with the functions that were inlined there.
//
// Threads: the supervisor's single thread. Ownership: values.
#ifndef HARNESS_PROCESS_STACKS_H_
#define HARNESS_PROCESS_STACKS_H_

#include <string>
#include <string_view>
#include <vector>

namespace kv::drill {

// A function that is on the stack.
struct Frame {
  std::string place;     // "/path/of/module+0x10"; the same for all functions inlined there
  std::string function;  // as in the source; "??" when nothing tells it for certain
  std::string source;    // "/path/of/file:3"; empty: not known
};

// The frames as the board has them: what a module does not export is "??".
std::vector<Frame> frames_of(std::string_view text);
// With what `addr2line` (a program's path; empty: none) knows of their modules, inlined functions
// too, each before the one that it became a part of. Bounded by `limit_ms` a module; where it
// cannot tell, they are as above.
std::vector<Frame> looked_up(std::string_view text, const std::string& addr2line, int limit_ms);

// All of it: each place on a line of its own, its functions below.
std::string in_full(const std::vector<Frame>& frames);
// What tells most, one function a line, each behind a line break: the innermost of the engine's own
// code (all, where none is), without parameters where they are long; the first also says what the
// code was inside of.
std::string in_short(const std::vector<Frame>& frames);

// A function's name with each list of template arguments as <...>, at most about 120 characters.
std::string shortened(std::string_view function);

// Path of addr2line on this machine; empty when there is none.
std::string find_addr2line();

}  // namespace kv::drill

#endif  // HARNESS_PROCESS_STACKS_H_
