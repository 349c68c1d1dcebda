// Messages as the bytes that Python's pickle makes of the same dictionary, and back. Reading takes
// a strict subset of protocols 2 to 5: plain values only, so a body can neither name nor run code,
// nor cost more time or memory than its own length explains.
//
// Threads: functions of their arguments; any thread.
// Ownership: values. No exception leaves: kOutOfMemory when the host has none left.
// Source of the format: CPython's own output, recorded as byte vectors (testdata/).
#ifndef KVCORE_WIRE_PICKLE_H_
#define KVCORE_WIRE_PICKLE_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "kvcore/base/status.h"
#include "kvcore/wire/message.h"

namespace kv {

// Lists and dictionaries inside one another, the message itself counted.
inline constexpr int kPickleDepth = 32;
// Values in one body, keys counted.
inline constexpr std::size_t kPickleValues = 1u << 20;
// A body may repeat a value by reference (Python does so for an object that is met twice). What
// the repeats of one body may add up to: values beyond those written out, and bytes of text.
inline constexpr std::size_t kPickleRepeats = 1u << 16;
inline constexpr std::size_t kPickleRepeatedText = 16u << 20;

// Protocol 4, byte for byte as CPython's pickle.dumps(message, protocol=4) of a dictionary in which
// no object is met twice (an equal text at another place is another object).
// kInvalidArgument: a text that is not UTF-8, or nesting over kPickleDepth.
Result<std::string> encode_pickle(const Message& message);
// The same, appended to `out`; on failure `out` is as it was.
Status append_pickle(const Message& message, std::string& out);

// The text with every byte that is not UTF-8 written as \xNN: for words of unknown origin (a
// caught exception's, a file name) on their way into a message.
std::string encodable(std::string_view text);

// kProtocol, "pickle.decode", "byte N", and what is wrong there: everything that is not one whole
// dictionary with text keys made of none, truth values, 64-bit integers, texts, lists, tuples
// (read as lists) and dictionaries, within the limits above. Nothing may follow it.
Result<Message> decode_pickle(std::string_view body);

}  // namespace kv

#endif  // KVCORE_WIRE_PICKLE_H_
