// What pickle.cc and pickle_decode.cc share: the opcodes of the subset, and what a text may be.
//
// Threads: functions of their arguments. Ownership: none.
#ifndef KVCORE_WIRE_PICKLE_FORMAT_H_
#define KVCORE_WIRE_PICKLE_FORMAT_H_

#include <cstddef>
#include <optional>
#include <string_view>

namespace kv::pickle {

// Opcodes of protocols 2 to 5 (CPython's pickletools describes each).
enum Op : unsigned char {
  kMark = '(',
  kStop = '.',
  kBinFloat = 'G',  // refused by name
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinUnicode = 'X',
  kAppend = 'a',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTuple = 't',
  kSetItems = 'u',
  kEmptyTuple = ')',
  kEmptyList = ']',
  kEmptyDict = '}',
  kProto = 0x80,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kMemoize = 0x94,
  kFrame = 0x95,
};

// The position of the first byte that is not UTF-8 (RFC 3629: shortest form, no surrogates).
std::optional<std::size_t> first_bad_utf8(std::string_view text);

}  // namespace kv::pickle

#endif  // KVCORE_WIRE_PICKLE_FORMAT_H_
