// The opcodes of Python's pickle that messages of the worker protocol can hold. Used by the two
// files that write and read pickles (wire_pickle.cc, wire_unpickle.cc) only.
#ifndef HARNESS_WIRE_WIRE_PICKLE_OPS_H_
#define HARNESS_WIRE_WIRE_PICKLE_OPS_H_

namespace kv::drill {

enum PickleOp : unsigned char {
  kMark = '(',
  kStop = '.',
  kBinFloat = 'G',
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
  kSetItems = 'u',
  kEmptyList = ']',
  kEmptyDict = '}',
  kProto = 0x80,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kMemoize = 0x94,
  kFrame = 0x95,
};

}  // namespace kv::drill

#endif  // HARNESS_WIRE_WIRE_PICKLE_OPS_H_
