// How the card tells a person about misuse and trouble: one line on standard error.
//
// Threads: any. Ownership: nothing passes.
#ifndef FAKES_CARD_REPORT_H_
#define FAKES_CARD_REPORT_H_

#include <string>

namespace kv::card {

// Writes "kvcard: MESSAGE" as one line.
void complain(const std::string& message);

// Ends the process as the real driver does when it is handed a handle that it never gave out: the
// reason on standard error, then a read of memory that is not there (SIGSEGV).
[[noreturn]] void die_of_bad_handle(const std::string& reason);

}  // namespace kv::card

#endif  // FAKES_CARD_REPORT_H_
