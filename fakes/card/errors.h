// Names and texts of the driver's error codes.
//
// Threads: any. Ownership: static strings.
#ifndef FAKES_CARD_ERRORS_H_
#define FAKES_CARD_ERRORS_H_

namespace kv::card {

// Null: no such code.
const char* error_name(unsigned code);
const char* error_text(unsigned code);

}  // namespace kv::card

#endif  // FAKES_CARD_ERRORS_H_
